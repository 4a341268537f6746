// Memory for kernels: 64-byte aligned, with one spare vector behind the end so that a full-width load of the last
// elements stays inside the allocation.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

#include "base/check.h"
#include "base/checked.h"

namespace regard {

inline constexpr size_t kBufferAlignment = 64;
inline constexpr size_t kBufferPadding = 64;

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
    void operator()(T* p) const noexcept { std::free(p); }
  };
  std::unique_ptr<T[], Free> data_;
  size_t size_ = 0;
};

}  // namespace regard
