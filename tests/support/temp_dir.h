// A directory of a test's own, removed with everything in it at the end.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace regard::testing_support {

class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "regard-test-XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr) << name;
    path_ = name;
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  std::string path(std::string_view name = "") const { return name.empty() ? path_ : path_ + "/" + std::string(name); }

  /// Writes a file and returns its path.
  template <class Bytes>
  std::string write(std::string_view name, const Bytes& bytes) const {
    std::ofstream out(path(name), std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    EXPECT_TRUE(out.good());
    return path(name);
  }

 private:
  std::string path_;
};

}  // namespace regard::testing_support
