// A folder for the time of a test.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace aerie::test {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    static int count = 0;
    const std::string name =
        "aerie_train_" + std::to_string(getpid()) + "_" + std::to_string(count++);
    path_ = std::filesystem::path(testing::TempDir()) / name;
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace aerie::test
