// Where the bytes of a model file come from: a file on disk or memory. Readers ask for stretches, so that a tensor can be
// read without the rest of its file.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/result.h"

namespace regard {

/// A fixed number of bytes that can be read from any offset.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  /// Fixed for the life of the source.
  virtual uint64_t size() const = 0;

  /// Fills `out` with the bytes from `offset` on. Refused: a stretch that does not lie inside the source, or that the
  /// system fails to deliver whole.
  virtual Result<Done> read_at(uint64_t offset, std::span<uint8_t> out) const = 0;

  /// The stretch itself where the bytes are in memory; empty where they are not, or where it does not lie inside.
  virtual std::span<const uint8_t> view(uint64_t offset, uint64_t bytes) const {
    (void)offset, (void)bytes;
    return {};
  }
};

/// Bytes that somebody else keeps in memory.
class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  uint64_t size() const override { return bytes_.size(); }
  Result<Done> read_at(uint64_t offset, std::span<uint8_t> out) const override {
    if (offset > bytes_.size() || out.size() > bytes_.size() - offset)
      return corrupt("[read_at] {} bytes from offset {} are not inside {} bytes", out.size(), offset, bytes_.size());
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return Done{};
  }
  std::span<const uint8_t> view(uint64_t offset, uint64_t bytes) const override {
    if (offset > bytes_.size() || bytes > bytes_.size() - offset) return {};
    return bytes_.subspan(static_cast<size_t>(offset), static_cast<size_t>(bytes));
  }

 private:
  std::span<const uint8_t> bytes_;
};

}  // namespace regard
