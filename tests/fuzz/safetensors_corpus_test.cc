#include <gtest/gtest.h>

#include "format/safetensors/safetensors.h"
#include "tests/fuzz/corpus.h"

int fuzz_safetensors(const uint8_t* data, size_t size);

namespace aerie::safetensors_corpus_test {

constexpr const char* kCorpus = "tests/fuzz/corpus/safetensors/";

TEST(SafetensorsCorpus, EverySeed) {
  const auto is_valid = [](const std::string& path) { return SafetensorsFile::open(path).ok(); };
  const test::SeedCount seeds = test::run_seeds(fuzz_safetensors, kCorpus, is_valid);
  EXPECT_GE(seeds.valid, 4);
  EXPECT_GE(seeds.all - seeds.valid, 4);
}

// The valid seeds are of the format's own library.
TEST(SafetensorsCorpus, WhatItsOwnLibraryWrote) {
  const auto file = SafetensorsFile::open(std::string(kCorpus) + "model.safetensors");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->metadata().size(), 2u);
  const SafetensorsTensor* weight = file->find("model.layers.0.weight");
  ASSERT_NE(weight, nullptr);
  EXPECT_EQ(weight->type, SafetensorsType::kF32);
  EXPECT_EQ(weight->shape, (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(weight->data[3], std::byte{0x3F}) << "1.0";
  EXPECT_EQ(file->find("bias")->type, SafetensorsType::kF16);
  EXPECT_EQ(file->find("scalar")->shape.size(), 0u);
  EXPECT_EQ(file->find("empty")->elements(), 0);
}

}  // namespace aerie::safetensors_corpus_test
