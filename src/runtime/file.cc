#include "runtime/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/checked.h"

namespace regard {
namespace {

std::string reason(int error) { return std::generic_category().message(error); }

Code code_of_open_error(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR: return Code::kNotFound;
    case ENAMETOOLONG:
    case ENXIO: return Code::kInvalidArgument;  // a socket, or a device without a driver
    case EMFILE:
    case ENFILE:
    case ENOMEM: return Code::kResourceExhausted;
    default: return Code::kIo;
  }
}

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "of an unknown kind";
}

}  // namespace

Result<File> File::open(const std::string& path) {
  if (path.empty()) return failure(Code::kInvalidArgument, "[File] the file name is empty");
  if (path.find('\0') != std::string::npos) return failure(Code::kInvalidArgument, "[File] the file name has a zero byte in it");
  // Without O_NONBLOCK a pipe would wait here for a writer; for regular files it changes nothing.
  int descriptor;
  do {
    descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  } while (descriptor < 0 && errno == EINTR);
  if (descriptor < 0) {
    const int error = errno;
    if (error == ENXIO) return failure(code_of_open_error(error), "[File] '{}' is a socket or a device; give a regular file", path);
    return failure(code_of_open_error(error), "[File] cannot open '{}': {}", path, reason(error));
  }
  struct stat status {};
  File file(descriptor, 0, path);  // owns the descriptor from here on
  if (fstat(descriptor, &status) != 0) return failure(Code::kIo, "[File] cannot ask about '{}': {}", path, reason(errno));
  if (!S_ISREG(status.st_mode)) {
    return failure(Code::kInvalidArgument, "[File] '{}' is {}; give a regular file", path, kind_of(status.st_mode));
  }
  file.size_ = static_cast<uint64_t>(status.st_size);
  return file;
}

File::File(File&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_), path_(std::move(other.path_)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<Done> File::read_at(uint64_t offset, std::span<std::byte> out) const {
  const auto end = checked_add<uint64_t>(offset, out.size());
  if (!end || *end > size_) {
    return corrupt("[File] '{}' has {} bytes; {} bytes at {} were asked for", path_, size_, out.size(), offset);
  }
  size_t filled = 0;
  while (filled < out.size()) {
    const size_t step = std::min<size_t>(out.size() - filled, size_t{1} << 30);  // one call moves less than 2 GiB
    const ssize_t got = pread(descriptor_, out.data() + filled, step, static_cast<off_t>(offset + filled));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failure(Code::kIo, "[File] cannot read '{}': {}", path_, reason(errno));
    if (got == 0) {
      return failure(Code::kIo, "[File] '{}' changed while it was read: it had {} bytes and ends at {} now", path_, size_, offset + filled);
    }
    filled += static_cast<size_t>(got);
  }
  return Done{};
}

FileBytes::FileBytes(FileBytes&& other) noexcept
    : buffer_(std::exchange(other.buffer_, {})),
      mapping_(std::exchange(other.mapping_, nullptr)),
      mapping_size_(std::exchange(other.mapping_size_, 0)) {}

FileBytes& FileBytes::operator=(FileBytes&& other) noexcept {
  std::swap(buffer_, other.buffer_);
  std::swap(mapping_, other.mapping_);
  std::swap(mapping_size_, other.mapping_size_);
  return *this;
}

FileBytes::~FileBytes() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_size_);
}

Result<FileBytes> read_file(const File& file, uint64_t max_bytes) {
  if (file.size() > max_bytes) {
    return failure(Code::kResourceExhausted, "[read_file] '{}' has {} bytes; at most {} are read here", file.path(), file.size(), max_bytes);
  }
  try {
    AlignedBuffer<std::byte> buffer(file.size());
    REGARD_CHECK(file.read_at(0, {buffer.data(), buffer.size()}));
    return FileBytes(std::move(buffer));
  } catch (const Error&) {
    return failure(Code::kResourceExhausted, "[read_file] '{}' has {} bytes, and there is no memory for them", file.path(), file.size());
  }
}

Result<FileBytes> read_file(const std::string& path, uint64_t max_bytes) {
  REGARD_TRY(const File file, File::open(path));
  return read_file(file, max_bytes);
}

Result<FileBytes> map_file(const File& file) {
  FileBytes bytes;
  if (file.size() == 0) return bytes;  // the system maps no empty file; an empty buffer is the same to a reader
  void* mapping = mmap(nullptr, file.size(), PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
  if (mapping == MAP_FAILED) {
    const int error = errno;
    return failure(error == ENOMEM ? Code::kResourceExhausted : Code::kIo, "[map_file] cannot map the {} bytes of '{}': {}", file.size(),
                   file.path(), reason(error));
  }
  bytes.mapping_ = mapping;
  bytes.mapping_size_ = file.size();
  return bytes;
}

}  // namespace regard
