// The words of kolo.h in C++: operators, data types of C++ types, ranges of elements; included by
// kolo.hpp. C++17 or later; ranges from C++20 on.
#ifndef KOLO_TYPES_HPP_
#define KOLO_TYPES_HPP_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#if __cplusplus >= 202002L
#include <span>
#endif

#include "kolo/kolo.h"

namespace kolo {

enum class Op : std::int32_t {
  sum = KOLO_SUM,
  prod = KOLO_PROD,
  max = KOLO_MAX,
  min = KOLO_MIN,
  avg = KOLO_AVG,
  adasum = KOLO_ADASUM
};

// Some of a job's ranks, as kolo_pset_create() names them; default-made, all of them. A plain
// number: copying it copies the name, and nothing happens when it goes. See
// Context::create_process_set().
struct ProcessSet {
  std::int32_t number = 0;

  friend bool operator==(ProcessSet a, ProcessSet b) noexcept { return a.number == b.number; }
  friend bool operator!=(ProcessSet a, ProcessSet b) noexcept { return !(a == b); }
};

// Storage of two-byte floats for compilers without such types: the bits, no arithmetic.
struct float16 {
  std::uint16_t bits;
};
struct bfloat16 {
  std::uint16_t bits;
};

namespace detail {

template <typename T>
constexpr kolo_dtype integer_dtype() {
  static_assert(sizeof(T) <= 8, "kolo has no integers of more than 64 bits");
  constexpr bool is_signed = std::is_signed_v<T>;
  if (sizeof(T) == 1) return is_signed ? KOLO_INT8 : KOLO_UINT8;
  if (sizeof(T) == 2) return is_signed ? KOLO_INT16 : KOLO_UINT16;
  if (sizeof(T) == 4) return is_signed ? KOLO_INT32 : KOLO_UINT32;
  return is_signed ? KOLO_INT64 : KOLO_UINT64;
}

template <typename T>
struct always_false : std::false_type {};

template <typename T, typename = void>
struct dtype_of {
  static_assert(always_false<T>::value,
                "kolo has no data type for this C++ type; specialise kolo::dtype for it");
};
template <typename T>
struct dtype_of<T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>>> {
  static constexpr kolo_dtype value = integer_dtype<T>();
};
template <>
struct dtype_of<bool> {
  static_assert(sizeof(bool) == 1, "kolo's bool is one byte");
  static constexpr kolo_dtype value = KOLO_BOOL;
};
template <>
struct dtype_of<std::byte> {
  static constexpr kolo_dtype value = KOLO_UINT8;
};
template <>
struct dtype_of<float> {
  static constexpr kolo_dtype value = KOLO_FLOAT32;
};
template <>
struct dtype_of<double> {
  static constexpr kolo_dtype value = KOLO_FLOAT64;
};
template <>
struct dtype_of<float16> {
  static constexpr kolo_dtype value = KOLO_FLOAT16;
};
template <>
struct dtype_of<bfloat16> {
  static constexpr kolo_dtype value = KOLO_BFLOAT16;
};
#if defined(__FLT16_MANT_DIG__)
template <>
struct dtype_of<_Float16> {
  static constexpr kolo_dtype value = KOLO_FLOAT16;
};
#endif

inline std::int64_t milliseconds(std::chrono::milliseconds limit) { return limit.count(); }

#if defined(__cpp_lib_span)
// Exists for what std::span takes: a vector, an array or a span, but no temporary vector, because
// the operation may outlive it.
template <typename Range>
using ElementOf = typename decltype(std::span(std::declval<Range>()))::element_type;

template <typename Range>
concept Input = requires {
  typename ElementOf<Range>;
};

template <typename Range>
concept Output = !std::is_const_v<ElementOf<Range>>;

// An input for the elements of `To`.
template <typename Range, typename To>
concept InputOf = std::is_same_v<std::remove_const_t<ElementOf<Range>>, ElementOf<To>>;
#endif

}  // namespace detail

// The data type that holds elements of T. A type of your own (another bfloat16, say) gets one by a
// specialisation: template <> inline constexpr kolo_dtype kolo::dtype<mine> = KOLO_BFLOAT16;
template <typename T>
inline constexpr kolo_dtype dtype = detail::dtype_of<std::remove_cv_t<T>>::value;

}  // namespace kolo

#endif  // KOLO_TYPES_HPP_
