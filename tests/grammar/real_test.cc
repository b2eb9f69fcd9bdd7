// The real vocabulary: masks against bytes, outputs that are JSON, and the time that it takes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <ctime>
#include <nlohmann/json.hpp>

#include "tests/grammar/grammars.h"
#include "tests/testing/sanitized.h"
#include "tests/tokenizer/vocabularies.h"

namespace aerie::grammar_real_test {

constexpr const char* kSchema = R"({
  "type": "object",
  "properties": {
    "name": {"type": "string"},
    "age": {"type": "integer", "minimum": 0, "maximum": 150},
    "email": {"type": "string", "maxLength": 40},
    "address": {
      "type": "object",
      "properties": {"street": {"type": "string"}, "city": {"enum": ["Paris", "Rome", "Oslo"]}},
      "required": ["street", "city"],
      "additionalProperties": false
    },
    "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 8}
  },
  "required": ["name", "age", "address", "tags"],
  "additionalProperties": false
})";

const Tokenizer* tokenizer() {
  static const std::unique_ptr<Tokenizer> loaded = test::load_gguf(test::kModel);
  return loaded.get();
}

std::shared_ptr<const TokenTrie> trie() {
  static const std::shared_ptr<const TokenTrie> made = make_token_trie(*tokenizer());
  return made;
}

std::shared_ptr<const Grammar> real_grammar(GrammarKind kind, const char* text) {
  GrammarSpec spec;
  spec.kind = kind;
  spec.text = text;
  return test::compile(spec, trie());
}

#define SKIP_WITHOUT_TOKENIZER() \
  if (tokenizer() == nullptr) GTEST_SKIP() << test::kModel << " is missing: see models/README.md"

// Token by token, without the trie.
void expect_mask_is_right(const TokenConstraint& constraint) {
  const std::vector<int32_t> ids = test::allowed(constraint, tokenizer()->vocab_size());
  size_t at = 0;
  for (int32_t id = 0; id < tokenizer()->vocab_size(); ++id) {
    const bool in_mask = at < ids.size() && ids[at] == id;
    at += in_mask ? 1 : 0;
    ASSERT_EQ(constraint.allows(id), in_mask) << id;
    ASSERT_FALSE(in_mask && tokenizer()->is_control(id) && !tokenizer()->is_end(id)) << id;
  }
}

TEST(RealGrammar, MasksAndOutputs) {
  SKIP_WITHOUT_TOKENIZER();
  std::mt19937 random(1);
  for (const auto& grammar : {real_grammar(GrammarKind::kJsonSchema, kSchema),
                              real_grammar(GrammarKind::kJsonObject, "")}) {
    auto constraint = make_constraint(grammar);
    for (int step = 0; step < 12; ++step) {
      expect_mask_is_right(*constraint);
      const auto ids = test::allowed(*constraint, tokenizer()->vocab_size());
      constraint->advance(ids[random() % ids.size()]);
    }
    for (int i = 0; i < (test::kSanitized ? 3 : 30); ++i) {
      const std::string text = test::random_output(grammar, *tokenizer(), random);
      EXPECT_TRUE(nlohmann::json::parse(text, nullptr, false).is_object()) << text;
    }
  }
}

double cpu_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

// The document's tokens, advance and mask for each.
size_t follow(const std::shared_ptr<const Grammar>& grammar, const std::string& document,
              std::span<bool> flags) {
  auto constraint = make_constraint(grammar);
  const std::vector<int32_t> ids = test::encode(*tokenizer(), document);
  for (const int32_t id : ids) {
    constraint->mask(flags);
    EXPECT_TRUE(flags[static_cast<size_t>(id)]);
    constraint->advance(id);
  }
  return ids.size();
}

TEST(RealGrammar, TimePerNode) {
  SKIP_WITHOUT_TOKENIZER();
  const double opened = cpu_seconds();
  const auto grammar = real_grammar(GrammarKind::kJsonSchema, kSchema);
  fmt::print("compiling: {:.2f} ms\n", 1e3 * (cpu_seconds() - opened));
  const auto size = static_cast<size_t>(tokenizer()->vocab_size());
  const auto flags = std::make_unique<bool[]>(size);
  const std::vector<std::string> people = {"Ann Smith", "Bob van Dyk", "Zo\u00eb M\u00fcller",
                                           "Li"};
  double first = 0;
  size_t first_nodes = 0;
  size_t nodes = 0;
  const double start = cpu_seconds();
  for (int i = 0; i < 200; ++i) {
    const std::string& name = people[static_cast<size_t>(i) % people.size()];
    const std::string document = fmt::format(
        "{{\n  \"name\": \"{}\",\n  \"age\": {},\n  \"email\": \"m{}@example.org\",\n  "
        "\"address\": "
        "{{\"street\": \"{} Long Lane\", \"city\": \"Oslo\"}},\n  \"tags\": [\"a\", \"number "
        "{}\"]\n}}",
        name, i % 100, i, i, i);
    const double before = cpu_seconds();
    const size_t count = follow(grammar, document, {flags.get(), size});
    if (i == 0) {
      first = cpu_seconds() - before;
      first_nodes = count;
    }
    nodes += count;
  }
  const double all = cpu_seconds() - start;
  const double each = 1e6 * all / static_cast<double>(nodes);
  fmt::print("the first document: {:.1f} us a node ({} nodes); 200 documents: {:.1f} us a node\n",
             1e6 * first / static_cast<double>(first_nodes), first_nodes, each);
  EXPECT_LT(each, test::kSanitized ? 5000 : 50);
}

}  // namespace aerie::grammar_real_test
