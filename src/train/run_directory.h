// The directory of a run: whose it is while a run goes on, and checkpoints that appear whole or not at all.
//
//     step-000001000/   a checkpoint; written as .step-000001000.tmp, made durable, renamed
//     latest, best      symbolic links to checkpoints, switched by a rename
//     lock              held by the process that trains
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/atomic_file.h"

namespace regard::train_loop {

/// Threads: one.
class RunDirectory {
 public:
  /// Makes the directory when it is not there, takes its lock and removes what an earlier process left unfinished: temporary
  /// names, and checkpoints newer than `latest`, which it had no time to point at.
  /// Errors: kUnavailable when another process holds the lock; kIo, kNotFound (no such parent), kInvalidArgument (a file).
  static Result<RunDirectory> open(const std::string& path, FileLayer& layer = system_file_layer());

  RunDirectory(RunDirectory&& other) noexcept;
  RunDirectory& operator=(RunDirectory&&) = delete;
  ~RunDirectory();

  const std::string& path() const noexcept { return path_; }
  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }

  /// The step that a link shows, or nothing when there is none.
  std::optional<int64_t> latest() const { return step_of_link("latest"); }
  std::optional<int64_t> best() const { return step_of_link("best"); }
  std::string checkpoint(int64_t step) const;

  enum class IsBest { kNo, kYes };
  /// Makes a checkpoint of `step`: `write` puts its files into the directory it is given. Then switches `latest`, with kYes
  /// `best` too, and removes all but the newest `keep` checkpoints and the best. A checkpoint of that step that `latest` shows
  /// already is left as it is; another one is replaced.
  /// When anything fails, what was there before is there still.
  Result<Done> save(int64_t step, IsBest is_best, int64_t keep, const std::function<Result<Done>(const std::string& directory)>& write);

  /// Lets `best` show a checkpoint that exists.
  Result<Done> point_best(int64_t step) { return switch_link("best", step); }

 private:
  RunDirectory(std::string path, FileLayer& layer) : path_(std::move(path)), layer_(&layer) {}
  Result<Done> lock();
  void clean();
  void remove_checkpoint(int64_t step);
  void prune(int64_t keep);
  std::vector<int64_t> checkpoints() const;  // rising
  std::optional<int64_t> step_of_link(std::string_view name) const;
  Result<Done> switch_link(std::string_view name, int64_t step);
  Result<Done> sync(const std::string& directory);
  Failure reason(std::string_view what, const std::string& name, int error) const;

  std::string path_;
  FileLayer* layer_;
  int lock_ = -1;
};

}  // namespace regard::train_loop
