// A run that is stopped, killed or meets a failing disk and then goes on ends with the bits of one that nothing disturbed.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <filesystem>

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
  SmallRun run(small_config(), root, fs::exists(root + "/latest") ? TrainStart::kResume : TrainStart::kNew);
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

}  // namespace
}  // namespace regard::train_test
