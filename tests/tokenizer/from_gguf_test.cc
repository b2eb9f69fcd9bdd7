// From a GGUF file's metadata: what is optional, what is required, what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "format/gguf/gguf.h"
#include "tests/format/gguf/gguf_writer.h"
#include "tests/tokenizer/vocabularies.h"

namespace aerie::from_gguf_test {

using test::BpeData;
using test::GgufWriter;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A file with the required keys, but for `without`.
GgufWriter file_with(const BpeData& data, const std::string& without = "") {
  GgufWriter writer;
  if (without != "model") writer.add_string("tokenizer.ggml.model", "gpt2");
  if (without != "tokens") writer.add_array("tokenizer.ggml.tokens", data.tokens);
  if (without != "merges") writer.add_array("tokenizer.ggml.merges", data.merges);
  const std::vector<int32_t> types(data.types.begin(), data.types.end());
  if (without != "token_type") writer.add_array("tokenizer.ggml.token_type", types);
  return writer;
}

BpeData small() {
  BpeData data = test::byte_vocabulary();
  test::add_merge(data, "a", "b");
  test::add_token(data, "<s>", TokenType::kControl);
  return data;
}

Expected<std::unique_ptr<Tokenizer>> load(const GgufWriter& writer) {
  const auto bytes = writer.bytes();
  auto file = GgufFile::parse(bytes, "test.gguf");
  if (!file.ok()) return file.status();
  return Tokenizer::from_gguf(**file);
}

void expect_refused(const GgufWriter& writer, StatusCode code, const std::string& key) {
  const auto tokenizer = load(writer);
  ASSERT_FALSE(tokenizer.ok()) << key;
  EXPECT_EQ(tokenizer.status().code(), code) << tokenizer.status().message();
  EXPECT_THAT(tokenizer.status().message(), HasSubstr(key));
  EXPECT_THAT(tokenizer.status().message(), HasSubstr("test.gguf"));
}

TEST(FromGguf, OptionalKeysMayBeAbsent) {
  const auto tokenizer = load(file_with(small()));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(tokenizer.value()->bos(), -1);
  // GPT-2's pre-tokenizer; no BOS.
  EXPECT_THAT(test::encode(*tokenizer.value(), "ab 1", {true, true}), ElementsAre(256, ' ', '1'));
}

TEST(FromGguf, EveryKeyIsRead) {
  GgufWriter writer = file_with(small());
  writer.add_string("tokenizer.ggml.pre", "smollm")
      .add_u32("tokenizer.ggml.bos_token_id", 257)
      .add_u32("tokenizer.ggml.eos_token_id", 10)
      .add_u32("tokenizer.ggml.eot_token_id", 11)
      .add_u32("tokenizer.ggml.eom_token_id", 12)
      .add_bool("tokenizer.ggml.add_space_prefix", true)
      .add_bool("tokenizer.ggml.add_bos_token", true)
      .add_bool("tokenizer.ggml.add_eos_token", true);
  const auto loaded = load(writer);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  const Tokenizer& tokenizer = *loaded.value();
  EXPECT_EQ(tokenizer.bos(), 257);
  EXPECT_EQ(tokenizer.eos(), 10);
  EXPECT_TRUE(tokenizer.is_end(10) && tokenizer.is_end(11) && tokenizer.is_end(12));
  EXPECT_FALSE(tokenizer.is_end(257));
  EXPECT_TRUE(tokenizer.is_control(257));
  EXPECT_THAT(test::encode(tokenizer, "ab", {true, false}), ElementsAre(257, 256, 10));
}

TEST(FromGguf, RequiredKeys) {
  for (const std::string key : {"model", "tokens", "merges", "token_type"}) {
    expect_refused(file_with(small(), key), StatusCode::kNotFound, "tokenizer.ggml." + key);
  }
}

TEST(FromGguf, WrongKinds) {
  const std::vector<int32_t> numbers = {1, 2};
  expect_refused(file_with(small(), "model").add_u32("tokenizer.ggml.model", 1),
                 StatusCode::kInvalidData, "tokenizer.ggml.model");
  expect_refused(file_with(small(), "tokens").add_array("tokenizer.ggml.tokens", numbers),
                 StatusCode::kInvalidData, "tokenizer.ggml.tokens");
  expect_refused(file_with(small(), "merges").add_string("tokenizer.ggml.merges", "a b"),
                 StatusCode::kInvalidData, "tokenizer.ggml.merges");
  expect_refused(file_with(small()).add_u32("tokenizer.ggml.pre", 1), StatusCode::kInvalidData,
                 "tokenizer.ggml.pre");
  expect_refused(file_with(small()).add_string("tokenizer.ggml.bos_token_id", "1"),
                 StatusCode::kInvalidData, "tokenizer.ggml.bos_token_id");
  expect_refused(file_with(small()).add_u32("tokenizer.ggml.add_bos_token", 1),
                 StatusCode::kInvalidData, "tokenizer.ggml.add_bos_token");
}

TEST(FromGguf, BrokenValues) {
  const std::vector<float> halves(258, 1.5f);
  expect_refused(file_with(small(), "token_type").add_array("tokenizer.ggml.token_type", halves),
                 StatusCode::kInvalidData, "tokenizer.ggml.token_type");
  const std::vector<int32_t> few(3, 1);
  expect_refused(file_with(small(), "token_type").add_array("tokenizer.ggml.token_type", few),
                 StatusCode::kInvalidData, "tokenizer.ggml.token_type");
  expect_refused(file_with(small()).add_u32("tokenizer.ggml.eos_token_id", 258),
                 StatusCode::kInvalidData, "tokenizer.ggml.eos_token_id");
  expect_refused(file_with(small()).add_i32("tokenizer.ggml.eos_token_id", -1),
                 StatusCode::kInvalidData, "tokenizer.ggml.eos_token_id");
  expect_refused(file_with(small()).add_string("tokenizer.ggml.pre", "no-such-name"),
                 StatusCode::kUnsupported, "tokenizer.ggml.pre");
  expect_refused(file_with(small(), "model").add_string("tokenizer.ggml.model", "rwkv"),
                 StatusCode::kUnsupported, "tokenizer.ggml.model");
}

}  // namespace aerie::from_gguf_test
