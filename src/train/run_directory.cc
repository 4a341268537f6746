#include "train/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <utility>

namespace regard::train_loop {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr size_t kDigits = 9;

std::string name_of(int64_t step) { return fmt::format("step-{:09}", step); }

// The step of "step-000001000": such names are ours to remove, nothing else in the directory is.
std::optional<int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix) || name.size() < kPrefix.size() + kDigits) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size() || step < 0) return std::nullopt;
  return step;
}

bool is_temporary(std::string_view name) {
  return name.starts_with('.') && name.ends_with(".tmp") &&
         (name.starts_with(".step-") || name.starts_with(".latest") || name.starts_with(".best") || name.starts_with(".train.json.") ||
          name.starts_with(".log.jsonl.") || name.starts_with(".loss."));
}

void remove_all(const std::string& path) {
  std::error_code ignored;  // what cannot be removed now is in the way of nobody and is tried again by the next run
  fs::remove_all(path, ignored);
}

}  // namespace

// Under its own name a checkpoint is whole or not there: what is taken away is renamed first.
void RunDirectory::remove_checkpoint(int64_t step) {
  const std::string doomed = file("." + name_of(step) + ".old.tmp");
  remove_all(doomed);
  layer_->rename(checkpoint(step).c_str(), doomed.c_str());
  remove_all(doomed);
}

Failure RunDirectory::reason(std::string_view what, const std::string& name, int error) const {
  return failure(Code::kIo, "[train] cannot {} '{}': {}", what, name, std::generic_category().message(error));
}

Result<RunDirectory> RunDirectory::open(const std::string& path, FileLayer& layer) {
  if (path.empty()) return failure(Code::kInvalidArgument, "[train] the name of the directory is empty");
  RunDirectory directory(path, layer);
  if (::mkdir(path.c_str(), 0777) != 0 && errno != EEXIST) {
    const int error = errno;
    Failure refused = directory.reason("make the directory", path, error);
    if (error == ENOENT || error == ENOTDIR) refused.code = Code::kNotFound;
    return refused;
  }
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return directory.reason("look at", path, errno);
  if (!S_ISDIR(status.st_mode)) return failure(Code::kInvalidArgument, "[train] '{}' is a file; give the name of a directory", path);
  REGARD_CHECK(directory.lock());
  directory.clean();
  return directory;
}

RunDirectory::RunDirectory(RunDirectory&& other) noexcept
    : path_(std::move(other.path_)), layer_(other.layer_), lock_(std::exchange(other.lock_, -1)) {}

RunDirectory::~RunDirectory() {
  if (lock_ >= 0) ::close(lock_);  // which gives the lock back, as the end of the process does
}

Result<Done> RunDirectory::lock() {
  const std::string name = file("lock");
  lock_ = ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (lock_ < 0) return reason("open", name, errno);
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return reason("lock", name, errno);
    return failure(Code::kUnavailable, "[train] another process trains in '{}'; wait for it or choose another directory", path_);
  }
  return Done{};
}

std::vector<int64_t> RunDirectory::checkpoints() const {
  std::vector<int64_t> steps;
  std::error_code error;
  for (fs::directory_iterator at(path_, error), end; !error && at != end; at.increment(error)) {
    if (const auto step = step_of(at->path().filename().string())) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

void RunDirectory::clean() {
  std::vector<std::string> stale;
  std::error_code error;
  for (fs::directory_iterator at(path_, error), end; !error && at != end; at.increment(error)) {
    if (is_temporary(at->path().filename().string())) stale.push_back(at->path().string());
  }
  for (const std::string& name : stale) remove_all(name);
  const auto newest = latest();
  for (const int64_t step : checkpoints()) {
    if (!newest || step > *newest) remove_checkpoint(step);
  }
}

std::string RunDirectory::checkpoint(int64_t step) const { return file(name_of(step)); }

std::optional<int64_t> RunDirectory::step_of_link(std::string_view name) const {
  std::error_code error;
  const fs::path target = fs::read_symlink(file(name), error);
  if (error) return std::nullopt;
  const auto step = step_of(target.string());
  return step && fs::is_directory(checkpoint(*step), error) ? step : std::nullopt;
}

Result<Done> RunDirectory::sync(const std::string& directory) {
  const int descriptor = layer_->open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  int error = descriptor < 0 ? errno : 0;
  if (descriptor >= 0) {
    if (layer_->fsync(descriptor) != 0) error = errno;
    layer_->close(descriptor);
  }
  if (error == 0 || error == EINVAL) return Done{};  // some file systems have no fsync for directories
  return reason("make durable", directory, error);
}

Result<Done> RunDirectory::switch_link(std::string_view name, int64_t step) {
  const std::string link = file(name), temporary = file(fmt::format(".{}.tmp", name));
  layer_->unlink(temporary.c_str());
  if (::symlink(name_of(step).c_str(), temporary.c_str()) != 0) return reason("make the link", link, errno);
  if (layer_->rename(temporary.c_str(), link.c_str()) != 0) {
    const int error = errno;
    layer_->unlink(temporary.c_str());
    return reason("switch the link", link, error);
  }
  return sync(path_);
}

Result<Done> RunDirectory::save(int64_t step, IsBest is_best, int64_t keep,
                                const std::function<Result<Done>(const std::string& directory)>& write) {
  if (latest() == step) return is_best == IsBest::kYes ? switch_link("best", step) : Result<Done>(Done{});
  const std::string temporary = file("." + name_of(step) + ".tmp"), final_name = checkpoint(step);
  remove_all(temporary);
  if (::mkdir(temporary.c_str(), 0777) != 0) return reason("make the directory", temporary, errno);
  Result<Done> written = write(temporary);
  if (written) written = sync(temporary);
  if (!written) {
    remove_all(temporary);
    return written.failure();
  }
  // A directory cannot be renamed over another one. What `latest` shows is older, so a complete checkpoint is there at every moment.
  remove_checkpoint(step);
  if (layer_->rename(temporary.c_str(), final_name.c_str()) != 0) {
    const int error = errno;
    remove_all(temporary);
    return reason("rename the new checkpoint to", final_name, error);
  }
  REGARD_CHECK(sync(path_));
  REGARD_CHECK(switch_link("latest", step));
  if (is_best == IsBest::kYes) REGARD_CHECK(switch_link("best", step));
  prune(keep);
  return Done{};
}

void RunDirectory::prune(int64_t keep) {
  const std::vector<int64_t> steps = checkpoints();
  const auto newest = latest(), kept_best = best();
  const auto old = static_cast<int64_t>(steps.size()) - keep;
  for (int64_t i = 0; i < old; ++i) {
    const int64_t step = steps[static_cast<size_t>(i)];
    if (step != newest && step != kept_best) remove_checkpoint(step);
  }
}

}  // namespace regard::train_loop
