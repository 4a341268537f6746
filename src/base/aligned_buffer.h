// Memory for kernels: 64-byte aligned, with one spare vector behind the end so that a full-width load of the last
// elements stays inside the allocation.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "base/checked.h"

namespace regard {

inline constexpr size_t kBufferAlignment = 64;
inline constexpr size_t kBufferPadding = 64;

/// Many buffers side by side in large pieces of memory that ask for huge pages. For data that is streamed whole again and
/// again, as weights and long caches are for every token: walking page tables of 4 KiB costs an eighth of the memory's rate and
/// more. A piece lives as long as the arena or a buffer in it. Not thread-safe.
class Arena {
 public:
  explicit Arena(size_t piece_bytes = size_t{32} << 20) : piece_bytes_(piece_bytes) {}

  /// `bytes` of memory aligned to kBufferAlignment and what keeps them alive. Errors: kResourceExhausted.
  std::pair<void*, std::shared_ptr<void>> take(size_t bytes) {
    constexpr size_t kHugePage = size_t{2} << 20;
    const auto whole = checked_round_up<size_t>(bytes, kBufferAlignment);
    if (!whole || !checked_add<size_t>(*whole, kHugePage)) fail(Code::kResourceExhausted, "[Arena] no memory for {} bytes", bytes);
    if (piece_ == nullptr || *whole > size_ - used_) {
      const size_t size = *checked_round_up<size_t>(std::max(*whole, piece_bytes_), kHugePage);
      void* memory = std::aligned_alloc(kHugePage, size);
      if (memory == nullptr) fail(Code::kResourceExhausted, "[Arena] no memory for {} bytes", size);
      piece_ = std::shared_ptr<void>(memory, [](void* p) { std::free(p); });
      ::madvise(memory, size, MADV_HUGEPAGE);  // advice: whether there are huge pages is the system's affair
      size_ = size;
      used_ = 0;
    }
    void* begin = static_cast<char*>(piece_.get()) + used_;
    used_ += *whole;
    return {begin, piece_};
  }

 private:
  std::shared_ptr<void> piece_;
  size_t piece_bytes_, size_ = 0, used_ = 0;
};

/// `size` elements of a trivial type, not initialised. Moving is cheap, copying is left out on purpose.
template <class T>
class AlignedBuffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  AlignedBuffer() = default;

  /// Errors: kResourceExhausted with the number of bytes when the memory is not to be had.
  explicit AlignedBuffer(size_t size) : size_(size) {
    const auto bytes = checked_mul<size_t>(size, sizeof(T));
    const auto padded = bytes ? checked_add<size_t>(*bytes, kBufferPadding) : bytes;
    const auto whole = padded ? checked_round_up<size_t>(*padded, kBufferAlignment) : padded;
    void* memory = whole ? std::aligned_alloc(kBufferAlignment, *whole) : nullptr;
    if (memory == nullptr) fail(Code::kResourceExhausted, "[AlignedBuffer] no memory for {} elements of {} bytes", size, sizeof(T));
    data_.reset(static_cast<T*>(memory));
  }

  /// The same inside an arena.
  AlignedBuffer(size_t size, Arena& arena) : size_(size) {
    const auto bytes = checked_mul<size_t>(size, sizeof(T));
    const auto padded = bytes ? checked_add<size_t>(*bytes, kBufferPadding) : bytes;
    if (!padded) fail(Code::kResourceExhausted, "[AlignedBuffer] no memory for {} elements of {} bytes", size, sizeof(T));
    auto [memory, owner] = arena.take(*padded);
    data_ = std::unique_ptr<T[], Free>(static_cast<T*>(memory), Free{std::move(owner)});
  }

  AlignedBuffer(AlignedBuffer&& other) noexcept : data_(std::move(other.data_)), size_(std::exchange(other.size_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    data_ = std::move(other.data_);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }

  T* data() noexcept { return data_.get(); }
  const T* data() const noexcept { return data_.get(); }
  size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  T& operator[](size_t i) noexcept { return data_[i]; }
  const T& operator[](size_t i) const noexcept { return data_[i]; }
  T* begin() noexcept { return data(); }
  T* end() noexcept { return data() + size_; }
  const T* begin() const noexcept { return data(); }
  const T* end() const noexcept { return data() + size_; }

 private:
  struct Free {
    std::shared_ptr<void> owner;  // of an arena's piece; null: the memory is our own
    void operator()(T* p) const noexcept {
      if (owner == nullptr) std::free(p);
    }
  };
  std::unique_ptr<T[], Free> data_;
  size_t size_ = 0;
};

}  // namespace regard
