// The one exception type of the library and the table that maps its codes to what a program, a server or a script shows.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "regard/export.h"

namespace regard {

/// Why a call failed. The numbers are the exit statuses of the command line; see exit_status().
enum class Code {
  kFailedCheck = 1,        ///< the check ran and the answer is "no"
  kInvalidArgument = 2,    ///< usage, shapes, ranges
  kNotFound = 3,           ///< a file, model or tensor that is not there
  kCorruptData = 4,        ///< a file that is there but wrong
  kResourceExhausted = 5,  ///< memory or a stated limit
  kUnavailable = 6,        ///< not ready yet, or shutting down
  kNumeric = 7,            ///< NaN or infinity where a number is needed
  kUnsupported = 8,        ///< valid, but not implemented here
  kIo = 9,                 ///< reading or writing failed
  kInternal = 70,          ///< a fault of this library; please report it
  kCancelled = 130,        ///< stopped on request
};

/// The exit status of a command that ends with `code`: the number of the code itself.
constexpr int exit_status(Code code) noexcept { return static_cast<int>(code); }

/// The name of a code in snake case, for example "invalid_argument".
REGARD_API std::string_view code_name(Code code) noexcept;

/// Thrown by every function of the library that cannot do what it was asked. The message begins with the function in
/// brackets and says what was given, what was expected and what to do.
class REGARD_API Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ~Error() override;

  Code code() const noexcept { return code_; }

 private:
  Code code_;
};

}  // namespace regard
