#include "tests/multiproc/random/values.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>

#include "tests/conformance/reference.h"

namespace kolo::programs {
namespace {

namespace reference = internal::reference;

std::size_t sum_of(const std::vector<std::size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

internal::DataType internal_of(kolo_dtype dtype) { return static_cast<internal::DataType>(dtype); }

// An ordinary number, or any bits.
template <typename T>
T element(const Operation& operation, std::uint64_t random, bool wild) {
  T value;
  std::memcpy(&value, &random, sizeof value);
  const double real = std::ldexp(static_cast<double>(random % 20000) - 10000.0, -12);
  const bool ordinary = operation.op == KOLO_ADASUM || !wild || (random >> 60) != 0;
  if constexpr (std::is_same_v<T, reference::Boolean>) {
    if (!reduces(operation.kind)) value.value &= 1;
  } else if constexpr (std::is_same_v<T, reference::Half16>) {
    if (ordinary) value.bits = internal::narrow_f16(static_cast<float>(real));
  } else if constexpr (std::is_same_v<T, reference::Brain16>) {
    if (ordinary) value.bits = internal::narrow_bf16(static_cast<float>(real));
  } else if constexpr (std::is_floating_point_v<T>) {
    if (ordinary) value = static_cast<T>(real);
  }
  return value;
}

// T over hosts and their ranks, as steps: a place pushes its value, -1 combines the upper two.
class Steps {
 public:
  Steps(const std::vector<int>& hosts, const std::vector<bool>& present) {
    std::vector<std::vector<std::size_t>> by_host;
    std::vector<int> seen;
    for (std::size_t place = 0; place < hosts.size(); ++place) {
      const auto at = std::find(seen.begin(), seen.end(), hosts[place]);
      const auto index = static_cast<std::size_t>(at - seen.begin());
      if (at == seen.end()) {
        seen.push_back(hosts[place]);
        by_host.emplace_back();
      }
      by_host[index].push_back(place);
    }
    add(0, by_host.size(), [&](std::size_t host) {
      return add(0, by_host[host].size(), [&](std::size_t i) {
        const std::size_t place = by_host[host][i];
        if (present[place]) steps_.push_back(static_cast<int>(place));
        return bool{present[place]};
      });
    });
  }

  template <typename T>
  reference::Work<T> reduce(internal::ReduceOp op,
                            const std::vector<reference::Work<T>>& values) const {
    reference::Work<T> stack[64];
    std::size_t height = 0;
    for (const int step : steps_) {
      if (step >= 0) {
        stack[height++] = values[static_cast<std::size_t>(step)];
      } else {
        --height;
        stack[height - 1] = reference::combine<T>(op, stack[height - 1], stack[height]);
      }
    }
    return stack[0];
  }

  // The same over whole vectors.
  std::vector<double> adasum(const std::vector<std::vector<double>>& values) const;

 private:
  // Whether anything of [first, first + count) is there: who is absent leaves no step.
  bool add(std::size_t first, std::size_t count, const std::function<bool(std::size_t)>& leaf) {
    if (count == 1) return leaf(first);
    std::size_t left = 1;
    while (left * 2 < count) left *= 2;
    const bool has_left = add(first, left, leaf);
    const bool has_right = add(first + left, count - left, leaf);
    if (has_left && has_right) steps_.push_back(-1);
    return has_left || has_right;
  }

  std::vector<int> steps_;
};

std::vector<double> adasum_of(const std::vector<double>& a, const std::vector<double>& b) {
  const double ab = std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  const double aa = std::inner_product(a.begin(), a.end(), a.begin(), 0.0);
  const double bb = std::inner_product(b.begin(), b.end(), b.begin(), 0.0);
  const double of_a = aa == 0 ? 1 : 1 - ab / (2 * aa);
  const double of_b = bb == 0 ? 1 : 1 - ab / (2 * bb);
  std::vector<double> sum(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) sum[i] = of_a * a[i] + of_b * b[i];
  return sum;
}

std::vector<double> Steps::adasum(const std::vector<std::vector<double>>& values) const {
  std::vector<std::vector<double>> stack;
  for (const int step : steps_) {
    if (step >= 0) {
      stack.push_back(values[static_cast<std::size_t>(step)]);
      continue;
    }
    const std::vector<double> right = stack.back();
    stack.pop_back();
    stack.back() = adasum_of(stack.back(), right);
  }
  return stack.front();
}

// Elements [first, first + count) of what all present bring.
std::vector<Bytes> inputs_of(const Run& run) {
  std::vector<Bytes> inputs(run.size());
  for (std::size_t place = 0; place < run.size(); ++place) {
    if (!run.present[place]) continue;
    inputs[place] =
        input_at(*run.operation, run.key, place, input_elements(*run.operation, place, run.size()));
  }
  return inputs;
}

template <typename T>
T load(const Bytes& bytes, std::size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
  return value;
}

Bytes reduced(const Run& run, std::size_t first, std::size_t count) {
  const Operation& what = *run.operation;
  const auto op = static_cast<internal::ReduceOp>(what.op);
  const std::vector<Bytes> inputs = inputs_of(run);
  const Steps steps(run.hosts, run.present);
  Bytes output(count * bytes_of(what.dtype));
  reference::visit(internal_of(what.dtype), [&]<typename T>(T) {
    std::vector<reference::Work<T>> values(run.size());
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t place = 0; place < run.size(); ++place) {
        if (!run.present[place]) continue;
        values[place] = reference::decode<T>(load<T>(inputs[place], first + i), what.prescale);
      }
      const T out =
          reference::encode<T>(op, steps.reduce<T>(op, values), run.participants(), what.postscale);
      std::memcpy(output.data() + i * sizeof out, &out, sizeof out);
    }
  });
  return output;
}

Bytes adasum(const Run& run) {
  const Operation& what = *run.operation;
  const std::vector<Bytes> inputs = inputs_of(run);
  Bytes output(what.count * bytes_of(what.dtype));
  reference::visit(internal_of(what.dtype), [&]<typename T>(T) {
    if constexpr (std::is_floating_point_v<reference::Work<T>>) {
      std::vector<std::vector<double>> values(run.size());
      for (std::size_t place = 0; place < run.size(); ++place) {
        if (!run.present[place]) continue;
        for (std::size_t i = 0; i < what.count; ++i) {
          values[place].push_back(
              static_cast<double>(reference::decode<T>(load<T>(inputs[place], i), 1.0)));
        }
      }
      // As if on one host.
      const Steps steps(std::vector<int>(run.size(), 0), run.present);
      const std::vector<double> sum = steps.adasum(values);
      for (std::size_t i = 0; i < what.count; ++i) {
        const T out = reference::encode<T>(internal::ReduceOp::kSum,
                                           static_cast<reference::Work<T>>(sum[i]), 1, 1.0);
        std::memcpy(output.data() + i * sizeof out, &out, sizeof out);
      }
    }
  });
  return output;
}

void append(Bytes& to, const Bytes& from, std::size_t first, std::size_t count) {
  const auto begin = from.begin() + static_cast<std::ptrdiff_t>(first);
  to.insert(to.end(), begin, begin + static_cast<std::ptrdiff_t>(count));
}

// What every present rank sends to this place.
Bytes gathered(const Run& run, std::size_t place) {
  const Operation& what = *run.operation;
  const std::size_t width = bytes_of(what.dtype);
  const std::vector<Bytes> inputs = inputs_of(run);
  const std::vector<std::size_t> counts = received(run, place);
  Bytes output;
  for (std::size_t from = 0; from < run.size(); ++from) {
    if (counts[from] == 0) continue;
    std::size_t first = 0;
    if (what.kind == Kind::kAlltoall) {
      for (std::size_t to = 0; to < place; ++to) {
        first += what.blocks.empty() ? what.count : what.blocks[from][to];
      }
    }
    append(output, inputs[from], first * width, counts[from] * width);
  }
  return output;
}

template <typename T>
double number(const std::byte* values, std::size_t i) {
  T value;
  std::memcpy(&value, values + i * sizeof value, sizeof value);
  return static_cast<double>(reference::decode<T>(value, 1.0));
}

// Relative to the largest element: the weights come from sums over all of them.
double adasum_tolerance(kolo_dtype dtype) {
  switch (dtype) {
    case KOLO_FLOAT16: return 4e-3;
    case KOLO_BFLOAT16: return 3e-2;
    case KOLO_FLOAT32: return 2e-5;
    default: return 1e-12;
  }
}

template <typename T>
bool is_equal(const Operation& operation, const std::byte* got, const std::byte* want,
              std::size_t i, double largest) {
  if (std::memcmp(got + i * sizeof(T), want + i * sizeof(T), sizeof(T)) == 0) return true;
  if constexpr (std::is_floating_point_v<reference::Work<T>>) {
    if (!reduces(operation.kind)) return false;
    const double a = number<T>(got, i);
    const double b = number<T>(want, i);
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
    return operation.op == KOLO_ADASUM &&
           std::fabs(a - b) <= adasum_tolerance(operation.dtype) * largest;
  }
  return false;
}

std::string hex(const std::byte* bytes, std::size_t count) {
  std::string text = "0x";
  for (std::size_t i = count; i > 0; --i) {
    text += "0123456789abcdef"[std::to_integer<unsigned>(bytes[i - 1]) >> 4];
    text += "0123456789abcdef"[std::to_integer<unsigned>(bytes[i - 1]) & 15];
  }
  return text;
}

}  // namespace

