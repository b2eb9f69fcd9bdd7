// Masks, forks and forced bytes.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "tests/grammar/grammars.h"

namespace aerie::automaton_test {

using test::toy;

constexpr const char* kMixed =
    "root ::= \"a\" ( \"b\" | [^\\x00-\\x7f]+ \"\\\"\" )* (\"abc\" | root)? [0-9]{1,3}";

std::vector<int32_t> ids_of(const TokenConstraint& constraint) {
  return test::allowed(constraint, toy().vocab_size() + 100);
}

// What mask() has to say, token by token.
std::vector<int32_t> expected(const TokenConstraint& constraint) {
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < toy().vocab_size(); ++id) {
    if (toy().is_end(id)) {
      if (constraint.allows(id)) ids.push_back(id);
      continue;
    }
    if (toy().is_control(id) || toy().piece(id).empty()) continue;
    auto copy = constraint.fork();
    bool fits = true;
    for (const char byte : toy().piece(id)) {
      fits = fits && copy->allows(static_cast<uint8_t>(byte));
      if (fits) copy->advance(static_cast<uint8_t>(byte));
    }
    if (fits) ids.push_back(id);
  }
  return ids;
}

void expect_masks_agree(const std::shared_ptr<const Grammar>& grammar, std::mt19937& random) {
  auto constraint = make_constraint(grammar);
  for (int step = 0; step < 60; ++step) {
    const std::vector<int32_t> ids = ids_of(*constraint);
    ASSERT_FALSE(ids.empty());
    ASSERT_EQ(ids, expected(*constraint));
    for (int32_t id = -1; id < toy().vocab_size() + 100; ++id) {
      ASSERT_EQ(constraint->allows(id), std::find(ids.begin(), ids.end(), id) != ids.end());
    }
    const int32_t token = ids[random() % ids.size()];
    constraint->advance(token);
    if (toy().is_end(token)) break;
  }
}

TEST(Constraint, MaskIsWhatBytesSay) {
  std::mt19937 random(1);
  const auto gbnf = test::compile(GrammarKind::kGrammar, kMixed);
  const auto object = test::compile(GrammarKind::kJsonObject, "");
  for (int i = 0; i < 30; ++i) {
    expect_masks_agree(gbnf, random);
    expect_masks_agree(object, random);
  }
}

TEST(Constraint, ObjectsAreJson) {
  std::mt19937 random(2);
  const auto grammar = test::compile(GrammarKind::kJsonObject, "");
  for (int i = 0; i < 300; ++i) {
    const std::string text = test::random_output(grammar, toy(), random);
    const auto value = nlohmann::json::parse(text, nullptr, false);
    EXPECT_TRUE(value.is_object()) << text;
  }
  for (const char* text :
       {"{}", "{\"a\":1}", "{ \"a\": [1, 2.5e-3, {\"b\": null}], \"c\": \"\\u00e9\"}",
        "{\n  \"a\": true\n}"}) {
    EXPECT_TRUE(test::accepts(grammar, text)) << text;
  }
  for (const char* text : {"", "[]", "{\"a\":01}", "{\"a\":1,}", "{  }", "{\"\\ud800\":1}",
                           "{'a':1}", "{} ", "{\"a\":1e999}"}) {
    EXPECT_FALSE(test::accepts(grammar, text)) << text;
  }
}

TEST(Constraint, EndTokensWhereComplete) {
  const auto grammar = test::compile(GrammarKind::kRegex, "ab?");
  auto constraint = make_constraint(grammar);
  EXPECT_FALSE(constraint->allows(toy().eos()));
  constraint->advance('a');
  EXPECT_EQ(ids_of(*constraint), (std::vector<int32_t>{'b', toy().eos(), toy().eos() + 1}));
  constraint->advance('b');
  EXPECT_EQ(ids_of(*constraint), (std::vector<int32_t>{toy().eos(), toy().eos() + 1}));
  constraint->advance(toy().eos());
  EXPECT_EQ(ids_of(*constraint), (std::vector<int32_t>{toy().eos(), toy().eos() + 1}));
  EXPECT_EQ(constraint->forced(), "");
  EXPECT_FALSE(constraint->allows(toy().control()));
}

TEST(Constraint, ForksGoTheirOwnWays) {
  const auto grammar = test::compile(GrammarKind::kRegex, "a(b|c)d");
  auto one = make_constraint(grammar);
  one->advance('a');
  auto other = one->fork();
  one->advance('b');
  EXPECT_EQ(ids_of(*one), std::vector<int32_t>{'d'});
  EXPECT_TRUE(other->allows('b'));
  EXPECT_TRUE(other->allows('c'));
}

TEST(Constraint, ForcedBytes) {
  const auto forced = [](const char* pattern) {
    return make_constraint(test::compile(GrammarKind::kRegex, pattern))->forced();
  };
  EXPECT_EQ(forced("abc(d|e)"), "abc");
  EXPECT_EQ(forced("(abx|aby)z"), "ab");
  EXPECT_EQ(forced("ab*"), "a");
  EXPECT_EQ(forced("[ab]c"), "");
  EXPECT_EQ(forced("a?b"), "");
  EXPECT_EQ(forced("a{200}").size(), 64u);
}

TEST(Constraint, ChoiceOfTexts) {
  GrammarSpec spec;
  spec.kind = GrammarKind::kChoice;
  spec.choices = {"yes", "no", "", "yes, please"};
  const auto grammar = test::compile(spec, test::toy_trie());
  for (const std::string& choice : spec.choices) EXPECT_TRUE(test::accepts(grammar, choice));
  EXPECT_FALSE(test::accepts(grammar, "yes,"));
  EXPECT_FALSE(test::accepts(grammar, "nope"));
  spec.choices.clear();
  EXPECT_EQ(compile_grammar(spec, test::toy_trie()).status().code(), StatusCode::kInvalidArgument);
}

TEST(Constraint, WhatCannotBeSpelledIsLeftOut) {
  const test::ToyTokenizer without_b("b");
  const auto trie = make_token_trie(without_b);
  GrammarSpec spec;
  spec.kind = GrammarKind::kRegex;
  spec.text = "a(b1|c)|bc";
  const auto grammar = test::compile(spec, trie);
  EXPECT_EQ(make_constraint(grammar)->forced(), "ac");
  spec.text = "ab";
  EXPECT_EQ(compile_grammar(spec, trie).status().code(), StatusCode::kInvalidArgument);
}

TEST(Constraint, ThreadsShareAGrammar) {
  const auto grammar = test::compile(GrammarKind::kJsonObject, "");
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&grammar, seed] {
      std::mt19937 random(seed % 2);
      for (int i = 0; i < 20; ++i) {
        const std::string text = test::random_output(grammar, toy(), random);
        EXPECT_FALSE(nlohmann::json::parse(text, nullptr, false).is_discarded()) << text;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace aerie::automaton_test
