#include "core/validate.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "coordinator/unit.h"
#include "core/extents.h"

namespace kolo::internal {
namespace {

// Addresses and byte counts must fit a signed offset, as for any object in C.
constexpr std::size_t kMaxBytes = std::numeric_limits<std::ptrdiff_t>::max();

std::string subject(const Submission& s) {
  const std::string kind(op_kind_name(s.kind));
  return s.name.empty() ? kind + " without a name" : kind + " of \"" + std::string(s.name) + "\"";
}

Status refuse(const Submission& s, const std::string& why) {
  return invalid_argument(subject(s) + ": " + why);
}

std::optional<std::size_t> product(std::size_t a, std::size_t b) {
  std::size_t result = 0;
  if (__builtin_mul_overflow(a, b, &result) || result > kMaxBytes) return std::nullopt;
  return result;
}

// The process set as its ranks see it.
struct Members {
  int size = 0;
  int place = -1;              // of this rank; -1: not known
  std::span<const int> ranks;  // of the job; empty: 0 to size - 1

  [[nodiscard]] bool has(int rank) const {
    if (ranks.empty()) return rank >= 0 && rank < size;
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  }
  [[nodiscard]] bool is_here(int rank) const {
    if (place < 0) return true;
    return rank == (ranks.empty() ? place : ranks[static_cast<std::size_t>(place)]);
  }
};

bool reduces(const Submission& s) {
  return s.kind == OpKind::kAllreduce || s.kind == OpKind::kReduceScatter;
}

bool is_scaled(const Submission& s) { return s.prescale != 1.0 || s.postscale != 1.0; }

Status check_scales(const Submission& s) {
  struct Scale {
    const char* name;
    double value;
  };
  for (const auto& [name, value] : {Scale{"prescale", s.prescale}, {"postscale", s.postscale}}) {
    if (!std::isfinite(value)) {
      return refuse(s, std::string(name) + " is " + std::to_string(value) +
                           "; give a finite number, 1 for none");
    }
  }
  if (!is_scaled(s)) return Status::ok();
  const std::string given = "prescale " + std::to_string(s.prescale) + " and postscale " +
                            std::to_string(s.postscale) + " were given";
  if (!reduces(s)) {
    return refuse(s, given + ", which only an allreduce or reduce_scatter has; leave both at 1");
  }
  if (!is_floating(s.dtype)) {
    return refuse(s, given + " for " + std::string(data_type_name(s.dtype)) +
                         "; scales need f16, bf16, f32 or f64: leave both at 1, or convert first");
  }
  return Status::ok();
}

Status check_types(const Submission& s) {
  if (!is_valid(s.dtype)) {
    return refuse(s, "unknown data type " + std::to_string(static_cast<int>(s.dtype)) +
                         "; use a value of kolo_dtype");
  }
  if (!reduces(s)) return Status::ok();
  if (!is_valid(s.op)) {
    return refuse(s, "unknown reduction operator " + std::to_string(static_cast<int>(s.op)) +
                         "; use a value of kolo_op");
  }
  if (s.op == ReduceOp::kAdasum && s.kind != OpKind::kAllreduce) {
    return refuse(s, "adasum is for allreduce only");
  }
  if (can_reduce(s.dtype, s.op)) return Status::ok();
  const std::string pair = std::string(reduce_op_name(s.op)) + " is not defined on " +
                           std::string(data_type_name(s.dtype));
  if (s.op == ReduceOp::kAdasum) {
    return refuse(s, pair + "; it needs f16, bf16, f32 or f64");
  }
  return refuse(s, s.dtype == DataType::kBool
                       ? pair + "; bool has sum and max (or), prod and min (and)"
                       : pair +
                             ": 8-bit floats are moved but not reduced; convert to f16, bf16 "
                             "or f32 first");
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

Status check_shape(const Submission& s) {
  if (!s.has_shape) return Status::ok();
  if (s.shape.size() > kMaxDims) {
    return refuse(s, "the shape has " + std::to_string(s.shape.size()) + " dimensions; at most " +
                         std::to_string(kMaxDims) + " are supported");
  }
  const bool by_rows = s.kind == OpKind::kAllgather || s.kind == OpKind::kAlltoall ||
                       s.kind == OpKind::kReduceScatter;
  if (by_rows && s.shape.empty()) {
    return refuse(s, "a scalar (ndim 0) has no first dimension to gather along; give it shape [1]");
  }
  // Elements may be zero in one dimension and many in another, so zero is settled first.
  bool is_empty = false;
  for (const std::int64_t extent : s.shape) {
    if (extent < 0) {
      return refuse(s, "the shape " + shape_text(s.shape) + " has the negative dimension " +
                           std::to_string(extent));
    }
    if (extent == 0) is_empty = true;
  }
  std::optional<std::size_t> elements = is_empty ? 0 : 1;
  for (const std::int64_t extent : s.shape) {
    if (elements) elements = product(*elements, static_cast<std::size_t>(extent));
  }
  if (elements == s.count) return Status::ok();
  return refuse(s, "the shape " + shape_text(s.shape) + " holds " +
                       (elements ? std::to_string(*elements) : std::string("too many")) +
                       " elements and count is " + std::to_string(s.count) +
                       "; they must be equal");
}

// Which options may be given with which kind, and that they fit each other.
Status check_counts(const Submission& s, const Members& members) {
  const bool receives = s.receive_counts != nullptr;
  const bool sends = s.send_counts != nullptr;
  if (s.allocate && s.kind != OpKind::kAllgather && s.kind != OpKind::kAlltoall) {
    return refuse(s, "allocate is for allgather and alltoall; leave it at 0");
  }
  if (s.allocate && (receives || s.output != nullptr)) {
    return refuse(s,
                  "with allocate the library makes the output and takes what comes; leave "
                  "output and recv_counts NULL");
  }
  if (sends && s.kind != OpKind::kAlltoall) {
    return refuse(s, "send_counts are for alltoall; leave them NULL");
  }
  if (receives && !sends && s.kind == OpKind::kAlltoall) {
    return refuse(s, "recv_counts without send_counts; give both");
  }
  if (sends && !receives && !s.allocate) {
    return refuse(s, "send_counts without recv_counts; give both, or set allocate");
  }
  const bool takes = s.kind == OpKind::kAllgather || s.kind == OpKind::kAlltoall ||
                     s.kind == OpKind::kReduceScatter;
  if (receives && !takes) return refuse(s, "recv_counts do not fit it; leave them NULL");
  const bool own_in_list = s.kind == OpKind::kAllgather || s.kind == OpKind::kReduceScatter;
  if (receives && own_in_list && members.place >= 0) {
    const std::size_t own = s.receive_counts[members.place];
    if (own != s.count) {
      return refuse(s, "count is " + std::to_string(s.count) + " and recv_counts has " +
                           std::to_string(own) + " for this rank; they must be equal");
    }
  }
  return Status::ok();
}

std::optional<std::size_t> sum_of(const std::size_t* counts, int size) {
  std::size_t sum = 0;
  for (int i = 0; i < size; ++i) {
    if (__builtin_add_overflow(sum, counts[i], &sum) || sum > kMaxBytes) return std::nullopt;
  }
  return sum;
}

// Elements; none where they do not fit.
Extents<std::optional<std::size_t>> elements_of(const Submission& s, const Members& members) {
  const auto total = [&](const std::size_t* counts) {
    return counts == nullptr ? product(s.count, static_cast<std::size_t>(members.size))
                             : sum_of(counts, members.size);
  };
  const std::optional<std::size_t> own = s.count;
  const std::optional<std::size_t> none = 0;
  return extents_of(s.kind, own, total(s.send_counts), s.allocate ? none : total(s.receive_counts));
}

// Bytes; the elements are known to fit.
struct Bytes {
  std::size_t input = 0;
  std::size_t output = 0;
};

Result<Bytes> bytes_of(const Submission& s, const Members& members) {
  const std::size_t element = element_bytes(s.dtype);
  const auto extents = elements_of(s, members);
  const auto input = extents.input ? product(*extents.input, element) : std::nullopt;
  const auto output = extents.output ? product(*extents.output, element) : std::nullopt;
  if (input && output) return Bytes{*input, *output};
  return refuse(s, "the byte count overflows: " + std::to_string(s.count) + " elements of " +
                       std::to_string(element) + " bytes for " + std::to_string(members.size) +
                       " ranks, or the counts given, are more than " + std::to_string(kMaxBytes) +
                       " bytes; check count (it is in elements)");
}

Status check_sum(const Submission& s, const Members& members) {
  if (s.send_counts == nullptr) return Status::ok();
  const auto sum = sum_of(s.send_counts, members.size);
  if (sum == s.count) return Status::ok();
  return refuse(s, "count is " + std::to_string(s.count) + " and send_counts make " +
                       (sum ? std::to_string(*sum) : std::string("too many")) +
                       "; count must be their sum");
}

Status check_pointers(const Submission& s, const Bytes& bytes, const Members& members) {
  const bool reads_input = s.kind != OpKind::kBroadcast || members.is_here(s.root);
  const auto count = [&] { return " is null and count is " + std::to_string(s.count); };
  if (reads_input && bytes.input > 0 && s.input == nullptr) {
    return refuse(s, "the input" + count() + "; pass the tensor's address, or count 0");
  }
  if (bytes.output > 0 && s.output == nullptr) {
    return refuse(
        s, "the output" + count() + "; pass the result's address (the input's, to work in place)");
  }
  return Status::ok();
}

// Where this rank's block begins in the larger buffer of a reduce-scatter or all-gather.
std::size_t block_offset(const Submission& s, int place) {
  const auto before = static_cast<std::size_t>(place);
  const std::size_t elements =
      s.receive_counts == nullptr
          ? before * s.count
          : std::accumulate(s.receive_counts, s.receive_counts + place, std::size_t{0});
  return elements * element_bytes(s.dtype);
}

// The smaller buffer may be this rank's block of the larger one.
bool is_own_block(const Submission& s, const Members& members) {
  const bool gathers = s.kind == OpKind::kAllgather;
  const auto larger = reinterpret_cast<std::uintptr_t>(gathers ? s.output : s.input);
  const auto smaller = reinterpret_cast<std::uintptr_t>(gathers ? s.input : s.output);
  for (int place = 0; place < members.size; ++place) {
    if (members.place >= 0 && place != members.place) continue;
    if (smaller == larger + block_offset(s, place)) return true;
  }
  return false;
}

Status check_overlap(const Submission& s, const Bytes& bytes, const Members& members) {
  const bool reads_input = s.kind != OpKind::kBroadcast || members.is_here(s.root);
  if (bytes.input == 0 || bytes.output == 0 || !reads_input) return Status::ok();
  const auto input = reinterpret_cast<std::uintptr_t>(s.input);
  const auto output = reinterpret_cast<std::uintptr_t>(s.output);
  if (input > std::numeric_limits<std::uintptr_t>::max() - bytes.input ||
      output > std::numeric_limits<std::uintptr_t>::max() - bytes.output) {
    return refuse(s, "the buffers run past the end of the address space; check count");
  }
  if (input + bytes.input <= output || output + bytes.output <= input) return Status::ok();
  switch (s.kind) {
    case OpKind::kAllgather:
      if (is_own_block(s, members)) return Status::ok();
      return refuse(s,
                    "the input lies in the output, but not at this rank's place; in place, "
                    "input must be output + rank * count elements");
    case OpKind::kReduceScatter:
      if (is_own_block(s, members)) return Status::ok();
      return refuse(s,
                    "the output lies in the input, but not at this rank's place; in place, "
                    "output must be input + rank * count elements");
    case OpKind::kAlltoall:
      return refuse(s, "input and output overlap; an alltoall needs separate buffers");
    default: break;
  }
  if (input == output) return Status::ok();
  return refuse(s, "input and output overlap without being equal (they differ by " +
                       std::to_string(input > output ? input - output : output - input) + " of " +
                       std::to_string(bytes.input) +
                       " bytes); pass the same address for both, or separate buffers");
}

}  // namespace

Status validate_name(std::string_view name) {
  if (name.size() > kMaxNameBytes) {
    return invalid_argument("the name \"" + std::string(name.substr(0, 32)) + "...\" has " +
                            std::to_string(name.size()) + " bytes; at most " +
                            std::to_string(kMaxNameBytes) + " are allowed");
  }
  if (name.starts_with('#')) {
    return invalid_argument("the name \"" + std::string(name) +
                            "\" begins with '#', which is kept for kolo's sequence numbers; "
                            "choose another");
  }
  return Status::ok();
}

Status validate(const Submission& s, int size, int place, std::span<const int> ranks) {
  const Members members{size, place, ranks};
  KOLO_RETURN_IF_ERROR(validate_name(s.name));
  if (s.timeout <= Nanos::zero()) {
    return refuse(s, "the timeout must be above 0");
  }
  KOLO_RETURN_IF_ERROR(check_counts(s, members));
  if (s.kind == OpKind::kBarrier) return Status::ok();
  KOLO_RETURN_IF_ERROR(check_types(s));
  if (s.kind == OpKind::kBroadcast && !members.has(s.root)) {
    const std::vector<int> named(ranks.begin(), ranks.end());
    return refuse(s, "root " + std::to_string(s.root) + " is not a rank of the process set; use " +
                         (ranks.empty() ? "0 to " + std::to_string(size - 1)
                                        : "a rank of the job that is in it: " + ranks_text(named)));
  }
  KOLO_RETURN_IF_ERROR(check_scales(s));
  const auto bytes = bytes_of(s, members);
  if (!bytes) return bytes.status();
  KOLO_RETURN_IF_ERROR(check_sum(s, members));
  KOLO_RETURN_IF_ERROR(check_shape(s));
  KOLO_RETURN_IF_ERROR(check_pointers(s, *bytes, members));
  return check_overlap(s, *bytes, members);
}

Status validate_set(const Submission& s, int job_size) {
  KOLO_RETURN_IF_ERROR(validate_name(s.name));
  const auto bad = [&](const std::string& why) {
    return invalid_argument(std::string(op_kind_name(s.kind)) + ": " + why);
  };
  const bool plain = s.process_set == 0 && s.prescale == 1.0 && s.postscale == 1.0 && !s.allocate &&
                     s.send_counts == nullptr && s.receive_counts == nullptr &&
                     s.participants == nullptr;
  if (!plain) return bad("of the options only name, timeout_ms and callback fit; leave the rest");
  if (s.kind == OpKind::kDestroySet) return Status::ok();
  if (s.shape.empty()) return bad("a process set needs at least one rank");
  for (std::size_t i = 0; i < s.shape.size(); ++i) {
    if (s.shape[i] < 0 || s.shape[i] >= job_size) {
      return bad("there is no rank " + std::to_string(s.shape[i]) + "; use 0 to " +
                 std::to_string(job_size - 1));
    }
    if (i > 0 && s.shape[i] == s.shape[i - 1]) {
      return bad("rank " + std::to_string(s.shape[i]) + " is given twice");
    }
  }
  return Status::ok();
}

}  // namespace kolo::internal
