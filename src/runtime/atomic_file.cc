#include "runtime/atomic_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <system_error>
#include <utility>

#include "regard/runtime.h"

namespace regard {
namespace {

std::string reason(int error) { return std::generic_category().message(error); }

std::string directory_of(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// In the same directory, because a rename does not cross file systems; hidden, and random so that two writers do not meet.
std::string temporary_name(const std::string& path) {
  uint64_t random = 0;
  if (getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random) {
    random = static_cast<uint64_t>(getpid()) << 32 ^ reinterpret_cast<uintptr_t>(&random);
  }
  const size_t slash = path.find_last_of('/');
  const size_t begin = slash == std::string::npos ? 0 : slash + 1;
  // A name may have 255 bytes; the front of the final one is enough to recognise it.
  return fmt::format("{}.{}.{:016x}.tmp", path.substr(0, begin), path.substr(begin, 200), random);
}

Code code_of_create_error(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR: return Code::kNotFound;
    case EISDIR:
    case ENAMETOOLONG: return Code::kInvalidArgument;
    case EMFILE:
    case ENFILE: return Code::kResourceExhausted;
    default: return Code::kIo;
  }
}

}  // namespace

FileLayer::~FileLayer() = default;
int FileLayer::open(const char* path, int flags, mode_t mode) { return ::open(path, flags, mode); }
ssize_t FileLayer::write(int descriptor, const void* data, size_t size) { return ::write(descriptor, data, size); }
int FileLayer::fsync(int descriptor) { return ::fsync(descriptor); }
int FileLayer::close(int descriptor) { return ::close(descriptor); }
int FileLayer::rename(const char* from, const char* to) { return ::rename(from, to); }
int FileLayer::unlink(const char* path) { return ::unlink(path); }

FileLayer& system_file_layer() {
  static FileLayer layer;
  return layer;
}

Result<AtomicFile> AtomicFile::create(const std::string& path, Overwrite overwrite, FileLayer& layer) {
  if (path.empty() || path.find('\0') != std::string::npos) {
    return failure(Code::kInvalidArgument, "[AtomicFile] the file name is empty or has a zero byte in it");
  }
  AtomicFile file(layer, path);
  struct stat status {};
  const bool there = stat(path.c_str(), &status) == 0;
  if (there && S_ISDIR(status.st_mode)) return failure(Code::kInvalidArgument, "[AtomicFile] '{}' is a directory", path);
  if (there && !S_ISREG(status.st_mode)) {
    file.direct_ = true;
    // A pipe without a reader waits here; a signal ends the waiting.
    file.descriptor_ = layer.open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY, 0);
    if (file.descriptor_ < 0 && errno == EINTR) return failure(Code::kCancelled, "[AtomicFile] stopped while waiting to open '{}'", path);
    if (file.descriptor_ < 0) return failure(code_of_create_error(errno), "[AtomicFile] cannot open '{}': {}", path, reason(errno));
    return file;
  }
  if (there && overwrite == Overwrite::kRefuse) {
    return failure(Code::kInvalidArgument, "[AtomicFile] '{}' exists already; choose another name or allow it to be replaced", path);
  }
  struct stat link {};
  if (there && lstat(path.c_str(), &link) == 0 && S_ISLNK(link.st_mode)) {
    const std::unique_ptr<char, void (*)(void*)> target(realpath(path.c_str(), nullptr), ::free);
    if (target != nullptr) file.path_ = target.get();
  }
  file.temporary_ = temporary_name(file.path_);
  // A file that is replaced keeps its permissions; a new one gets what the umask leaves.
  const mode_t mode = there ? status.st_mode & 0777 : 0666;
  do {
    file.descriptor_ = layer.open(file.temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  } while (file.descriptor_ < 0 && errno == EINTR);
  if (file.descriptor_ < 0) {
    const int error = errno;
    file.temporary_.clear();  // not ours to remove
    return failure(code_of_create_error(error), "[AtomicFile] cannot create a file beside '{}': {}", path, reason(error));
  }
  if (there) static_cast<void>(fchmod(file.descriptor_, mode));
  return file;
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : layer_(other.layer_),
      path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      descriptor_(std::exchange(other.descriptor_, -1)),
      direct_(other.direct_) {}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) layer_->close(descriptor_);
  if (!temporary_.empty()) layer_->unlink(temporary_.c_str());
}

Failure AtomicFile::give_up(const char* step, int error) {
  if (descriptor_ >= 0) layer_->close(std::exchange(descriptor_, -1));
  if (!temporary_.empty()) layer_->unlink(std::exchange(temporary_, {}).c_str());
  return failure(Code::kIo, "[AtomicFile] cannot {} '{}': {}{}", step, path_, reason(error),
                 direct_ ? "" : "; what was there before is unchanged");
}

Result<Done> AtomicFile::write(std::span<const std::byte> bytes) {
  if (descriptor_ < 0) return failure(Code::kIo, "[AtomicFile] '{}' is closed after an earlier failure", path_);
  while (!bytes.empty()) {
    const ssize_t put = layer_->write(descriptor_, bytes.data(), std::min<size_t>(bytes.size(), size_t{1} << 30));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return give_up("write", errno);
    if (put == 0) return give_up("write", ENOSPC);  // a write that makes no progress would loop for ever
    bytes = bytes.subspan(static_cast<size_t>(put));
  }
  return Done{};
}

Result<Done> AtomicFile::commit() {
  if (descriptor_ < 0) return failure(Code::kIo, "[AtomicFile] '{}' is closed after an earlier failure", path_);
  int status = 0;
  do {
    status = direct_ ? 0 : layer_->fsync(descriptor_);
  } while (status != 0 && errno == EINTR);
  if (status != 0) return give_up("make durable", errno);
  // Linux closes the descriptor even when it reports EINTR, and what close() reports late (NFS) is a failed write.
  if (layer_->close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR) return give_up("close", errno);
  if (direct_) return Done{};
  if (layer_->rename(temporary_.c_str(), path_.c_str()) != 0) return give_up("rename the new file to", errno);
  temporary_.clear();
  return sync_directory();
}

// The new name must be durable too. From here on the new file is in its place, whatever else fails.
Result<Done> AtomicFile::sync_directory() {
  const std::string directory = directory_of(path_);
  const int descriptor = layer_->open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  int error = descriptor < 0 ? errno : 0;
  if (descriptor >= 0) {
    if (layer_->fsync(descriptor) != 0) error = errno;
    layer_->close(descriptor);
  }
  // Some file systems have no fsync for directories, and a directory may be writable but not readable: nothing more can be done.
  if (error == 0 || error == EINVAL || error == EACCES) return Done{};
  return failure(Code::kIo, "[AtomicFile] '{}' is written, but its directory entry may not survive a power cut: {}", path_, reason(error));
}

Result<Done> write_file(const std::string& path, std::span<const std::byte> bytes, Overwrite overwrite, FileLayer& layer) {
  REGARD_TRY(AtomicFile file, AtomicFile::create(path, overwrite, layer));
  REGARD_CHECK(file.write(bytes));
  return file.commit();
}

void save_file(const std::string& path, std::string_view bytes) {
  write_file(path, std::as_bytes(std::span(bytes))).value_or_throw();
}

}  // namespace regard
