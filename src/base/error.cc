#include "regard/error.h"

#include "base/check.h"
#include "regard/version.h"

namespace regard {

const char* version() noexcept { return "0.1.0"; }

Error::~Error() = default;

std::string_view code_name(Code code) noexcept {
  switch (code) {
    case Code::kFailedCheck: return "failed_check";
    case Code::kInvalidArgument: return "invalid_argument";
    case Code::kNotFound: return "not_found";
    case Code::kCorruptData: return "corrupt_data";
    case Code::kResourceExhausted: return "resource_exhausted";
    case Code::kUnavailable: return "unavailable";
    case Code::kNumeric: return "numeric";
    case Code::kUnsupported: return "unsupported";
    case Code::kIo: return "io";
    case Code::kInternal: return "internal";
    case Code::kCancelled: return "cancelled";
  }
  return "internal";
}

// what() ends at a zero byte; one that a file brought with it must not cut the sentence.
void throw_error(Code code, const std::string& message) {
  std::string whole = message;
  for (size_t at = whole.find('\0'); at != std::string::npos; at = whole.find('\0', at)) whole.replace(at, 1, "\\0");
  throw Error(code, whole);
}

}  // namespace regard
