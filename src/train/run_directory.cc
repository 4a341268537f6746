#include "train/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

namespace regard::train_loop {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr size_t kDigits = 9;
// What a run writes and replaces under its own names, besides checkpoints.
constexpr std::string_view kNames[] = {"train.json", "log.jsonl", "loss.png", "loss.svg", "latest", "best"};

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

// No link to one: what a copy that follows links leaves in the place of `latest`.
bool is_directory_itself(const std::string& path) {
  std::error_code error;
  return fs::is_directory(fs::symlink_status(path, error));
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

Result<Done> RunDirectory::check_new(const std::string& path) {
  std::vector<std::string> taken;
  std::error_code error;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    std::string name = at->path().filename().string();
    if (step_of(name) || std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames)) taken.push_back(std::move(name));
  }
  if (taken.empty()) return Done{};
  std::sort(taken.begin(), taken.end());
  constexpr size_t kShown = 4;
  const auto shown = std::span(taken).first(std::min(kShown, taken.size()));
  return failure(Code::kInvalidArgument, "[train] '{}' holds a run already ({}{}); go on with it by `regard train --out {} --resume`, or choose another directory", path,
                 fmt::join(shown, ", "), taken.size() > kShown ? ", ..." : "", path);
}

Result<RunDirectory> RunDirectory::open(const std::string& path, TrainStart start, FileLayer& layer) {
  if (path.empty()) return failure(Code::kInvalidArgument, "[train] the name of the directory is empty");
  RunDirectory directory(path, layer);
  if (start == TrainStart::kNew) {
    REGARD_CHECK(check_new(path));
    directory.made_directory_ = ::mkdir(path.c_str(), 0777) == 0;
    if (!directory.made_directory_ && errno != EEXIST) {
      const int error = errno;
      Failure refused = directory.reason("make the directory", path, error);
      if (error == ENOENT || error == ENOTDIR) refused.code = Code::kNotFound;
      return refused;
    }
  }
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    const int error = errno;
    if (error == ENOENT || error == ENOTDIR) return failure(Code::kNotFound, "[train] '{}' is not there, so there is no checkpoint to go on from", path);
    return directory.reason("look at", path, error);
  }
  if (!S_ISDIR(status.st_mode)) return failure(Code::kInvalidArgument, "[train] '{}' is a file; give the name of a directory", path);
  REGARD_CHECK(directory.lock());
  if (start == TrainStart::kNew) REGARD_CHECK(check_new(path));  // another process may have been faster
  return directory;
}

RunDirectory::RunDirectory(RunDirectory&& other) noexcept
    : path_(std::move(other.path_)),
      layer_(other.layer_),
      lock_(std::exchange(other.lock_, -1)),
      made_directory_(std::exchange(other.made_directory_, false)),
      made_lock_(std::exchange(other.made_lock_, false)),
      begun_(other.begun_),
      current_(other.current_) {}

RunDirectory::~RunDirectory() {
  if (!begun_ && made_lock_) ::unlink(file("lock").c_str());
  if (lock_ >= 0) ::close(lock_);  // which gives the lock back, as the end of the process does
  if (!begun_ && made_directory_) ::rmdir(path_.c_str());
}

Result<Done> RunDirectory::lock() {
  const std::string name = file("lock");
  for (;;) {
    lock_ = ::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    made_lock_ = lock_ >= 0;
    if (lock_ < 0 && errno == EEXIST) lock_ = ::open(name.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (lock_ < 0) {
      if (errno == ENOENT) continue;  // taken away in between
      return reason("open", name, errno);
    }
    if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
      made_lock_ = false;  // it is another's now
      if (errno != EWOULDBLOCK) return reason("lock", name, errno);
      return failure(Code::kUnavailable, "[train] another process trains in '{}'; wait for it or choose another directory", path_);
    }
    // A process that gave up may have taken the file away before it was locked here; then nobody else would see this lock.
    struct stat held {}, there {};
    if (::fstat(lock_, &held) == 0 && ::stat(name.c_str(), &there) == 0 && held.st_ino == there.st_ino && held.st_dev == there.st_dev) return Done{};
    ::close(std::exchange(lock_, -1));
  }
}

