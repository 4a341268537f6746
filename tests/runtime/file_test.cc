// Reading: what is refused and why, and a file that shrinks. The ids in the names are those of the list of bad inputs.
#include "runtime/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

namespace regard {
namespace {

namespace fs = std::filesystem;

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = fs::path(::testing::TempDir()) / ("regard_file_" + std::to_string(getpid()));
    fs::create_directories(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }

  std::string name(const std::string& leaf) const { return (directory_ / leaf).string(); }
  std::string write(const std::string& leaf, const std::string& text) const {
    std::ofstream(name(leaf), std::ios::binary) << text;
    return name(leaf);
  }
  static std::string text_of(const FileBytes& file) {
    const auto bytes = file.bytes();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  static void expect_refused(const std::string& path, Code code, const std::string& part) {
    const auto file = File::open(path);
    ASSERT_FALSE(file) << path;
    EXPECT_EQ(file.failure().code, code) << file.failure().message;
    EXPECT_NE(file.failure().message.find(part), std::string::npos) << file.failure().message;
  }

  fs::path directory_;
};

TEST_F(FileTest, ReadsWholeAndInParts) {
  std::string content(100000, 'x');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 7 % 251);
  const std::string path = write("data", content);
  auto bytes = read_file(path);
  ASSERT_TRUE(bytes);
  EXPECT_FALSE(bytes->mapped());
  EXPECT_EQ(text_of(*bytes), content);

  const auto file = File::open(path);
  ASSERT_TRUE(file);
  EXPECT_EQ((*file).size(), content.size());
  std::string part(1000, '\0');
  ASSERT_TRUE((*file).read_at(777, std::as_writable_bytes(std::span(part))));
  EXPECT_EQ(part, content.substr(777, 1000));

  auto mapped = map_file(*file);
  ASSERT_TRUE(mapped);
  EXPECT_TRUE(mapped->mapped());
  const FileBytes moved = *std::move(mapped);
  EXPECT_EQ(text_of(moved), content);
}

TEST_F(FileTest, F01_AnEmptyFileHasNoBytes) {
  const std::string path = write("empty", "");
  EXPECT_EQ(read_file(path)->bytes().size(), 0u);
  EXPECT_EQ(map_file(*File::open(path))->bytes().size(), 0u);
}

TEST_F(FileTest, RangesOutsideTheFileAreRefused) {
  const auto file = File::open(write("ten", "0123456789"));
  ASSERT_TRUE(file);
  std::byte out[4];
  EXPECT_TRUE((*file).read_at(6, out));
  EXPECT_EQ((*file).read_at(7, out).failure().code, Code::kCorruptData);
  EXPECT_EQ((*file).read_at(UINT64_MAX - 1, out).failure().code, Code::kCorruptData);
  EXPECT_TRUE((*file).read_at(10, std::span<std::byte>()));
}

TEST_F(FileTest, F21_AFileThatShrinksIsAnErrorAndOneThatGrowsIsNot) {
  const std::string path = write("changing", std::string(5000, 'a'));
  const auto file = File::open(path);
  ASSERT_TRUE(file);
  std::ofstream(path, std::ios::app) << "more";
  EXPECT_EQ(text_of(*read_file(*file)), std::string(5000, 'a'));
  ASSERT_EQ(truncate(path.c_str(), 100), 0);
  const auto bytes = read_file(*file);
  ASSERT_FALSE(bytes);
  EXPECT_EQ(bytes.failure().code, Code::kIo);
  EXPECT_NE(bytes.failure().message.find("changed while it was read"), std::string::npos);
}

TEST_F(FileTest, F22_OnlyRegularFilesAreOpened) {
  expect_refused(name("missing"), Code::kNotFound, "No such file");
  expect_refused(write("plain", "x") + "/below", Code::kNotFound, "Not a directory");
  expect_refused(directory_.string(), Code::kInvalidArgument, "is a directory");
  ASSERT_EQ(mkfifo(name("pipe").c_str(), 0600), 0);
  expect_refused(name("pipe"), Code::kInvalidArgument, "is a pipe");  // and does not wait for a writer
  expect_refused("/dev/zero", Code::kInvalidArgument, "is a device");
  expect_refused("", Code::kInvalidArgument, "empty");
  expect_refused(std::string("a\0b", 3), Code::kInvalidArgument, "zero byte");
  expect_refused(name(std::string(300, 'n')), Code::kInvalidArgument, "too long");
  fs::create_symlink("loop", name("loop"));
  expect_refused(name("loop"), Code::kIo, "symbolic links");

  const int socket_descriptor = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string socket_name = name("socket");
  ASSERT_LT(socket_name.size(), sizeof address.sun_path);
  std::memcpy(address.sun_path, socket_name.c_str(), socket_name.size());
  ASSERT_EQ(bind(socket_descriptor, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  expect_refused(socket_name, Code::kInvalidArgument, "socket");
  close(socket_descriptor);
}

TEST_F(FileTest, F22_PermissionIsAnIoError) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read everything";
  const std::string path = write("secret", "x");
  ASSERT_EQ(chmod(path.c_str(), 0), 0);
  expect_refused(path, Code::kIo, "Permission denied");
}

TEST_F(FileTest, F23_AHugeSparseFileIsRefusedBeforeAnythingIsRead) {
  const std::string path = write("sparse", "");
  if (truncate(path.c_str(), off_t{1} << 40) != 0) GTEST_SKIP() << "this file system has no sparse files";
  const auto bytes = read_file(path, 1 << 20);
  ASSERT_FALSE(bytes);
  EXPECT_EQ(bytes.failure().code, Code::kResourceExhausted);
  EXPECT_NE(bytes.failure().message.find("1099511627776"), std::string::npos);
}

TEST_F(FileTest, ChildrenDoNotInheritIt) {
  const auto file = File::open(write("x", "x"));
  EXPECT_NE(fcntl((*file).descriptor(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST_F(FileTest, NoDescriptorStaysOpen) {
  const auto count = [] {
    int open = 0;
    for (const auto& entry : fs::directory_iterator("/proc/self/fd")) open += entry.is_symlink() ? 1 : 0;
    return open;
  };
  const std::string path = write("x", "x");
  const int before = count();
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(read_file(path));
    ASSERT_TRUE(map_file(*File::open(path)));
    ASSERT_FALSE(File::open(directory_.string()));
    File a = *File::open(path), b = std::move(a);
    a = std::move(b);
  }
  EXPECT_EQ(count(), before);
}

}  // namespace
}  // namespace regard
