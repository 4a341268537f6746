// How often a long loop of a test goes round: under a sanitizer every access costs several times as much.
#pragma once

#include <algorithm>
#include <cstdint>

namespace regard {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#else
inline constexpr bool kSanitized = false;
#endif

/// `n`, and a quarter of it under a sanitizer. For random cases and rows beyond those that reach every path; every kind of
/// input stays, and the release tests have gone through all of them by then.
constexpr int64_t cases(int64_t n) { return kSanitized ? std::max<int64_t>(1, n / 4) : n; }

}  // namespace regard
