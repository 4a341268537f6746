// Scratch memory for kernels, which must not allocate: the caller reserves one arena per thread before the parallel part.
#pragma once

#include <cstddef>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/check.h"

namespace regard {

/// One arena for each thread of a pool. Arenas grow and never shrink, so that a loop of equal steps allocates once.
/// Threads: reserve() by the caller alone; then each thread uses its own arena. Belongs to one session, not to two calls
/// that may run at once.
class Workspace {
 public:
  /// Makes every arena in [0, threads) hold at least `bytes`. An arena that grows loses what it held; the pointers of one
  /// that does not stay valid. Errors: kResourceExhausted.
  void reserve(int threads, size_t bytes) {
    require(threads >= 0, "[Workspace::reserve] {} threads", threads);
    if (arenas_.size() < static_cast<size_t>(threads)) arenas_.resize(static_cast<size_t>(threads));
    for (int t = 0; t < threads; ++t) {
      AlignedBuffer<std::byte>& arena = arenas_[static_cast<size_t>(t)];
      if (arena.size() >= bytes) continue;
      arena = {};  // first give back, then take: the peak is one arena, not two
      arena = AlignedBuffer<std::byte>(bytes);
    }
  }

  /// The arena of `thread`, aligned to 64 bytes and not initialised.
  std::byte* arena(int thread) noexcept { return arenas_[static_cast<size_t>(thread)].data(); }
  size_t arena_bytes(int thread) const noexcept { return arenas_[static_cast<size_t>(thread)].size(); }

  /// All arenas together.
  size_t total_bytes() const noexcept {
    size_t total = 0;
    for (const auto& arena : arenas_) total += arena.size();
    return total;
  }

 private:
  std::vector<AlignedBuffer<std::byte>> arenas_;
};

/// Cuts an arena into arrays, each aligned to 64 bytes. Run it once over a null base to learn how many bytes are needed, and
/// again over the arena to get the pointers: size and layout then cannot disagree.
class Carver {
 public:
  explicit Carver(std::byte* base) noexcept : base_(base) {}

  /// `count` elements, or nullptr when measuring.
  template <class T>
  T* take(size_t count) {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= kBufferAlignment);
    const auto bytes = checked_mul<size_t>(count, sizeof(T));
    const auto whole = bytes ? checked_round_up<size_t>(*bytes, kBufferAlignment) : bytes;
    const auto end = whole ? checked_add<size_t>(used_, *whole) : whole;
    if (!end) fail(Code::kResourceExhausted, "[Carver] no memory for {} elements of {} bytes", count, sizeof(T));
    T* begin = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ = *end;
    return begin;
  }

  size_t used() const noexcept { return used_; }

 private:
  std::byte* base_;
  size_t used_ = 0;
};

}  // namespace regard
