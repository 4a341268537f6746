// Integer arithmetic on numbers from outside: every sum and product says whether it fitted.
#pragma once

#include <concepts>
#include <optional>
#include <utility>

namespace regard {

template <std::integral T>
constexpr std::optional<T> checked_add(T a, T b) noexcept {
  T sum{};
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

template <std::integral T>
constexpr std::optional<T> checked_mul(T a, T b) noexcept {
  T product{};
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

/// `value` rounded up to a multiple of `step` (> 0), or nothing when that does not fit.
template <std::unsigned_integral T>
constexpr std::optional<T> checked_round_up(T value, T step) noexcept {
  const T rest = value % step;
  return rest == 0 ? std::optional<T>(value) : checked_add<T>(value, step - rest);
}

/// `value` as another integer type, or nothing when it does not fit.
template <std::integral To, std::integral From>
constexpr std::optional<To> checked_cast(From value) noexcept {
  if (!std::in_range<To>(value)) return std::nullopt;
  return static_cast<To>(value);
}

template <std::integral T>
constexpr T ceil_div(T a, T b) noexcept {
  return (a + b - 1) / b;
}

}  // namespace regard
