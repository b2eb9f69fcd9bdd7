#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "grammar/token_trie.h"
#include "tests/grammar/matching.h"
#include "tests/testing/tiny_model.h"

namespace aerie {
namespace {

std::vector<int32_t> allowed(const TokenConstraint& constraint, int vocab) {
  const auto mask = std::make_unique<bool[]>(vocab);
  std::fill(mask.get(), mask.get() + vocab, true);
  constraint.mask({mask.get(), static_cast<size_t>(vocab)});
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < vocab; ++id) {
    if (mask[id]) ids.push_back(id);
  }
  return ids;
}

TEST(Constraint, MaskAgreesWithAllows) {
  const auto grammar = test::must_compile(GrammarKind::kJsonObject, "");
  const std::string text = R"({"key": ["é\n", -1.5e3, true, {}]})";
  const auto constraint = make_constraint(grammar);
  for (size_t i = 0; i <= text.size(); ++i) {
    std::vector<int32_t> one_by_one;
    // Ids past the vocabulary's end are asked for too: logits may be padded.
    for (int32_t id = 0; id < test::kByteVocab + 5; ++id) {
      if (constraint->allows(id)) one_by_one.push_back(id);
    }
    EXPECT_FALSE(one_by_one.empty());
    EXPECT_EQ(allowed(*constraint, test::kByteVocab + 5), one_by_one) << i;
    if (i < text.size()) {
      for (int32_t id = 0; id < 256; ++id) {
        if (test::byte_tokenizer().piece(id) == text.substr(i, 1)) constraint->advance(id);
      }
    }
  }
  EXPECT_TRUE(constraint->allows(test::kTurnEnd));
}

TEST(Constraint, AfterAnEndOnlyEnds) {
  const auto constraint = make_constraint(test::must_compile(GrammarKind::kRegex, "a*"));
  const auto fork = constraint->fork();
  EXPECT_TRUE(constraint->allows(test::kTurnEnd));
  constraint->advance(test::kTurnEnd);
  for (const int32_t id : allowed(*constraint, test::kByteVocab)) {
    EXPECT_TRUE(test::byte_tokenizer().is_end(id)) << id;
    EXPECT_TRUE(constraint->allows(id));
  }
  EXPECT_TRUE(constraint->forced().empty());
  EXPECT_GT(allowed(*fork, test::kByteVocab).size(), allowed(*constraint, test::kByteVocab).size());
  EXPECT_FALSE(fork->allows(test::kTurnStart));
}

TEST(Constraint, Forced) {
  const auto forced = [](const std::string& regex) {
    return make_constraint(test::must_compile(GrammarKind::kRegex, regex))->forced();
  };
  EXPECT_EQ(forced("abc"), "abc");
  EXPECT_EQ(forced("abc|abd"), "ab");
  EXPECT_EQ(forced("ab(cd)?"), "ab");
  EXPECT_EQ(forced("a|b"), "");
  EXPECT_EQ(forced("é|è"), "\xC3");
  EXPECT_EQ(forced("a{100}"), std::string(64, 'a'));
  EXPECT_EQ(forced(""), "");
}

// Nested brackets are new states without end; what is kept of them is bounded.
TEST(Constraint, ManyStatesAreForgotten) {
  const auto grammar = test::must_compile(GrammarKind::kGbnf, "root ::= \"(\" root \")\" | \"x\"");
  std::string text = std::string(60'000, '(') + "x" + std::string(60'000, ')');
  EXPECT_TRUE(test::accepts(grammar, text));
  text.pop_back();
  EXPECT_FALSE(test::accepts(grammar, text));
  EXPECT_TRUE(test::accepts(grammar, "((x))"));
}

// Too many readings at once are dropped, but what is allowed still ends.
TEST(Constraint, AmbiguityIsBounded) {
  const auto grammar =
      test::must_compile(GrammarKind::kGbnf,
                         "root ::= (a | b | c) (\"!\" | root)\na ::= \"x\" d\nb ::= \"x\" e\n"
                         "c ::= \"x\" \"x\"?\nd ::= (root \"y\")?\ne ::= (root \"z\")?");
  EXPECT_TRUE(test::accepts(grammar, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx!"));
}

TEST(Constraint, ThreadsShareAGrammar) {
  const auto grammar = test::must_compile(GrammarKind::kJsonObject, "");
  std::vector<std::thread> threads;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      for (uint64_t i = 0; i < 20; ++i) {
        const std::string text = test::random_text(grammar, seed * 20 + i, 40);
        EXPECT_TRUE(test::accepts(grammar, text)) << text;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace aerie