int Run::participants() const {
  return static_cast<int>(std::count(present.begin(), present.end(), true));
}

std::size_t input_elements(const Operation& operation, std::size_t place, std::size_t size) {
  switch (operation.kind) {
    case Kind::kAllreduce:
    case Kind::kBroadcast: return operation.count;
    case Kind::kReduceScatter:
      return operation.counts.empty() ? size * operation.count : sum_of(operation.counts);
    case Kind::kAllgather:
      return operation.counts.empty() ? operation.count : operation.counts[place];
    case Kind::kAlltoall:
      return operation.blocks.empty() ? size * operation.count : sum_of(operation.blocks[place]);
    default: return 0;
  }
}

std::vector<std::size_t> received(const Run& run, std::size_t place) {
  const Operation& what = *run.operation;
  std::vector<std::size_t> counts(run.size());
  for (std::size_t from = 0; from < run.size(); ++from) {
    if (!run.present[from]) continue;
    counts[from] = what.count;
    if (!what.counts.empty()) counts[from] = what.counts[from];
    if (!what.blocks.empty()) counts[from] = what.blocks[from][place];
  }
  return counts;
}

std::size_t output_elements(const Run& run, std::size_t place) {
  switch (run.operation->kind) {
    case Kind::kAllgather:
    case Kind::kAlltoall: return sum_of(received(run, place));
    case Kind::kReduceScatter:
      return run.operation->counts.empty() ? run.operation->count : run.operation->counts[place];
    case Kind::kAllreduce:
    case Kind::kBroadcast: return run.operation->count;
    default: return 0;
  }
}

