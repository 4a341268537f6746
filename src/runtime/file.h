// Reading files that somebody else made. Every reader of a file format starts from a FileBytes or a File.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/aligned_buffer.h"
#include "base/result.h"

namespace regard {

/// An open regular file whose size was taken once, when it was opened: what is appended later is not seen, and what is cut
/// off later is an error and not a short answer.
/// Threads: read_at() may be called from several at once.
class File {
 public:
  /// Fails with kNotFound (no such file), kInvalidArgument (a directory, pipe, socket or device, a name with a zero byte),
  /// kResourceExhausted (too many open files) or kIo (permission and everything else). Never waits for a pipe's writer.
  static Result<File> open(const std::string& path);

  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  uint64_t size() const noexcept { return size_; }
  const std::string& path() const noexcept { return path_; }
  int descriptor() const noexcept { return descriptor_; }

  /// Fills `out` from byte `offset` on. Fails with kCorruptData when the range does not lie inside size(), and with kIo when
  /// reading fails or the file has become shorter.
  Result<Done> read_at(uint64_t offset, std::span<std::byte> out) const;

 private:
  File(int descriptor, uint64_t size, std::string path) : descriptor_(descriptor), size_(size), path_(std::move(path)) {}

  int descriptor_;
  uint64_t size_;
  std::string path_;
};

/// The bytes of a whole file, read or mapped. The memory goes when this object goes.
class FileBytes {
 public:
  FileBytes() = default;
  explicit FileBytes(AlignedBuffer<std::byte> buffer) : buffer_(std::move(buffer)) {}
  FileBytes(FileBytes&& other) noexcept;
  FileBytes& operator=(FileBytes&& other) noexcept;
  ~FileBytes();

  std::span<const std::byte> bytes() const noexcept {
    return mapping_ != nullptr ? std::span<const std::byte>(static_cast<const std::byte*>(mapping_), mapping_size_)
                               : std::span<const std::byte>(buffer_.data(), buffer_.size());
  }
  bool mapped() const noexcept { return mapping_ != nullptr; }

 private:
  friend Result<FileBytes> map_file(const File& file);

  AlignedBuffer<std::byte> buffer_;
  void* mapping_ = nullptr;
  size_t mapping_size_ = 0;
};

/// Reads all of `file` into memory: the default, because nothing that happens to the file afterwards matters.
/// Fails with kResourceExhausted when it is larger than `max_bytes` or than the memory, else as read_at().
Result<FileBytes> read_file(const File& file, uint64_t max_bytes = UINT64_MAX);
Result<FileBytes> read_file(const std::string& path, uint64_t max_bytes = UINT64_MAX);

/// Maps `file` privately and read-only: no copy, pages come in when touched. Only for callers that asked for it, because a
/// mapped file which somebody cuts short raises SIGBUS at the next touch, and nothing here can turn that into an error.
Result<FileBytes> map_file(const File& file);

}  // namespace regard
