// A run that is stopped, killed or meets a failing disk and then goes on ends with the bits of one that nothing disturbed.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

#include "base/rng.h"
#include "regard/error.h"
#include "run_fixture.h"

namespace regard::train_test {
namespace {

namespace fs = std::filesystem;
using testing_support::TempDir;

// Counts the system calls of checkpoints and logs, and at one of them fails or ends the process as a power cut would.
class FaultyLayer final : public FileLayer {
 public:
  enum class Fault { kNone, kKill, kError, kShortWrite };
  Fault fault = Fault::kNone;
  int64_t at = -1;
  int error = EIO;
  int64_t calls = 0;

  int open(const char* path, int flags, mode_t mode) override { return strikes() ? -1 : FileLayer::open(path, flags, mode); }
  ssize_t write(int descriptor, const void* data, size_t size) override {
    if (fault == Fault::kShortWrite && calls == at && size > 1) {
      ++calls;
      return FileLayer::write(descriptor, data, size / 2);
    }
    if (fault == Fault::kKill && calls == at) {  // half of a block has reached the disk
      const auto ignored = FileLayer::write(descriptor, data, size / 2);
      static_cast<void>(ignored);
    }
    return strikes() ? -1 : FileLayer::write(descriptor, data, size);
  }
  int fsync(int) override { return strikes() ? -1 : 0; }  // see UnsyncedLayer
  int close(int descriptor) override {
    const bool failed = strikes();
    const int status = FileLayer::close(descriptor);
    if (failed) errno = error;
    return failed ? -1 : status;
  }
  int rename(const char* from, const char* to) override { return strikes() ? -1 : FileLayer::rename(from, to); }
  int unlink(const char* path) override { return strikes() ? -1 : FileLayer::unlink(path); }

