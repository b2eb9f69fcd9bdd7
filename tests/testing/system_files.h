// A folder with files as /proc and /sys have them.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace aerie::test {

class SystemFiles : public testing::Test {
 protected:
  ~SystemFiles() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }

  const std::string root_ = testing::TempDir() + "aerie_system_" + std::to_string(getpid());
};

}  // namespace aerie::test