std::size_t offset_of(const Operation& operation, std::size_t place) {
  if (operation.counts.empty()) return place * operation.count;
  std::size_t offset = 0;
  for (std::size_t before = 0; before < place; ++before) offset += operation.counts[before];
  return offset;
}

Bytes input_at(const Operation& operation, std::uint64_t key, std::size_t place,
               std::size_t elements) {
  const std::size_t width = bytes_of(operation.dtype);
  Bytes bytes(elements * width);
  const std::uint64_t start = mix(key ^ mix(place));
  const bool wild = key % 4 == 0;
  if (operation.dtype == KOLO_FLOAT8_E4M3 || operation.dtype == KOLO_FLOAT8_E5M2) {
    for (std::size_t i = 0; i < elements; ++i) bytes[i] = static_cast<std::byte>(mix(start + i));
    return bytes;
  }
  reference::visit(internal_of(operation.dtype), [&]<typename T>(T) {
    for (std::size_t i = 0; i < elements; ++i) {
      const T value = element<T>(operation, mix(start + i), wild);
      std::memcpy(bytes.data() + i * width, &value, width);
    }
  });
  return bytes;
}

Bytes output_at(const Run& run, std::size_t place) {
  const Operation& what = *run.operation;
  switch (what.kind) {
    case Kind::kAllreduce:
      return what.op == KOLO_ADASUM ? adasum(run) : reduced(run, 0, what.count);
    case Kind::kReduceScatter:
      return reduced(run, offset_of(what, place), output_elements(run, place));
    case Kind::kAllgather:
    case Kind::kAlltoall: return gathered(run, place);
    case Kind::kBroadcast:
      return input_at(what, run.key, static_cast<std::size_t>(run.set->place_of(what.root)),
                      what.count);
    default: return {};
  }
}

bool needs_everybody(const Run& run) {
  const Operation& what = *run.operation;
  if (run.participants() == static_cast<int>(run.size())) return false;
  switch (what.kind) {
    case Kind::kAllgather: return !what.allocate;
    case Kind::kAlltoall: return true;
    case Kind::kBroadcast:
      return !run.present[static_cast<std::size_t>(run.set->place_of(what.root))];
    case Kind::kAllreduce: return what.op == KOLO_PROD && what.prescale != 1.0;
    default: return false;
  }
}

std::string difference(const Operation& operation, const std::byte* got, const Bytes& want) {
  if (want.empty() || std::memcmp(got, want.data(), want.size()) == 0) return {};
  const std::size_t width = bytes_of(operation.dtype);
  const std::size_t count = want.size() / width;
  std::string text;
  const auto say = [&](std::size_t i) {
    text = "element " + std::to_string(i) + " of " + std::to_string(count) + " is " +
           hex(got + i * width, width) + " instead of " + hex(want.data() + i * width, width);
  };
  if (operation.dtype == KOLO_FLOAT8_E4M3 || operation.dtype == KOLO_FLOAT8_E5M2) {
    std::size_t i = 0;
    while (got[i] == want[i]) ++i;
    say(i);
    return text;
  }
  reference::visit(internal_of(operation.dtype), [&]<typename T>(T) {
    double largest = 0;
    if (operation.op == KOLO_ADASUM) {
      for (std::size_t i = 0; i < count; ++i) {
        largest = std::max(largest, std::fabs(number<T>(want.data(), i)));
      }
    }
    for (std::size_t i = 0; i < count && text.empty(); ++i) {
      if (!is_equal<T>(operation, got, want.data(), i, largest)) say(i);
    }
  });
  return text;
}

std::int64_t nonfinite_in(kolo_dtype dtype, const std::byte* values, std::size_t count) {
  std::int64_t found = 0;
  if (!is_float(dtype)) return found;
  reference::visit(internal_of(dtype), [&]<typename T>(T) {
    for (std::size_t i = 0; i < count; ++i) {
      if (!std::isfinite(number<T>(values, i))) ++found;
    }
  });
  return found;
}

}  // namespace kolo::programs