 private:
  bool strikes() {
    if (calls++ != at) return false;
    if (fault == Fault::kKill) raise(SIGKILL);
    errno = error;
    return fault == Fault::kError;
  }
};
using Fault = FaultyLayer::Fault;

// All system calls of a run.
int64_t calls_of_a_run() {
  static const int64_t calls = [] {
    const TempDir directory;
    FaultyLayer layer;
    SmallRun(small_config(), directory.path("run"), TrainStart::kNew, layer).go();
    return layer.calls;
  }();
  return calls;
}

// What the directory shows must be whole whenever somebody looks, and what is no checkpoint must be gone after the next start.
void expect_no_rubbish(const std::string& root) {
  for (const auto& entry : fs::directory_iterator(root)) {
    const std::string name = entry.path().filename().string();
    EXPECT_FALSE(name.starts_with('.')) << name;
    if (!name.starts_with("step-")) continue;
    for (const char* file : {"config.json", "model.safetensors", "tokenizer.json", "state"}) {
      EXPECT_TRUE(fs::exists(entry.path() / file)) << entry.path() << " has no " << file;
    }
  }
}

std::vector<float> go_on(const std::string& root) {
  // The directory of the first checkpoint appears a moment before the link to it.
  const bool begun = fs::exists(root + "/latest") || fs::exists(root + "/step-000000000");
  SmallRun run(small_config(), root, begun ? TrainStart::kResume : TrainStart::kNew);
  EXPECT_EQ(run.go().end, TrainEnd::kComplete);
  expect_no_rubbish(root);
  return run.values();
}

TEST(Resume, AfterAStopAtAnyStepGivesTheSameBits) {
  for (const int64_t step : {1, 7, 10, 14, 15, 16, 29, 30, 44, 59, 60}) {
    const TempDir directory;
    SmallRun first(small_config(), directory.path("run"), TrainStart::kNew);
    first.stop_after(step);
    EXPECT_EQ(first.go().step, step);
    EXPECT_EQ(go_on(directory.path("run")), uninterrupted()) << step;
  }
}

TEST(Resume, AfterManyStopsGivesTheSameBits) {
  const TempDir directory;
  std::vector<float> values;
  for (int64_t step = 1;; step += 3) {
    SmallRun run(small_config(), directory.path("run"), step == 1 ? TrainStart::kNew : TrainStart::kResume);
    run.stop_after(step);
    const bool complete = run.go().end == TrainEnd::kComplete;
    values = run.values();
    if (complete) break;
  }
  EXPECT_EQ(values, uninterrupted());
}

// The test itself must be able to fail: a run that begins anew at a later step ends elsewhere.
TEST(Resume, IsNoticedWhenItIsWrong) {
  TrainConfig config = small_config();
  config.run.seed = 2;
  const TempDir directory;
  SmallRun run(config, directory.path("run"), TrainStart::kNew);
  run.go();
  EXPECT_NE(run.values(), uninterrupted());
  double change = 0;
  for (const float value : uninterrupted()) change += std::abs(static_cast<double>(value));
  EXPECT_GT(change, 1);
}

TEST(Resume, AfterBeingKilledAtAnySystemCallGivesTheSameBits) {
  const int64_t calls = calls_of_a_run();
  ASSERT_GT(calls, 300);
  uninterrupted();  // before the children copy the process
  for (uint64_t i = 0; i < 24; ++i) {
    // The first, the last, and random ones between.
    const int64_t at = i == 0 ? 0 : i == 1 ? calls - 1 : static_cast<int64_t>(random_bits(17, 3, i) % static_cast<uint64_t>(calls));
    const TempDir directory;
    const std::string root = directory.path("run");
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      FaultyLayer layer;
      layer.fault = Fault::kKill;
      layer.at = at;
      SmallRun(small_config(), root, TrainStart::kNew, layer).go();
      _exit(0);  // not reached: every run makes so many calls
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << at;
    if (fs::exists(root + "/latest")) {
      for (const char* file : {"config.json", "model.safetensors", "tokenizer.json", "state"}) EXPECT_TRUE(fs::exists(root + "/latest/" + file)) << at;
    }
    EXPECT_EQ(go_on(root), uninterrupted()) << "killed at call " << at;
  }
}

TEST(Resume, AfterAFailureOfTheDiskGivesTheSameBits) {
  const int64_t calls = calls_of_a_run();
  int failures = 0;
  for (uint64_t i = 0; i < 30; ++i) {
    const TempDir directory;
    const std::string root = directory.path("run");
    FaultyLayer layer;
    layer.fault = Fault::kError;
    layer.error = i % 3 == 0 ? ENOSPC : i % 3 == 1 ? EIO : EDQUOT;
    layer.at = static_cast<int64_t>(random_bits(18, 3, i) % static_cast<uint64_t>(calls));
    try {
      SmallRun run(small_config(), root, TrainStart::kNew, layer);
      EXPECT_EQ(run.go().end, TrainEnd::kComplete);
      EXPECT_EQ(run.values(), uninterrupted());  // the call did not matter: a close, or an unlink of what is not there
    } catch (const Error& error) {
      ++failures;
      EXPECT_EQ(error.code(), Code::kIo) << error.what();
      EXPECT_EQ(go_on(root), uninterrupted()) << "failed at call " << layer.at << ": " << error.what();
    }
  }
  EXPECT_GT(failures, 10);
}

TEST(Resume, ShortWritesAreGoneOnWith) {
  const int64_t calls = calls_of_a_run();
  for (uint64_t i = 0; i < 6; ++i) {
    const TempDir directory;
    FaultyLayer layer;
    layer.fault = Fault::kShortWrite;
    layer.at = static_cast<int64_t>(random_bits(19, 3, i) % static_cast<uint64_t>(calls));
    SmallRun run(small_config(), directory.path("run"), TrainStart::kNew, layer);
    run.go();
    EXPECT_EQ(run.values(), uninterrupted());
  }
}

TEST(Resume, AStoppedEvaluationIsMadeAfterwards) {
  const TempDir directory;
  SmallRun first(small_config(), directory.path("run"), TrainStart::kNew);
  first.options.on_event = [&](const TrainEvent& event) {
    if (event.kind == TrainEvent::Kind::kStep && event.step == 15) first.stop.request_stop();  // the evaluation is next
  };
  EXPECT_EQ(first.go().end, TrainEnd::kStopped);
  SmallRun second(small_config(), directory.path("run"), TrainStart::kResume);
  std::vector<int64_t> evaluated;
  second.options.on_event = [&](const TrainEvent& event) {
    if (event.kind == TrainEvent::Kind::kEvaluation) evaluated.push_back(event.step);
  };
  second.go();
  EXPECT_EQ(evaluated, (std::vector<int64_t>{15, 30, 45, 60}));
  EXPECT_EQ(second.values(), uninterrupted());
}

// A run that was stopped at step 40, with checkpoints 30 (the best or not) and 40.
struct Stopped {
  Stopped() : root(directory.path("run")) {
    SmallRun first(small_config(), root, TrainStart::kNew);
    first.stop_after(40);
    first.go();
  }
  std::string step(int64_t n) const { return root + fmt::format("/step-{:09}", n); }

