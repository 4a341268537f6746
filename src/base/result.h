// What a parser returns: the value, or why the bytes were refused. Parsers do not throw, so that a fuzz target sees every
// refusal as an ordinary return.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace regard {

struct Failure {
  Code code = Code::kCorruptData;
  std::string message;
};

/// A Failure with a formatted message; converts to any Result<T>.
template <class... Args>
Failure failure(Code code, fmt::format_string<Args...> format, Args&&... args) {
  return {code, fmt::format(format, std::forward<Args>(args)...)};
}
template <class... Args>
Failure corrupt(fmt::format_string<Args...> format, Args&&... args) {
  return {Code::kCorruptData, fmt::format(format, std::forward<Args>(args)...)};
}

/// Either a T or a Failure. Result<Done> is for functions that return nothing but may fail.
struct Done {};
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Failure failure) : state_(std::in_place_index<1>, std::move(failure)) {}

  explicit operator bool() const noexcept { return state_.index() == 0; }
  T& operator*() & { return std::get<0>(state_); }
  const T& operator*() const& { return std::get<0>(state_); }
  // By value, so that a range-for over *function() does not walk a destroyed temporary.
  T operator*() && { return std::get<0>(std::move(state_)); }
  T* operator->() { return &std::get<0>(state_); }
  const T* operator->() const { return &std::get<0>(state_); }
  const Failure& failure() const { return std::get<1>(state_); }

  /// The value, or the failure thrown as Error: the step from a parser to the public interface.
  T value_or_throw() && {
    if (!*this) throw_error(failure().code, failure().message);
    return std::get<0>(std::move(state_));
  }

 private:
  std::variant<T, Failure> state_;
};

}  // namespace regard

// Returns the failure of `expr` from the enclosing function, or binds its value: REGARD_TRY(auto n, read_count(r));
#define REGARD_TRY(declaration, expr)                                   \
  auto REGARD_TRY_NAME(result_, __LINE__) = (expr);                     \
  if (!REGARD_TRY_NAME(result_, __LINE__)) return REGARD_TRY_NAME(result_, __LINE__).failure(); \
  declaration = *std::move(REGARD_TRY_NAME(result_, __LINE__))
#define REGARD_TRY_NAME(a, b) REGARD_TRY_JOIN(a, b)
#define REGARD_TRY_JOIN(a, b) a##b
// The same for a Result whose value is not needed.
#define REGARD_CHECK(expr)                                              \
  do {                                                                  \
    auto result_checked = (expr);                                       \
    if (!result_checked) return result_checked.failure();               \
  } while (false)
