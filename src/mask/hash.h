// Hashing by content: a running 64-bit value into which numbers are stirred one after the other.
#pragma once

#include <cstddef>
#include <cstdint>

namespace regard {

class ContentHash {
 public:
  explicit ContentHash(uint64_t seed) : state_(seed ^ 0x9E3779B97F4A7C15u) {}

  /// Order matters: add(a), add(b) differs from add(b), add(a).
  void add(uint64_t value) noexcept {
    state_ = (state_ ^ value) * 0xFF51AFD7ED558CCDu;  // odd, so that no bit of the state is lost
    state_ ^= state_ >> 32;
  }
  template <class T>
  void add_all(const T* values, size_t count) noexcept {
    add(count);
    for (size_t i = 0; i < count; ++i) add(static_cast<uint64_t>(values[i]));
  }
  uint64_t value() const noexcept { return state_; }

 private:
  uint64_t state_;
};

}  // namespace regard
