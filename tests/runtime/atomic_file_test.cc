// Writing: every system call is made to fail once, and each time the name must show a complete file and no rubbish may stay.
#include "runtime/atomic_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "regard/runtime.h"

namespace regard {
namespace {

namespace fs = std::filesystem;

// Fails the `fail_at`-th call of the kind `fail_what` with `error`; writes at most `short_write` bytes at a time.
class FaultyLayer : public FileLayer {
 public:
  enum class What { kNone, kOpen, kWrite, kFsync, kClose, kRename };

  What fail_what = What::kNone;
  int fail_at = 0;
  int error = EIO;
  size_t short_write = SIZE_MAX;
  int calls = 0;
  std::vector<std::string> log;

  int open(const char* path, int flags, mode_t mode) override {
    log.push_back("open");
    return fails(What::kOpen) ? -1 : FileLayer::open(path, flags, mode);
  }
  ssize_t write(int descriptor, const void* data, size_t size) override {
    log.push_back("write");
    return fails(What::kWrite) ? -1 : FileLayer::write(descriptor, data, std::min(size, short_write));
  }
  int fsync(int descriptor) override {
    log.push_back("fsync");
    return fails(What::kFsync) ? -1 : FileLayer::fsync(descriptor);
  }
  int close(int descriptor) override {
    log.push_back("close");
    const bool failed = fails(What::kClose);
    const int result = FileLayer::close(descriptor);
    if (failed) errno = error;
    return failed ? -1 : result;
  }
  int rename(const char* from, const char* to) override {
    log.push_back("rename");
    return fails(What::kRename) ? -1 : FileLayer::rename(from, to);
  }

 private:
  bool fails(What what) {
    if (what != fail_what || calls++ != fail_at) return false;
    errno = error;
    return true;
  }
};
using What = FaultyLayer::What;

class AtomicFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = fs::path(::testing::TempDir()) / ("regard_atomic_" + std::to_string(getpid()));
    fs::create_directories(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }

  std::string name(const std::string& leaf = "out") const { return (directory_ / leaf).string(); }
  static std::string read(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }
  int entries() const {
    int count = 0;
    for ([[maybe_unused]] const auto& entry : fs::directory_iterator(directory_)) ++count;
    return count;
  }
  static std::span<const std::byte> bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

  fs::path directory_;
};

TEST_F(AtomicFileTest, WritesSyncsRenamesAndSyncsTheDirectoryInThatOrder) {
  FaultyLayer layer;
  ASSERT_TRUE(write_file(name(), bytes("new"), Overwrite::kReplace, layer));
  EXPECT_EQ(read(name()), "new");
  EXPECT_EQ(entries(), 1);
  EXPECT_EQ(layer.log, (std::vector<std::string>{"open", "write", "fsync", "close", "rename", "open", "fsync", "close"}));
}

TEST_F(AtomicFileTest, C02_EachFailureKeepsTheOldFileAndLeavesNothingBehind) {
  struct Case {
    What what;
    int at;
    int error;
  };
  for (const Case& c : {Case{What::kOpen, 0, ENOSPC}, Case{What::kOpen, 0, EACCES}, Case{What::kWrite, 0, ENOSPC}, Case{What::kWrite, 3, ENOSPC},
                        Case{What::kWrite, 2, EIO}, Case{What::kFsync, 0, EIO}, Case{What::kFsync, 0, ENOSPC}, Case{What::kClose, 0, EIO},
                        Case{What::kRename, 0, EIO}, Case{What::kRename, 0, EXDEV}}) {
    for (const bool old_file : {false, true}) {
      fs::remove(name());
      if (old_file) std::ofstream(name()) << "old";
      FaultyLayer layer;
      layer.fail_what = c.what;
      layer.fail_at = c.at;
      layer.error = c.error;
      layer.short_write = 100;
      const auto result = write_file(name(), bytes(std::string(1000, 'n')), Overwrite::kReplace, layer);
      ASSERT_FALSE(result);
      EXPECT_EQ(result.failure().code, Code::kIo) << result.failure().message;
      EXPECT_NE(result.failure().message.find(std::generic_category().message(c.error)), std::string::npos) << result.failure().message;
      EXPECT_EQ(read(name()), old_file ? "old" : "");
      EXPECT_EQ(entries(), old_file ? 1 : 0);
    }
  }
}

TEST_F(AtomicFileTest, C02_InterruptionsAndShortWritesAreNoFailures) {
  for (const What what : {What::kOpen, What::kWrite, What::kFsync, What::kClose}) {
    FaultyLayer layer;
    layer.fail_what = what;
    layer.error = EINTR;
    layer.short_write = 7;
    const std::string text = "interrupted " + std::to_string(static_cast<int>(what));
    const auto result = write_file(name(), bytes(text), Overwrite::kReplace, layer);
    EXPECT_TRUE(result) << (result ? "" : result.failure().message);
    EXPECT_EQ(read(name()), text);
    EXPECT_EQ(entries(), 1);
  }
}

TEST_F(AtomicFileTest, C02_AFailedDirectorySyncIsReportedAndTheNewFileStays) {
  FaultyLayer layer;
  layer.fail_what = What::kFsync;
  layer.fail_at = 1;
  const auto result = write_file(name(), bytes("new"), Overwrite::kReplace, layer);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.failure().code, Code::kIo);
  EXPECT_EQ(read(name()), "new");
  EXPECT_EQ(entries(), 1);
}

