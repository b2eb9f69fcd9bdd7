// Takes the files of tests/tensor/golden/ apart, whose formats the scripts beside them give.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace aerie {

class GoldenFile {
 public:
  explicit GoldenFile(const std::string& name) {
    std::ifstream file("tests/tensor/golden/" + name, std::ios::binary);
    content_.assign(std::istreambuf_iterator<char>(file), {});
    EXPECT_FALSE(content_.empty()) << name;
  }
  bool at_end() const { return at_ >= content_.size(); }
  uint32_t u32() {
    uint32_t value = 0;
    std::memcpy(&value, bytes(4).data(), 4);
    return value;
  }
  std::string bytes(size_t count) {
    at_ += count;
    return content_.substr(at_ - count, count);
  }
  std::vector<float> floats(size_t count) {
    std::vector<float> out(count);
    const std::string raw = bytes(count * sizeof(float));
    std::memcpy(out.data(), raw.data(), raw.size());
    return out;
  }

 private:
  std::string content_;
  size_t at_ = 0;
};

}  // namespace aerie
