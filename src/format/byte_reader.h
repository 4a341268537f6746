// The one way to walk through the bytes of a binary file: a position, what remains, and getters that refuse to step over
// the end. Little-endian, as every format here is.
#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "base/result.h"
#include "format/byte_source.h"

namespace regard {

static_assert(std::endian::native == std::endian::little, "numbers are read by copying their bytes");

/// Reads a ByteSource in order through a small buffer. Every getter says how much it may take and fails, with the offset,
/// when fewer bytes remain; after a failure the position stays where it was.
class ByteReader {
 public:
  explicit ByteReader(const ByteSource& source) : source_(source), size_(source.size()) {}

  uint64_t position() const noexcept { return position_; }
  uint64_t remaining() const noexcept { return size_ - position_; }

  /// Goes to `position`, which may be the end.
  Result<Done> seek(uint64_t position) {
    if (position > size_) return corrupt("offset {} is behind the end of {} bytes", position, size_);
    position_ = position;
    return Done{};
  }

  Result<Done> skip(uint64_t bytes) {
    if (bytes > remaining()) return too_short(bytes);
    position_ += bytes;
    return Done{};
  }

  /// One number, for example number<uint32_t>().
  template <class T>
    requires std::is_arithmetic_v<T>
  Result<T> number() {
    if (sizeof(T) > remaining()) return too_short(sizeof(T));
    if (position_ < buffer_begin_ || position_ + sizeof(T) > buffer_begin_ + buffer_.size()) REGARD_CHECK(fill());
    T value;
    std::memcpy(&value, buffer_.data() + (position_ - buffer_begin_), sizeof(T));
    position_ += sizeof(T);
    return value;
  }

  /// Fills `out`.
  Result<Done> bytes(std::span<uint8_t> out) {
    if (out.size() > remaining()) return too_short(out.size());
    const uint64_t buffer_end = buffer_begin_ + buffer_.size();
    if (position_ >= buffer_begin_ && position_ <= buffer_end && out.size() <= buffer_end - position_) {
      if (!out.empty()) std::memcpy(out.data(), buffer_.data() + (position_ - buffer_begin_), out.size());
    } else if (out.size() < kBufferBytes / 4) {
      REGARD_CHECK(fill());
      std::memcpy(out.data(), buffer_.data(), out.size());
    } else {
      REGARD_CHECK(source_.read_at(position_, out));
    }
    position_ += out.size();
    return Done{};
  }

  /// A length of type Length, then that many bytes: at most `max`, and never more memory than the file has bytes left.
  template <std::unsigned_integral Length>
  Result<std::string> string(uint64_t max) {
    const uint64_t start = position_;
    REGARD_TRY(const uint64_t length, number<Length>());
    if (length > max || length > remaining()) {
      const uint64_t left = remaining();
      position_ = start;
      return corrupt("offset {}: a text of {} bytes, where {} remain and {} are allowed", start, length, left, max);
    }
    std::string text(static_cast<size_t>(length), '\0');
    const auto read = bytes({reinterpret_cast<uint8_t*>(text.data()), text.size()});
    if (!read) {
      position_ = start;
      return read.failure();
    }
    return text;
  }

 private:
  // Large enough that reading a header of megabytes costs few calls, small against any model.
  static constexpr size_t kBufferBytes = size_t{1} << 16;

  Failure too_short(uint64_t wanted) const {
    return corrupt("offset {}: the file ends {} bytes early", position_, wanted - remaining());
  }

  Result<Done> fill() {
    buffer_.resize(static_cast<size_t>(std::min<uint64_t>(kBufferBytes, remaining())));
    buffer_begin_ = position_;
    const auto read = source_.read_at(position_, buffer_);
    if (!read) buffer_.clear();
    return read;
  }

  const ByteSource& source_;
  uint64_t size_;
  uint64_t position_ = 0;
  uint64_t buffer_begin_ = 0;
  std::vector<uint8_t> buffer_;
};

}  // namespace regard