TEST_F(AtomicFileTest, WithoutACommitNothingHappens) {
  std::ofstream(name()) << "old";
  {
    auto file = AtomicFile::create(name());
    ASSERT_TRUE(file);
    AtomicFile moved = *std::move(file);
    ASSERT_TRUE(moved.write(bytes("half")));
    EXPECT_EQ(read(name()), "old");
    EXPECT_EQ(entries(), 2);
  }
  EXPECT_EQ(read(name()), "old");
  EXPECT_EQ(entries(), 1);
}

TEST_F(AtomicFileTest, RefusesWhatItMustNotReplace) {
  std::ofstream(name()) << "old";
  EXPECT_EQ(write_file(name(), bytes("new"), Overwrite::kRefuse).failure().code, Code::kInvalidArgument);
  EXPECT_EQ(read(name()), "old");
  EXPECT_EQ(write_file(directory_.string(), bytes("new")).failure().code, Code::kInvalidArgument);
  EXPECT_EQ(write_file(name("no/such/directory"), bytes("new")).failure().code, Code::kNotFound);
  EXPECT_EQ(write_file("", bytes("new")).failure().code, Code::kInvalidArgument);
}

TEST_F(AtomicFileTest, ThePublicFunctionThrows) {
  save_file(name(), "text");
  EXPECT_EQ(read(name()), "text");
  try {
    save_file("/dev/full", "x");
    FAIL() << "a full disk was not noticed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kIo);
  }
}

TEST_F(AtomicFileTest, KeepsPermissionsAndFollowsLinks) {
  std::ofstream(name("target")) << "old";
  ASSERT_EQ(chmod(name("target").c_str(), 0640), 0);
  fs::create_symlink("target", name("link"));
  ASSERT_TRUE(write_file(name("link"), bytes("new")));
  EXPECT_TRUE(fs::is_symlink(name("link")));
  EXPECT_EQ(read(name("target")), "new");
  struct stat status {};
  ASSERT_EQ(stat(name("target").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640u);
}

TEST_F(AtomicFileTest, DevicesAreWrittenToAndNeverReplaced) {
  struct stat before {}, after {};
  ASSERT_EQ(stat("/dev/null", &before), 0);
  EXPECT_TRUE(write_file("/dev/null", bytes("gone")));
  ASSERT_EQ(stat("/dev/null", &after), 0);
  EXPECT_TRUE(S_ISCHR(after.st_mode));
  EXPECT_EQ(before.st_ino, after.st_ino);
  const auto full = write_file("/dev/full", bytes("x"));
  ASSERT_FALSE(full);
  EXPECT_EQ(full.failure().code, Code::kIo);
  EXPECT_NE(full.failure().message.find("No space left"), std::string::npos);
}

}  // namespace
}  // namespace regard
