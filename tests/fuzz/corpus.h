// Runs a fuzzer's body (tests/fuzz/fuzz_target.h) over its committed seeds and findings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace aerie::test {

struct SeedCount {
  int all = 0;
  int valid = 0;
};

// `is_valid(path)`: whether the format's reader takes the file.
template <typename IsValid>
SeedCount run_seeds(int (*fuzz)(const uint8_t*, size_t), const std::filesystem::path& folder,
                    const IsValid& is_valid) {
  SeedCount count;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    fuzz(reinterpret_cast<const uint8_t*>(text.data()), text.size());
    ++count.all;
    if (is_valid(entry.path().string())) ++count.valid;
  }
  return count;
}

}  // namespace aerie::test
