// A file on disk as a ByteSource.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "format/byte_source.h"
#include "runtime/file.h"

namespace regard {

/// Reads from an open file. Its size is the one that the file had when it was opened; failures name the path.
class FileSource final : public ByteSource {
 public:
  explicit FileSource(File file) : file_(std::move(file)) {}

  static Result<std::unique_ptr<FileSource>> open(const std::string& path) {
    REGARD_TRY(File file, File::open(path));
    return std::make_unique<FileSource>(std::move(file));
  }

  uint64_t size() const override { return file_.size(); }
  Result<Done> read_at(uint64_t offset, std::span<uint8_t> out) const override {
    return file_.read_at(offset, std::as_writable_bytes(out));
  }

 private:
  File file_;
};

/// A file in memory, mapped or read.
class FileBytesSource final : public ByteSource {
 public:
  explicit FileBytesSource(FileBytes bytes) : bytes_(std::move(bytes)) {}

  uint64_t size() const override { return bytes_.bytes().size(); }
  Result<Done> read_at(uint64_t offset, std::span<uint8_t> out) const override {
    return memory().read_at(offset, out);
  }
  std::span<const uint8_t> view(uint64_t offset, uint64_t bytes) const override { return memory().view(offset, bytes); }

 private:
  MemorySource memory() const {
    const std::span<const std::byte> all = bytes_.bytes();
    return MemorySource({reinterpret_cast<const uint8_t*>(all.data()), all.size()});
  }

  FileBytes bytes_;
};

}  // namespace regard
