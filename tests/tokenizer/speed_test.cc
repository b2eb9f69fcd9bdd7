// Nothing that a user sends may take more than about linear time.
#include <gtest/gtest.h>

#include <cstdio>
#include <ctime>

#include "tests/testing/sanitized.h"
#include "tests/tokenizer/vocabularies.h"
#include "tokenizer/load/hf_folder.h"

namespace aerie::speed_test {

using test::BpeData;
using test::kModel;
using test::kShared;

#ifdef NDEBUG
constexpr double kSlowdown = test::kSanitized ? 20 : 1;
#else
constexpr double kSlowdown = 20;
#endif
// What is read is as long as it takes a second to tell linear from quadratic; a sanitizer looks for
// other things.
constexpr size_t kLong = size_t{1} << (test::kSanitized ? 16 : 20);

// Of the processor, so that a busy machine does not fail the tests.
double cpu_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

double seconds_to_encode(const Tokenizer& tokenizer, const std::string& text, size_t* tokens,
                         bool comes_back = true) {
  const double start = cpu_seconds();
  const auto ids = test::encode(tokenizer, text, {false, true});
  const double taken = cpu_seconds() - start;
  *tokens = ids.size();
  if (comes_back) {
    EXPECT_TRUE(test::decode(tokenizer, ids) == test::without_missing(tokenizer, text));
  }
  return taken;
}

std::string repeated(std::string_view part, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += part;
  return text;
}

void expect_long_inputs_are_quick(const Tokenizer& tokenizer, bool comes_back = true) {
  for (const std::string_view part :
       {"a", "ab", " ", "\n", "1", "!", "\xFF", "é", "'", "<|im_start|", "<|im_start|>", "\u3000",
        "a ", "=", "\u0301", " \n"}) {
    size_t tokens = 0;
    const double taken = seconds_to_encode(tokenizer, repeated(part, kLong), &tokens, comes_back);
    EXPECT_LT(taken, 1.0 * kSlowdown) << kLong << " bytes of '" << part << "'";
  }
}

void report_english(const char* name, const Tokenizer& tokenizer) {
  const std::string text = test::english();
  size_t tokens = 0;
  const double taken = seconds_to_encode(tokenizer, text, &tokens, false);
  const double rate = static_cast<double>(text.size()) / 1e6 / taken;
  std::printf("%s: %.1f MB of English in %.3f s: %.1f MB/s, %.2f bytes a token\n", name,
              static_cast<double>(text.size()) / 1e6, taken, rate,
              static_cast<double>(text.size()) / static_cast<double>(tokens));
  EXPECT_GT(rate, 5.0 / kSlowdown);
}

TEST(Speed, Gpt2) {
  AERIE_SKIP_WITHOUT(kShared / "tokenizers");
  const auto tokenizer = tokenizer_of(test::gpt2_data());
  ASSERT_TRUE(tokenizer.ok());
  expect_long_inputs_are_quick(*tokenizer.value());
  report_english("gpt2", *tokenizer.value());
}

TEST(Speed, GptNeoX) {
  AERIE_SKIP_WITHOUT(kShared / "tokenizers");
  const auto tokenizer = Tokenizer::from_folder((kShared / "tokenizers/gpt-neox-20b").string());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  expect_long_inputs_are_quick(**tokenizer, false);
  report_english("gpt-neox-20b", **tokenizer);
}

TEST(Speed, Phi3) {
  AERIE_SKIP_WITHOUT(kShared / "tokenizers");
  const auto tokenizer = test::load_gguf(kShared / "tokenizers/gguf/ggml-vocab-phi-3.gguf");
  ASSERT_NE(tokenizer, nullptr);
  expect_long_inputs_are_quick(*tokenizer, false);
  report_english("phi-3", *tokenizer);
}

TEST(Speed, Unigram) {
  AERIE_SKIP_WITHOUT(kShared / "tokenizers");
  const auto tokenizer = tokenizer_from_sentencepiece(
      test::read_file(kShared / "tokenizers/sentencepiece/test_model.model"), "test_model", {});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  expect_long_inputs_are_quick(**tokenizer, false);
  report_english("unigram", **tokenizer);
}

// Every pre-tokenizer of the table, on runs that make expressions look back.
TEST(Speed, Recipes) {
  for (const char* name :
       {"llama-bpe", "qwen2", "qwen35", "gpt-4o", "tekken", "deepseek-llm", "deepseek-coder",
        "deepseek-v3", "falcon", "bloom", "bailingmoe", "default", "command-r"}) {
    BpeData data = test::byte_vocabulary();
    data.pre = name;
    const auto tokenizer = test::create(data);
    ASSERT_NE(tokenizer, nullptr);
    const double start = cpu_seconds();
    for (const std::string_view part :
         {" ", "\n", "A", "Aa", "1", "!", "\u0301", "\u4e2d", " a", "\u3000", "\r\n ", "'s"}) {
      test::encode(*tokenizer, repeated(part, kLong / 2) + "x");
    }
    EXPECT_LT(cpu_seconds() - start, 6.0 * kSlowdown) << name;
  }
}

TEST(Speed, SmolLm2) {
  AERIE_SKIP_WITHOUT(kModel);
  AERIE_SKIP_WITHOUT(kShared / "gutenberg");
  const double start = cpu_seconds();
  const auto tokenizer = test::load_gguf(kModel);
  const double taken = cpu_seconds() - start;
  ASSERT_NE(tokenizer, nullptr);
  std::printf("SmolLM2: loaded in %.0f ms\n", taken * 1e3);
  expect_long_inputs_are_quick(*tokenizer);
  report_english("SmolLM2", *tokenizer);
}

// Every pair of the vocabulary's merges chained: a word in which joining goes all the way.
TEST(Speed, DeepMerges) {
  BpeData data = test::byte_vocabulary();
  std::string word = "a";
  for (int i = 0; i < 12; ++i) {
    test::add_merge(data, word, word);
    word += word;
  }
  const auto tokenizer = tokenizer_of(data);
  ASSERT_TRUE(tokenizer.ok());
  size_t tokens = 0;
  EXPECT_LT(seconds_to_encode(*tokenizer.value(), std::string(kLong, 'a'), &tokens),
            1.0 * kSlowdown);
  EXPECT_EQ(tokens, kLong >> 12);
}

}  // namespace aerie::speed_test
