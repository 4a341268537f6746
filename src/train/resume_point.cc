#include "train/resume_point.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "format/file_source.h"
#include "train/run_directory.h"

namespace regard::train_loop {
namespace {

namespace fs = std::filesystem;

struct Candidate {
  int64_t step = 0;
  std::string directory;
};

Result<StateHead> read_head(const std::string& checkpoint) {
  const std::string name = checkpoint + "/state";
  REGARD_TRY(const auto source, FileSource::open(name));
  return read_state_head(*source, name);
}

Result<Done> check_spans(const std::string& checkpoint, const StateHead& head) {
  const std::string name = checkpoint + "/state";
  REGARD_TRY(const auto source, FileSource::open(name));
  return check_state_spans(*source, head, name);
}

// Newest first. A directory in the place of `latest` is what a copy that follows links leaves; it is looked at behind the one of the same step.
std::vector<Candidate> candidates(const std::string& run) {
  std::vector<Candidate> all;
  for (const int64_t step : RunDirectory::checkpoints(run)) all.push_back({step, RunDirectory::checkpoint(run, step)});
  std::reverse(all.begin(), all.end());
  const std::string copy = run + "/latest";
  std::error_code error;
  if (fs::is_directory(fs::symlink_status(copy, error))) {
    if (const auto head = read_head(copy)) {
      const auto place = std::find_if(all.begin(), all.end(), [&](const Candidate& c) { return c.step < head->state.step; });
      all.insert(place, {head->state.step, copy});
    }
  }
  return all;
}

}  // namespace

Failure damaged_checkpoint(const std::string& run, const std::string& checkpoint, const Failure& why) {
  std::vector<std::string> others;
  for (const Candidate& c : candidates(run)) {
    if (c.directory != checkpoint && read_head(c.directory)) others.push_back(fs::path(c.directory).filename().string());
  }
  if (others.empty()) return failure(Code::kCorruptData, "{}; there is no other checkpoint in '{}': begin a new run in another directory", why.message, run);
  return failure(Code::kCorruptData, "{}; other checkpoints in '{}' are {}: rename or remove '{}' and resume again to go on from the newest of them", why.message, run,
                 fmt::join(others, ", "), checkpoint);
}

Result<ResumePoint> find_resume_point(const std::string& run) {
  std::error_code error;
  if (fs::exists(run, error) && !fs::is_directory(run, error)) {
    return failure(Code::kInvalidArgument, "[train] '{}' is a file; give the name of a directory", run);
  }
  if (const auto step = RunDirectory::latest(run)) {
    ResumePoint point{RunDirectory::checkpoint(run, *step), {}, {}};
    auto head = read_head(point.directory);
    if (!head) return damaged_checkpoint(run, point.directory, head.failure());
    point.head = std::move(*head);
    return point;
  }
  const bool there = fs::exists(fs::symlink_status(run + "/latest", error));
  std::string skipped;
  std::optional<Failure> first;
  for (const Candidate& c : candidates(run)) {
    auto head = read_head(c.directory);
    const Result<Done> whole = head ? check_spans(c.directory, *head) : Result<Done>(head.failure());
    if (whole) {
      return ResumePoint{c.directory, std::move(*head),
                         fmt::format("'{}/latest' {}; going on from the newest checkpoint that is whole, '{}'{}", run, there ? "is no link to a checkpoint of this run" : "is not there",
                                     c.directory, skipped)};
    }
    skipped += fmt::format("; '{}' is damaged", c.directory);
    if (!first) first = whole.failure();
  }
  if (first) return failure(Code::kCorruptData, "{}; no checkpoint in '{}' is whole: begin a new run in another directory", first->message, run);
  return failure(Code::kNotFound, "[train] '{}' {}, so there is no checkpoint to go on from; leave out --resume to begin a new run there", run,
                 fs::exists(run, error) ? "holds no run" : "is not there");
}

}  // namespace regard::train_loop
