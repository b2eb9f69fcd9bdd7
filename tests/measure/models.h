// Files with random models for the tests of bench/.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "measure/models/make_model.h"

namespace aerie::measure {

// A random model that is removed with the object.
class MadeModel {
 public:
  MadeModel(const std::string& shape, DType type) {
    static int count = 0;
    MakeModelOptions options;
    options.shape = shape;
    options.type = type;
    options.output = testing::TempDir() + "bench_" + std::to_string(count++) + ".gguf";
    options.threads = 1;
    const auto report = make_model(options);
    EXPECT_TRUE(report.ok()) << report.status().message();
    path_ = options.output;
  }
  ~MadeModel() { std::remove(path_.c_str()); }
  MadeModel(const MadeModel&) = delete;
  MadeModel& operator=(const MadeModel&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace aerie::measure
