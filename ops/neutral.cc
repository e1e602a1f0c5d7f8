#include "ops/neutral.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "ops/half.h"

namespace kolo::internal {
namespace {

using Element = std::array<std::byte, 8>;  // the first bytes count

template <typename T>
Element element_of(T value) {
  Element element{};
  std::memcpy(element.data(), &value, sizeof value);
  return element;
}

template <typename Integer>
Element integer(ReduceOp op) {
  switch (op) {
    case ReduceOp::kProd: return element_of(Integer{1});
    case ReduceOp::kMax: return element_of(std::numeric_limits<Integer>::min());
    case ReduceOp::kMin: return element_of(std::numeric_limits<Integer>::max());
    default: return element_of(Integer{0});
  }
}

// `Float` is what the values are accumulated in.
template <typename Float>
Float floating(ReduceOp op, double prescale) {
  const auto scale = static_cast<Float>(prescale);
  const Float sign = std::signbit(scale) ? Float{-1} : Float{1};
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg: return -Float{0} * sign;
    case ReduceOp::kProd: return Float{1};
    case ReduceOp::kAdasum: return Float{0};
    case ReduceOp::kMax:
    case ReduceOp::kMin: break;
  }
  // A prescale that vanishes in this type leaves zeros only, of which -0 is the least.
  const Float least = scale == 0 ? Float{-1} : -std::numeric_limits<Float>::infinity();
  return op == ReduceOp::kMax ? least * sign : -least * sign;
}

Element neutral_element(DataType dtype, ReduceOp op, double prescale) {
  switch (dtype) {
    case DataType::kInt8: return integer<std::int8_t>(op);
    case DataType::kUint8: return integer<std::uint8_t>(op);
    case DataType::kInt16: return integer<std::int16_t>(op);
    case DataType::kUint16: return integer<std::uint16_t>(op);
    case DataType::kInt32: return integer<std::int32_t>(op);
    case DataType::kUint32: return integer<std::uint32_t>(op);
    case DataType::kInt64: return integer<std::int64_t>(op);
    case DataType::kUint64: return integer<std::uint64_t>(op);
    case DataType::kFloat16: return element_of(narrow_f16(floating<float>(op, prescale)));
    case DataType::kBfloat16: return element_of(narrow_bf16(floating<float>(op, prescale)));
    case DataType::kFloat32: return element_of(floating<float>(op, prescale));
    case DataType::kFloat64: return element_of(floating<double>(op, prescale));
    case DataType::kBool: {
      const bool is_and = op == ReduceOp::kProd || op == ReduceOp::kMin;
      return element_of(static_cast<std::uint8_t>(is_and ? 1 : 0));
    }
    case DataType::kFloat8E4m3:
    case DataType::kFloat8E5m2: break;
  }
  KOLO_CHECK(false);
}

}  // namespace

void fill_neutral(DataType dtype, ReduceOp op, double prescale, void* memory, std::size_t count) {
  KOLO_CHECK(can_reduce(dtype, op));
  KOLO_CHECK(op != ReduceOp::kProd || prescale == 1.0);
  if (count == 0) return;
  const Element element = neutral_element(dtype, op, prescale);
  const std::size_t size = element_bytes(dtype);
  auto* to = static_cast<std::byte*>(memory);
  std::memcpy(to, element.data(), size);
  // What is filled already is copied behind itself.
  const std::size_t bytes = count * size;
  for (std::size_t filled = size; filled < bytes;) {
    const std::size_t more = filled < bytes - filled ? filled : bytes - filled;
    std::memcpy(to + filled, to, more);
    filled += more;
  }
}

}  // namespace kolo::internal
