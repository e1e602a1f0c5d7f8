// same_abi<Own, Real>(): whether a function pointer of kolo's own declaration calls the real
// function as the real header would: the same places, widths and kinds of parameters and result.
#pragma once

#include <type_traits>

namespace kolo::test {

enum class Kind { kVoid, kPointer, kInteger, kFloating, kClass };

template <typename T>
constexpr Kind kind_of() {
  if (std::is_void_v<T>) return Kind::kVoid;
  if (std::is_pointer_v<T>) return Kind::kPointer;
  if (std::is_integral_v<T> || std::is_enum_v<T>) return Kind::kInteger;
  return std::is_floating_point_v<T> ? Kind::kFloating : Kind::kClass;
}

template <typename Own, typename Real>
constexpr bool same_parameter() {
  if constexpr (std::is_void_v<Own> || std::is_void_v<Real>) {
    return std::is_void_v<Own> && std::is_void_v<Real>;
  } else {
    return kind_of<Own>() == kind_of<Real>() && sizeof(Own) == sizeof(Real) &&
           alignof(Own) == alignof(Real) && std::is_trivially_copyable_v<Own> &&
           std::is_trivially_copyable_v<Real>;
  }
}

template <typename Own, typename Real>
struct SameAbi : std::false_type {};

template <typename R, typename... A, typename RealR, typename... RealA>
requires(sizeof...(A) == sizeof...(RealA)) struct SameAbi<R (*)(A...), RealR (*)(RealA...)>
    : std::bool_constant<same_parameter<R, RealR>() && (same_parameter<A, RealA>() && ...)> {
};

template <typename Own, typename Real>
constexpr bool same_abi() {
  return SameAbi<std::remove_cv_t<Own>, std::remove_cv_t<Real>>::value;
}

}  // namespace kolo::test
