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

void throw_error(Code code, const std::string& message) { throw Error(code, message); }

}  // namespace regard
