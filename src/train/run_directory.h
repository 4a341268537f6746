// The directory of a run: whose it is while a run goes on, and checkpoints that appear whole or not at all.
//
//     step-000001000/   a checkpoint; written as .step-000001000.tmp, made durable, renamed
//     latest, best      symbolic links to checkpoints, switched by a rename
//     lock              held by the process that trains
//
// Nothing that is there is removed before a newer checkpoint is whole; a command that is refused changes nothing. Which checkpoint a
// run goes on from is said in resume_point.h.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "regard/train.h"
#include "runtime/atomic_file.h"

namespace regard::train_loop {

/// Threads: one.
class RunDirectory {
 public:
  /// Takes the lock of the directory. With kNew it is made when it is not there, and must hold nothing that a run has names for; with kResume it
  /// must be there. What open() made is taken away again unless begin() is called.
  /// Errors: kUnavailable when another process holds the lock; kInvalidArgument (it holds a run, it is a file); kNotFound (no such parent,
  /// with kResume no such directory); kIo.
  static Result<RunDirectory> open(const std::string& path, TrainStart start = TrainStart::kNew, FileLayer& layer = system_file_layer());

  /// Whether a new run can begin there: kInvalidArgument, naming what is there, for anything that it would replace.
  static Result<Done> check_new(const std::string& path);

  RunDirectory(RunDirectory&& other) noexcept;
  RunDirectory& operator=(RunDirectory&&) = delete;
  ~RunDirectory();

  const std::string& path() const noexcept { return path_; }
  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }

  /// From here on the directory belongs to the run: removes the temporary names that an earlier process left. A run that goes on says
  /// from which step and directory; `latest` then shows it, unless it is a directory itself, which stays until a newer checkpoint is whole.
  Result<Done> begin(std::optional<int64_t> resumed = {}, const std::string& from = {});

  /// The step that a link shows, in whatever way it is written, or nothing when it shows no checkpoint of this directory.
  std::optional<int64_t> latest() const { return step_of_link("latest"); }
  std::optional<int64_t> best() const { return step_of_link("best"); }
  std::string checkpoint(int64_t step) const;
  /// The steps of all checkpoints in a directory, rising.
  static std::vector<int64_t> checkpoints(const std::string& path);
  /// Like latest(), of a directory that is not opened.
  static std::optional<int64_t> latest(const std::string& path);
  static std::string checkpoint(const std::string& path, int64_t step);

  enum class IsBest { kNo, kYes };
  /// Makes a checkpoint of `step`: `write` puts its files into the directory it is given. Then switches `latest`, with kYes
  /// `best` too, and removes all but the newest `keep` checkpoints up to this step and the best. A checkpoint of that step that `latest`
  /// shows already, or that the run went on from, is left as it is; another one is replaced. Later ones stay until the run comes there.
  /// When anything fails, what was there before is there still.
  Result<Done> save(int64_t step, IsBest is_best, int64_t keep, const std::function<Result<Done>(const std::string& directory)>& write);

  /// Lets `best` show a checkpoint that exists.
  Result<Done> point_best(int64_t step) { return switch_link("best", step); }

 private:
  RunDirectory(std::string path, FileLayer& layer) : path_(std::move(path)), layer_(&layer) {}
  Result<Done> lock();
  void remove_checkpoint(int64_t step);
  void prune(int64_t keep);
  std::optional<int64_t> step_of_link(std::string_view name) const;
  Result<Done> switch_link(std::string_view name, int64_t step);
  Result<Done> sync(const std::string& directory);
  Failure reason(std::string_view what, const std::string& name, int error) const;

  std::string path_;
  FileLayer* layer_;
  int lock_ = -1;
  bool made_directory_ = false, made_lock_ = false, begun_ = false;
  std::optional<int64_t> current_;  // the newest checkpoint of this run that is whole
};

}  // namespace regard::train_loop