  TempDir directory;
  std::string root;
};

// Names, kinds and contents of everything in a directory.
std::string listing(const std::string& root) {
  std::vector<std::string> all;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    std::string line = entry.path().string();
    if (entry.is_symlink()) {
      line += " -> " + fs::read_symlink(entry.path()).string();
    } else if (entry.is_regular_file()) {
      std::ifstream in(entry.path(), std::ios::binary);
      line += " = " + std::string(std::istreambuf_iterator<char>(in), {});
    }
    all.push_back(line);
  }
  std::sort(all.begin(), all.end());
  return fmt::format("{}", fmt::join(all, "\n"));
}

Error refusal_of(SmallRun& run) {
  try {
    run.go();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "not refused";
  return Error(Code::kInternal, "");
}

void damage(const std::string& file) {
  std::fstream state(file, std::ios::binary | std::ios::in | std::ios::out);
  state.seekp(-5, std::ios::end);
  state.put('\x55');
  EXPECT_TRUE(state.good());
}

TEST(Resume, GoesOnFromTheNewestWholeCheckpointWhateverLatestIs) {
  using Change = std::function<void(const Stopped&)>;
  const auto link = [](std::string target) {
    return [target](const Stopped& run) {
      fs::remove(run.root + "/latest");
      fs::create_directory_symlink(target == "absolute" ? run.step(40) : target, run.root + "/latest");
    };
  };
  struct Case {
    const char* name;
    Change change;
    bool noted;
    int64_t from;
  };
  const Case cases[] = {{"missing", [](const Stopped& run) { fs::remove(run.root + "/latest"); }, true, 40},
                        {"dangling", link("step-000000099"), true, 40},
                        {"absolute", link("absolute"), false, 40},
                        {"dot", link("./step-000000040"), false, 40},
                        {"slash", link("step-000000040/"), false, 40},
                        {"elsewhere", link("/tmp"), true, 40},
                        {"a directory",
                         [](const Stopped& run) {
                           fs::remove(run.root + "/latest");
                           fs::copy(run.step(40), run.root + "/latest");
                         },
                         true, 40},
                        {"a directory alone",
                         [](const Stopped& run) {
                           fs::remove(run.root + "/latest");
                           fs::rename(run.step(40), run.root + "/latest");
                         },
                         true, 40},
                        {"damaged and set aside", [](const Stopped& run) { fs::rename(run.step(40), run.root + "/broken"); }, true, 30},
                        {"missing, and the newest is damaged",
                         [](const Stopped& run) {
                           fs::remove(run.root + "/latest");
                           damage(run.step(40) + "/state");
                         },
                         true, 30}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const Stopped stopped;
    c.change(stopped);
    SmallRun run(small_config(), stopped.root, TrainStart::kResume);
    int notes = 0;
    int64_t first = -1;
    run.options.on_event = [&](const TrainEvent& event) {
      notes += event.kind == TrainEvent::Kind::kNote ? 1 : 0;
      if (first < 0 && event.kind == TrainEvent::Kind::kStep) first = event.step;
    };
    EXPECT_EQ(run.go().step, 60);
    EXPECT_EQ(notes, c.noted ? 1 : 0);
    EXPECT_EQ(first, c.from + 1);
    EXPECT_EQ(run.values(), uninterrupted());
    EXPECT_EQ(fs::read_symlink(stopped.root + "/latest"), "step-000000060");
  }
}

TEST(Resume, KeepsLaterCheckpointsUntilItComesThere) {
  const Stopped stopped;
  fs::remove(stopped.root + "/latest");
  fs::create_directory_symlink("step-000000030", stopped.root + "/latest");
  SmallRun run(small_config(), stopped.root, TrainStart::kResume);
  bool there = false;
  run.options.on_event = [&](const TrainEvent& event) {
    if (event.kind == TrainEvent::Kind::kStep && event.step == 31) there = fs::exists(stopped.step(40) + "/state");
  };
  run.go();
  EXPECT_TRUE(there);
  EXPECT_EQ(run.values(), uninterrupted());
}

TEST(Resume, ADamagedCheckpointIsNamedWithTheOthers) {
  const Stopped stopped;
  damage(stopped.step(40) + "/state");
  const std::string before = listing(stopped.root);
  SmallRun run(small_config(), stopped.root, TrainStart::kResume);
  const Error error = refusal_of(run);
  EXPECT_EQ(error.code(), Code::kCorruptData);
  for (const char* part : {"checksum", "step-000000030", "rename or remove"}) EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  EXPECT_EQ(listing(stopped.root), before);
}

TEST(Resume, WhatIsRefusedChangesNothing) {
  const Stopped stopped;
  fs::remove(stopped.root + "/lock");
  fs::create_directory(stopped.step(50));  // not finished, or not the run's: not for a refused command to judge
  fs::create_directory(stopped.root + "/.step-000000050.tmp");
  const std::string before = listing(stopped.root);
  SmallRun fresh(small_config(), stopped.root, TrainStart::kNew);
  EXPECT_EQ(refusal_of(fresh).code(), Code::kInvalidArgument);
  TrainConfig other = small_config();
  other.run.seed = 9;
  SmallRun changed(other, stopped.root, TrainStart::kResume);
  EXPECT_EQ(refusal_of(changed).code(), Code::kInvalidArgument);
  SmallRun nowhere(small_config(), stopped.directory.path("nowhere"), TrainStart::kResume);
  EXPECT_EQ(refusal_of(nowhere).code(), Code::kNotFound);
  EXPECT_FALSE(fs::exists(stopped.directory.path("nowhere")));
  EXPECT_EQ(listing(stopped.root), before);
}

TEST(Resume, ANewRunTakesNoDirectoryWithWhatItWouldReplace) {
  for (const char* name : {"train.json", "log.jsonl", "loss.png", "loss.svg", "step-000000005", "latest", "best"}) {
    const TempDir directory;
    directory.write(name, std::string("mine"));
    const std::string before = listing(directory.path());
    SmallRun run(small_config(), directory.path(), TrainStart::kNew);
    const Error error = refusal_of(run);
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    EXPECT_EQ(listing(directory.path()), before);
  }
  const TempDir directory;
  directory.write("notes.txt", std::string("mine"));
  SmallRun(small_config(), directory.path(), TrainStart::kNew).go();
  EXPECT_TRUE(fs::exists(directory.path("notes.txt")));
}

// A batch that does not fit says what to do, and leaves no directory.
TEST(Resume, ARunWithoutMemoryForAStepLeavesNothing) {
  const TempDir directory;
  SmallRun run(small_config(), directory.path("run"), TrainStart::kNew);
  run.model.no_memory = true;
  const Error error = refusal_of(run);
  EXPECT_EQ(error.code(), Code::kResourceExhausted);
  EXPECT_NE(std::string(error.what()).find("run.micro_batch"), std::string::npos) << error.what();
  EXPECT_FALSE(fs::exists(directory.path("run")));
}

}  // namespace
}  // namespace regard::train_test