std::vector<int64_t> RunDirectory::checkpoints(const std::string& path) {
  std::vector<int64_t> steps;
  std::error_code error;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    if (const auto step = step_of(at->path().filename().string())) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

Result<Done> RunDirectory::begin(std::optional<int64_t> resumed, const std::string& from) {
  begun_ = true;
  std::vector<std::string> stale;
  std::error_code error;
  for (fs::directory_iterator at(path_, error), end; !error && at != end; at.increment(error)) {
    if (is_temporary(at->path().filename().string())) stale.push_back(at->path().string());
  }
  for (const std::string& name : stale) remove_all(name);
  current_ = resumed;
  if (!resumed) return Done{};
  const std::string link = file("latest");
  if (from == link && is_directory_itself(link) && !fs::exists(fs::symlink_status(checkpoint(*resumed), error))) {
    if (layer_->rename(link.c_str(), checkpoint(*resumed).c_str()) != 0) return reason("rename", link, errno);
  }
  if (latest() == resumed || is_directory_itself(link) || !fs::is_directory(checkpoint(*resumed), error)) return Done{};
  return switch_link("latest", *resumed);
}

std::string RunDirectory::checkpoint(const std::string& path, int64_t step) { return path + "/" + name_of(step); }
std::string RunDirectory::checkpoint(int64_t step) const { return checkpoint(path_, step); }

namespace {

std::optional<int64_t> shown_by(const std::string& directory, std::string_view link) {
  const fs::path path = fs::path(directory) / link;
  std::error_code error;
  fs::path target = fs::read_symlink(path, error);
  if (error) return std::nullopt;
  if (!target.has_filename()) target = target.parent_path();  // step-000001000/
  const auto step = step_of(target.filename().string());
  if (!step || !fs::is_directory(path, error)) return std::nullopt;
  const bool here = fs::equivalent(path, RunDirectory::checkpoint(directory, *step), error);
  return here && !error ? step : std::nullopt;
}

}  // namespace

std::optional<int64_t> RunDirectory::latest(const std::string& path) { return shown_by(path, "latest"); }
std::optional<int64_t> RunDirectory::step_of_link(std::string_view name) const { return shown_by(path_, name); }

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
  const std::string old = file(fmt::format(".{}.old.tmp", name));
  if (is_directory_itself(link)) {  // a link cannot be renamed over it, and what the new one shows is whole
    remove_all(old);
    if (layer_->rename(link.c_str(), old.c_str()) != 0) return reason("rename", link, errno);
  }
  if (layer_->rename(temporary.c_str(), link.c_str()) != 0) {
    const int error = errno;
    layer_->unlink(temporary.c_str());
    return reason("switch the link", link, error);
  }
  remove_all(old);
  return sync(path_);
}

Result<Done> RunDirectory::save(int64_t step, IsBest is_best, int64_t keep,
                                const std::function<Result<Done>(const std::string& directory)>& write) {
  if (latest() == step || current_ == step) return is_best == IsBest::kYes ? switch_link("best", step) : Result<Done>(Done{});
  const std::string temporary = file("." + name_of(step) + ".tmp"), final_name = checkpoint(step);
  remove_all(temporary);
  if (::mkdir(temporary.c_str(), 0777) != 0) return reason("make the directory", temporary, errno);
  Result<Done> written = write(temporary);
  if (written) written = sync(temporary);
  if (!written) {
    remove_all(temporary);
    return written.failure();
  }
  // A directory cannot be renamed over another one. The run went on from an older one, so a complete checkpoint is there at every moment.
  remove_checkpoint(step);
  if (layer_->rename(temporary.c_str(), final_name.c_str()) != 0) {
    const int error = errno;
    remove_all(temporary);
    return reason("rename the new checkpoint to", final_name, error);
  }
  REGARD_CHECK(sync(path_));
  REGARD_CHECK(switch_link("latest", step));
  current_ = step;
  if (is_best == IsBest::kYes) REGARD_CHECK(switch_link("best", step));
  prune(keep);
  return Done{};
}

void RunDirectory::prune(int64_t keep) {
  std::vector<int64_t> steps = checkpoints(path_);
  const auto newest = latest(), kept_best = best();
  if (newest) steps.erase(std::upper_bound(steps.begin(), steps.end(), *newest), steps.end());  // later ones are not this run's yet
  const auto old = static_cast<int64_t>(steps.size()) - keep;
  for (int64_t i = 0; i < old; ++i) {
    const int64_t step = steps[static_cast<size_t>(i)];
    if (step != newest && step != kept_best) remove_checkpoint(step);
  }
}

}  // namespace regard::train_loop
