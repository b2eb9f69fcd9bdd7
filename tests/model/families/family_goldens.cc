#include "tests/model/families/family_goldens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "model/import/hugging_face_file.h"

namespace aerie {
namespace {

constexpr const char* kFolder = "tests/golden/families";

template <typename T>
T read_one(std::ifstream& file) {
  T value = {};
  file.read(reinterpret_cast<char*>(&value), sizeof(T));
  return value;
}

template <typename T>
std::vector<T> read_many(std::ifstream& file, size_t count) {
  std::vector<T> values(count);
  file.read(reinterpret_cast<char*>(values.data()),
            static_cast<std::streamsize>(count * sizeof(T)));
  return values;
}

}  // namespace

std::vector<std::string> family_models() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string family_test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::unique_ptr<ModelFile> open_family_model(const std::string& name) {
  auto file = open_model_file(std::string(kFolder) + "/" + name);
  EXPECT_TRUE(file.ok()) << file.status().message();
  return file.ok() ? std::move(*file) : nullptr;
}

FamilyGolden read_family_golden(const std::string& name) {
  std::ifstream file(std::string(kFolder) + "/" + name + "/golden.bin", std::ios::binary);
  char magic[8] = {};
  file.read(magic, 8);
  EXPECT_TRUE(file && std::memcmp(magic, "AERIELGT", 8) == 0) << name;
  EXPECT_EQ(read_one<uint32_t>(file), 1u);
  FamilyGolden golden;
  golden.vocab = static_cast<int>(read_one<uint32_t>(file));
  golden.sequences.resize(read_one<uint32_t>(file));
  for (auto& sequence : golden.sequences) {
    sequence.tokens = read_many<int32_t>(file, read_one<uint32_t>(file));
    for (size_t i = 0; i < sequence.tokens.size(); ++i) {
      sequence.logits.push_back(read_many<float>(file, static_cast<size_t>(golden.vocab)));
    }
  }
  EXPECT_TRUE(file) << name << ": golden.bin is shorter than it says";
  return golden;
}

}  // namespace aerie
