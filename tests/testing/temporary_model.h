// A tiny model as a file, for as long as the object lives.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/testing/tiny_model.h"

namespace aerie::test {

class TemporaryModel {
 public:
  TemporaryModel(const std::string& name, const TinySpec& spec)
      : path_(fmt::format("{}aerie_{}_{}.gguf", testing::TempDir(), getpid(), name)) {
    const Status status = tiny_gguf(spec).write(path_);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  ~TemporaryModel() { std::filesystem::remove(path_); }
  TemporaryModel(const TemporaryModel&) = delete;
  TemporaryModel& operator=(const TemporaryModel&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace aerie::test
