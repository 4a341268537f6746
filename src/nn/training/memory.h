// The memory of a training step: laid out once for a shape, then only pointed into. Modules say with plan() how much they need
// and take it in the same order: what they save for backward stays until the step ends, scratch is used again by the next module.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/aligned_buffer.h"
#include "base/check.h"

namespace regard::nn::training {

/// Bytes that a module needs.
struct MemoryPlan {
  size_t saved = 0;    ///< from forward to backward
  size_t scratch = 0;  ///< while one of its functions runs
};

/// Modules side by side: what is saved adds up, scratch serves one after the other.
inline MemoryPlan operator+(MemoryPlan a, MemoryPlan b) { return {a.saved + b.saved, std::max(a.scratch, b.scratch)}; }

/// A stretch of memory that is taken from the front. Handed on by value: what a callee takes is free again when it returns.
/// Over a null base it only measures.
class Memory {
 public:
  Memory() = default;
  Memory(std::byte* base, size_t bytes) : base_(base), size_(bytes) {}

  /// `count` elements, aligned to 64 bytes and not initialised; null when measuring.
  /// Errors: kInternal when the plan was too small.
  template <class T>
  T* take(int64_t count) {
    const auto bytes = checked_mul<size_t>(static_cast<size_t>(count), sizeof(T));
    const auto whole = bytes ? checked_round_up<size_t>(*bytes, kBufferAlignment) : bytes;
    const auto end = whole ? checked_add<size_t>(used_, *whole) : whole;
    if (!end) fail(Code::kResourceExhausted, "[Memory] no memory for {} elements of {} bytes", count, sizeof(T));
    std::byte* begin = base_ == nullptr ? nullptr : base_ + used_;
    used_ = *end;
    if (base_ != nullptr && used_ > size_) fail(Code::kInternal, "[Memory] {} bytes were planned, {} are needed", size_, used_);
    return reinterpret_cast<T*>(begin);
  }

  size_t used() const noexcept { return used_; }

 private:
  std::byte* base_ = nullptr;
  size_t size_ = 0, used_ = 0;
};

/// `elements` on from p; null stays null.
template <class T>
T* ahead(T* p, int64_t elements) {
  return p == nullptr ? nullptr : p + elements;
}

}  // namespace regard::nn::training
