#include "core/validate.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

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
  if (s.kind != OpKind::kAllreduce) {
    return refuse(s, given + ", which only an allreduce has; leave both at 1");
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
  if (s.kind != OpKind::kAllreduce) return Status::ok();
  if (!is_valid(s.op)) {
    return refuse(s, "unknown reduction operator " + std::to_string(static_cast<int>(s.op)) +
                         "; use a value of kolo_op");
  }
  if (can_reduce(s.dtype, s.op)) return Status::ok();
  const std::string pair = std::string(reduce_op_name(s.op)) + " is not defined on " +
                           std::string(data_type_name(s.dtype));
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
  if (s.kind == OpKind::kAllgather && s.shape.empty()) {
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

struct Extents {
  std::size_t input_bytes = 0;
  std::size_t output_bytes = 0;
};

Result<Extents> extents_of(const Submission& s, int size) {
  const std::size_t element = element_bytes(s.dtype);
  const auto input = product(s.count, element);
  const std::size_t copies = s.kind == OpKind::kAllgather ? static_cast<std::size_t>(size) : 1;
  const auto output = input ? product(*input, copies) : std::nullopt;
  if (output) return Extents{*input, *output};
  std::string factors =
      std::to_string(s.count) + " elements of " + std::to_string(element) + " bytes";
  if (copies > 1) factors += " from each of " + std::to_string(size) + " ranks";
  return refuse(s, "the byte count overflows: " + factors + " are more than " +
                       std::to_string(kMaxBytes) + " bytes; check count (it is in elements)");
}

Status check_pointers(const Submission& s, int rank) {
  if (s.count == 0) return Status::ok();
  const bool reads_input = s.kind != OpKind::kBroadcast || rank < 0 || rank == s.root;
  const auto count = [&] { return " is null and count is " + std::to_string(s.count); };
  if (reads_input && s.input == nullptr) {
    return refuse(s, "the input" + count() + "; pass the tensor's address, or count 0");
  }
  if (s.output == nullptr) {
    return refuse(
        s, "the output" + count() + "; pass the result's address (the input's, to work in place)");
  }
  return Status::ok();
}

Status check_overlap(const Submission& s, const Extents& extents, int size, int rank) {
  const bool reads_input = s.kind != OpKind::kBroadcast || rank < 0 || rank == s.root;
  if (extents.input_bytes == 0 || !reads_input) return Status::ok();
  const auto input = reinterpret_cast<std::uintptr_t>(s.input);
  const auto output = reinterpret_cast<std::uintptr_t>(s.output);
  if (input > std::numeric_limits<std::uintptr_t>::max() - extents.input_bytes ||
      output > std::numeric_limits<std::uintptr_t>::max() - extents.output_bytes) {
    return refuse(s, "the buffers run past the end of the address space; check count");
  }
  if (input + extents.input_bytes <= output || output + extents.output_bytes <= input) {
    return Status::ok();
  }
  if (s.kind != OpKind::kAllgather) {
    if (input == output) return Status::ok();
    return refuse(s, "input and output overlap without being equal (they differ by " +
                         std::to_string(input > output ? input - output : output - input) + " of " +
                         std::to_string(extents.input_bytes) +
                         " bytes); pass the same address for both, or separate buffers");
  }
  for (int place = 0; place < size; ++place) {
    if (rank >= 0 && place != rank) continue;
    if (input == output + static_cast<std::size_t>(place) * extents.input_bytes) {
      return Status::ok();
    }
  }
  return refuse(s,
                "the input lies in the output, but not at this rank's place; in place, input "
                "must be output + rank * count elements");
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

Status validate(const Submission& s, int size, int rank) {
  KOLO_RETURN_IF_ERROR(validate_name(s.name));
  if (s.timeout <= Nanos::zero()) {
    return refuse(s, "the timeout must be above 0");
  }
  if (s.kind == OpKind::kBarrier) return Status::ok();
  KOLO_RETURN_IF_ERROR(check_types(s));
  if (s.kind == OpKind::kBroadcast && (s.root < 0 || s.root >= size)) {
    return refuse(s, "root " + std::to_string(s.root) + " is not a rank; use 0 to " +
                         std::to_string(size - 1));
  }
  KOLO_RETURN_IF_ERROR(check_scales(s));
  const auto extents = extents_of(s, size);
  if (!extents) return extents.status();
  KOLO_RETURN_IF_ERROR(check_shape(s));
  KOLO_RETURN_IF_ERROR(check_pointers(s, rank));
  return check_overlap(s, *extents, size, rank);
}

}  // namespace kolo::internal
