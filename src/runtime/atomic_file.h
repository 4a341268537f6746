// Writing a file so that its name always shows a complete one, the old or the new, whatever moment the machine stops.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>

#include "base/result.h"

namespace regard {

/// The system calls that AtomicFile makes, one to one and with their errno, so that a test can let each of them fail.
class FileLayer {
 public:
  virtual ~FileLayer();
  virtual int open(const char* path, int flags, mode_t mode);
  virtual ssize_t write(int descriptor, const void* data, size_t size);
  virtual int fsync(int descriptor);
  virtual int close(int descriptor);
  virtual int rename(const char* from, const char* to);
  virtual int unlink(const char* path);
};
FileLayer& system_file_layer();

/// What to do when the name is taken.
enum class Overwrite { kRefuse, kReplace };

/// A file in the making: written beside its final name under a name of its own, and renamed at commit(). Without a commit,
/// or when anything fails, the temporary file is removed and what was there before stays.
/// A symbolic link is followed and its target replaced. A device or pipe (such as /dev/stdout) cannot be replaced, so it is
/// written to directly.
/// Errors: kIo with the system's reason (disk full, permission), kNotFound (no such directory), kInvalidArgument (a directory;
/// the name is taken and `overwrite` is kRefuse).
class AtomicFile {
 public:
  static Result<AtomicFile> create(const std::string& path, Overwrite overwrite = Overwrite::kReplace, FileLayer& layer = system_file_layer());

  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  Result<Done> write(std::span<const std::byte> bytes);

  /// Makes the bytes durable, then the name. After a success the file survives a power cut.
  Result<Done> commit();

 private:
  AtomicFile(FileLayer& layer, std::string path) : layer_(&layer), path_(std::move(path)) {}
  Failure give_up(const char* step, int error);
  Result<Done> sync_directory();

  FileLayer* layer_;
  std::string path_;       // the final name
  std::string temporary_;  // empty when written directly or after the rename
  int descriptor_ = -1;
  bool direct_ = false;
};

/// The three steps in one.
Result<Done> write_file(const std::string& path, std::span<const std::byte> bytes, Overwrite overwrite = Overwrite::kReplace,
                        FileLayer& layer = system_file_layer());

}  // namespace regard
