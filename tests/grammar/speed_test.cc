// What a constraint costs with a real vocabulary.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <filesystem>

#include "format/gguf.h"
#include "grammar/grammar.h"
#include "tests/testing/sanitized.h"
#include "tokenizer/tokenizer.h"

namespace aerie {
namespace {

constexpr const char* kModel = "models/SmolLM2-135M-Instruct.Q4_1.gguf";

const char* const kSchema = R"({"type":"object","properties":{
  "name":{"type":"string","minLength":1,"maxLength":40},
  "age":{"type":"integer","minimum":0,"maximum":150},
  "email":{"type":"string"},
  "tags":{"type":"array","items":{"enum":["red","green","blue"]},"maxItems":5},
  "address":{"type":"object","properties":{"street":{"type":"string"},"zip":{"type":"string",
    "pattern":"^[0-9]{5}$"}},"required":["street","zip"],"additionalProperties":false}},
  "required":["name","age","address"],"additionalProperties":false})";

const char* const kDocuments[] = {
    R"({"name": "Ada Lovelace", "age": 36, "tags": ["red", "blue"], "address": {"street": "12 St James's Square", "zip": "10115"}})",
    R"({"name": "Grace Hopper", "age": 85, "email": "grace@navy.mil", "address": {"street": "Arlington Road 7", "zip": "22211"}})",
    R"({"name":"Alan Turing","age":41,"email":"at@bletchley.uk","tags":["green"],"address":{"street":"Sackville Gardens","zip":"12345"}})"};

using Clock = std::chrono::steady_clock;

double microseconds(Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

// Tokens of a document, each of which the grammar must allow; an end behind them.
int run(const std::shared_ptr<const Grammar>& grammar, const Tokenizer& tokenizer,
        const std::string& text, std::span<bool> mask) {
  std::vector<int32_t> ids;
  EncodeOptions options;
  options.add_special = false;
  EXPECT_TRUE(tokenizer.encode(text, options, ids).ok());
  const auto constraint = make_constraint(grammar);
  for (const int32_t id : ids) {
    constraint->mask(mask);
    EXPECT_TRUE(mask[id]) << tokenizer.piece(id);
    constraint->advance(id);
  }
  constraint->mask(mask);
  EXPECT_TRUE(mask[tokenizer.eos()]);
  return static_cast<int>(ids.size()) + 1;
}

TEST(GrammarSpeed, MasksOfATypicalSchema) {
  if (!std::filesystem::exists(kModel)) GTEST_SKIP() << "no " << kModel;
  const auto file = GgufFile::open(kModel);
  ASSERT_TRUE(file.ok()) << file.status().message();
  const auto tokenizer = Tokenizer::from_gguf(**file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const auto trie = make_token_trie(**tokenizer);
  GrammarSpec spec;
  spec.kind = GrammarKind::kJsonSchema;
  spec.text = kSchema;
  const auto compile_start = Clock::now();
  const auto grammar = compile_grammar(spec, trie);
  const double compile_time = microseconds(Clock::now() - compile_start);
  ASSERT_TRUE(grammar.ok()) << grammar.status().message();

  const auto vocab = static_cast<size_t>((*tokenizer)->vocab_size());
  const auto mask = std::make_unique<bool[]>(vocab);
  double first = 0;
  double all = 0;
  int first_tokens = 0;
  int tokens = 0;
  constexpr int kRounds = 50;
  for (int round = 0; round < kRounds; ++round) {
    for (const char* document : kDocuments) {
      const auto start = Clock::now();
      const int count = run(*grammar, **tokenizer, document, {mask.get(), vocab});
      const double time = microseconds(Clock::now() - start);
      all += time;
      tokens += count;
      if (round == 0) {
        first += time;
        first_tokens += count;
      }
    }
  }
  std::printf(
      "compile %.0f us; advance and mask: %.1f us a token over %d documents, %.1f us in the first "
      "%zu\n",
      compile_time, all / tokens, kRounds * 3, first / first_tokens, std::size(kDocuments));
  if (!test::kSanitized) {
    EXPECT_LT(all / tokens, 50.0);
  }
}

// Tokens of many bytes, which end anywhere in what the grammar reads.
TEST(GrammarSpeed, MasksAreWhatSingleTokensSay) {
  if (!std::filesystem::exists(kModel)) GTEST_SKIP() << "no " << kModel;
  const auto file = GgufFile::open(kModel);
  ASSERT_TRUE(file.ok()) << file.status().message();
  const auto tokenizer = Tokenizer::from_gguf(**file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  GrammarSpec spec;
  spec.kind = GrammarKind::kJsonSchema;
  spec.text = kSchema;
  const auto grammar = compile_grammar(spec, make_token_trie(**tokenizer));
  ASSERT_TRUE(grammar.ok()) << grammar.status().message();
  std::vector<int32_t> ids;
  ASSERT_TRUE((*tokenizer)->encode(kDocuments[1], {.add_special = false}, ids).ok());
  const int vocab = (*tokenizer)->vocab_size();
  const auto mask = std::make_unique<bool[]>(vocab);
  const auto constraint = make_constraint(*grammar);
  for (const int32_t next : ids) {
    constraint->mask({mask.get(), static_cast<size_t>(vocab)});
    for (int32_t id = 0; id < vocab; ++id) {
      ASSERT_EQ(mask[id], constraint->allows(id)) << (*tokenizer)->piece(id);
    }
    constraint->advance(next);
  }
}

}  // namespace
}  // namespace aerie
