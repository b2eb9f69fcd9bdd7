// Runs the fuzzer's body over the committed seeds and findings. To write the seeds anew:
//   test_gguf_corpus --gtest_also_run_disabled_tests --gtest_filter='*WriteSeeds'
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "format/gguf/gguf.h"
#include "tests/format/gguf/gguf_writer.h"
#include "tests/fuzz/corpus.h"

int fuzz_gguf(const uint8_t* data, size_t size);

namespace aerie::gguf_corpus_test {

using test::GgufWriter;
const std::filesystem::path kCorpus = "tests/fuzz/corpus/gguf";

GgufWriter scalars() {
  GgufWriter writer;
  writer.add_u8("a", 1).add_i8("b", -1).add_u16("c", 2).add_i16("d", -2).add_u32("e", 3);
  writer.add_i32("f", -3).add_u64("g", 4).add_i64("h", -4).add_f32("i", 0.5f).add_f64("j", 0.5);
  writer.add_bool("k", true).add_string("general.architecture", "llama");
  return writer;
}

GgufWriter arrays() {
  GgufWriter writer(2);
  writer.add_array<uint8_t>("a", {1, 2}).add_array<int64_t>("b", {-1}).add_array<float>("c", {1});
  writer.add_array<bool>("d", {true, false}).add_array<std::string>("e", {"x", "", "yz"});
  const uint8_t nested[] = {8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 'x'};
  std::vector<std::byte> value(12 + sizeof(nested));
  value[0] = std::byte{9};
  value[4] = std::byte{1};
  for (size_t i = 0; i < sizeof(nested); ++i) value[12 + i] = std::byte{nested[i]};
  writer.add_raw("f", 9, value);
  return writer;
}

GgufWriter tensors() {
  GgufWriter writer;
  writer.set_alignment(8).add_u32("general.alignment", 8);
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto type = static_cast<DType>(i);
    const int block = dtype_info(type).block_elements;
    writer.add_tensor(dtype_info(type).name, type, {block},
                      std::vector<float>(static_cast<size_t>(block), 1.0f));
  }
  return writer;
}

GgufWriter model() {
  GgufWriter writer;
  writer.add_string("general.architecture", "llama").add_u32("llama.block_count", 1);
  writer.add_f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  writer.add_array<std::string>("tokenizer.ggml.tokens", {"a", "b", "<s>"});
  writer.add_array<int32_t>("tokenizer.ggml.token_type", {1, 1, 3});
  writer.add_tensor("token_embd.weight", DType::kQ8_0, {32, 3}, std::vector<float>(96, 0.5f));
  writer.add_tensor("output_norm.weight", DType::kF32, {32}, std::vector<float>(32, 1.0f));
  return writer;
}

GgufWriter other_types() {
  GgufWriter writer;
  writer.add_raw_tensor("q2", 10, {256, 1, 1, 1}, std::vector<std::byte>(84));
  writer.add_raw_tensor("i32", 26, {3}, std::vector<std::byte>(12));
  writer.add_raw_tensor("new", 999, {7}, std::vector<std::byte>(8));
  return writer;
}

TEST(GgufCorpus, DISABLED_WriteSeeds) {
  std::filesystem::create_directories(kCorpus);
  ASSERT_TRUE(GgufWriter().write(kCorpus / "empty.gguf").ok());
  ASSERT_TRUE(scalars().write(kCorpus / "scalars.gguf").ok());
  ASSERT_TRUE(arrays().write(kCorpus / "arrays.gguf").ok());
  ASSERT_TRUE(tensors().write(kCorpus / "tensors.gguf").ok());
  ASSERT_TRUE(model().write(kCorpus / "model.gguf").ok());
  ASSERT_TRUE(other_types().write(kCorpus / "other_types.gguf").ok());
}

TEST(GgufCorpus, EverySeed) {
  const auto is_valid = [](const std::string& path) { return GgufFile::open(path).ok(); };
  const test::SeedCount seeds = test::run_seeds(fuzz_gguf, kCorpus, is_valid);
  EXPECT_GE(seeds.all, 6);
  EXPECT_GE(seeds.valid, 6);
}

}  // namespace aerie::gguf_corpus_test
