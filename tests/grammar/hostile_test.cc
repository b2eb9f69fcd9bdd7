// Small requests that ask for much: what is refused, what is cheap now, and that memory stays
// bounded.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <random>
#include <thread>

#include "tests/grammar/grammars.h"
#include "tests/testing/sanitized.h"

namespace aerie::hostile_test {

using test::accepts;

// That are allocated now.
size_t held_bytes() {
  const auto info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

Status compiled(GrammarKind kind, const std::string& text) {
  return compile_grammar({kind, text, {}}, test::toy_trie()).status();
}

// Each level says the one below it twice.
std::string doubling_schema(int levels, const char* first) {
  std::string text = fmt::format(R"({{"$ref":"#/$defs/d{}","$defs":{{"d0":{}}}}})", levels, first);
  text.resize(text.size() - 2);
  for (int i = 1; i <= levels; ++i) {
    text += fmt::format(R"(,"d{}":{{"allOf":[{{"$ref":"#/$defs/d{}"}},{{"$ref":"#/$defs/d{}"}}]}})",
                        i, i - 1, i - 1);
  }
  return text + "}}";
}

TEST(Hostile, WhatIsSaidTwiceIsSaidOnce) {
  const auto grammar =
      test::compile(GrammarKind::kJsonSchema,
                    doubling_schema(64, R"({"anyOf":[{"type":"integer"},{"type":"string"}]})"));
  EXPECT_TRUE(accepts(grammar, "12"));
  EXPECT_TRUE(accepts(grammar, "\"a\""));
  EXPECT_FALSE(accepts(grammar, "null"));
  // Not the same reference, and alternatives that overlap.
  std::string web =
      R"({"$ref":"#/$defs/d12","$defs":{"d0":{"anyOf":[{"minimum":1},{"maximum":9}]})";
  for (int i = 1; i <= 12; ++i) {
    web += fmt::format(
        R"(,"d{}":{{"allOf":[{{"$ref":"#/$defs/d{}"}},{{"title":"x","$ref":"#/$defs/d{}"}}]}})", i,
        i - 1, i - 1);
  }
  EXPECT_EQ(compiled(GrammarKind::kJsonSchema, web + "}}").code(), StatusCode::kOk);
}

TEST(Hostile, ValuesAgainstAWebOfReferences) {
  std::string web = doubling_schema(40, R"({"type":"integer"})");
  web.insert(1, R"("enum":[1,"a",2],)");
  const auto grammar = test::compile(GrammarKind::kJsonSchema, web);
  EXPECT_TRUE(accepts(grammar, "2"));
  EXPECT_FALSE(accepts(grammar, "\"a\""));
}

TEST(Hostile, Multiples) {
  for (const int of : {97, 9999}) {
    const auto grammar = test::compile(GrammarKind::kJsonSchema,
                                       fmt::format(R"({{"type":"integer","multipleOf":{}}})", of));
    for (const int64_t factor : {0, 1, 2, 12, 4711, 123456789}) {
      EXPECT_TRUE(accepts(grammar, std::to_string(factor * of)));
      EXPECT_FALSE(accepts(grammar, std::to_string(factor * of + 1)));
      EXPECT_EQ(accepts(grammar, std::to_string(-factor * of)), true) << factor;
    }
    EXPECT_FALSE(accepts(grammar, "00"));
    EXPECT_FALSE(accepts(grammar, "-0"));
  }
  const auto ranged =
      test::compile(GrammarKind::kJsonSchema,
                    R"({"type":"integer","multipleOf":7,"minimum":-20,"exclusiveMaximum":140})");
  for (int i = -200; i <= 1000; ++i) {
    EXPECT_EQ(accepts(ranged, std::to_string(i)), i % 7 == 0 && i >= -20 && i < 140) << i;
  }
  const auto above =
      test::compile(GrammarKind::kJsonSchema, R"({"type":"integer","multipleOf":7,"minimum":95})");
  for (int i = -200; i <= 2000; ++i)
    EXPECT_EQ(accepts(above, std::to_string(i)), i % 7 == 0 && i >= 95) << i;
  const auto below = test::compile(GrammarKind::kJsonSchema,
                                   R"({"type":"integer","multipleOf":13,"maximum":-100})");
  for (int i = -2000; i <= 200; ++i)
    EXPECT_EQ(accepts(below, std::to_string(i)), i % 13 == 0 && i <= -100) << i;
}

TEST(Hostile, WideEnumerations) {
  std::string text = "{\"enum\":[";
  for (int i = 0; i < 30000; ++i)
    text += fmt::format("{}\"s{:05}\"", i == 0 ? "" : ",", i * 7919 % 100000);
  const auto grammar = test::compile(GrammarKind::kJsonSchema, text + "]}");
  EXPECT_TRUE(accepts(grammar, "\"s07919\""));
  EXPECT_FALSE(accepts(grammar, "\"s0791\""));
}

TEST(Hostile, ManyStacksOfOneState) {
  for (const char* pattern : {"(.{0,300}){3}", "(.{0,3000}){3}", ".*.{3000}", "(.{0,30}é?){40}"}) {
    const size_t before = held_bytes();
    GrammarSpec spec;
    spec.kind = GrammarKind::kRegex;
    spec.text = pattern;
    const auto grammar = compile_grammar(spec, test::toy_trie());
    if (!grammar.ok()) {
      EXPECT_EQ(grammar.status().code(), StatusCode::kResourceExhausted) << pattern;
      continue;
    }
    auto constraint = make_constraint(*grammar);
    const std::string text = "Grüße, 123 \"x\" und noch etwas mehr, das lang genug ist. ";
    for (const char byte : text) {
      ASSERT_TRUE(constraint->allows(static_cast<uint8_t>(byte))) << pattern;
      EXPECT_FALSE(test::allowed(*constraint, test::toy().vocab_size()).empty());
      constraint->advance(static_cast<uint8_t>(byte));
    }
    const size_t grown = held_bytes() - std::min(before, held_bytes());
    fmt::print("{}: {} MiB\n", pattern, grown >> 20);
    if (!test::kSanitized) {
      EXPECT_LT(grown, size_t{64} << 20) << pattern;
    }
  }
}

// Walks along random outputs until they end, the constraint fails or so many tokens are written.
void walk(TokenConstraint& constraint, std::mt19937& random, int most) {
  std::vector<int32_t> ids;
  for (int i = 0; i < most; ++i) {
    if (constraint.prepare() != TokenConstraint::Readiness::kReady) return;
    ids = test::allowed(constraint, test::toy().vocab_size());
    ASSERT_FALSE(ids.empty());
    const int32_t token = ids[random() % ids.size()];
    constraint.advance(token);
    if (test::toy().is_end(token)) return;
  }
}

std::vector<GrammarSpec> hostile_specs() {
  std::vector<GrammarSpec> specs;
  const auto add = [&](GrammarKind kind, std::string text) {
    specs.push_back({kind, std::move(text), {}});
  };
  for (const char* pattern :
       {"(.{0,300}){3}", "(.{0,3000}){3}", ".*.{3000}", "(.{0,30}é?){40}",
        "((a|b|ab|ba){0,40}){40}", "(a?){2000}a{2000}", "(.*x){60}", "(.*[a-m].{12}){8}"}) {
    add(GrammarKind::kRegex, pattern);
  }
  add(GrammarKind::kGrammar, "root ::= s\ns ::= \"a\" s s | \"a\" s | \"a\"");
  add(GrammarKind::kGrammar,
      "root ::= (a | b | c)*\na ::= [a-z] root? b?\nb ::= [a-y] a? root?\n"
      "c ::= [a-x] b? a?");
  add(GrammarKind::kJsonSchema, R"({"type":"array","items":{"$ref":"#"}})");
  std::string numbers = R"({"anyOf":[)";
  for (int i = 0; i < 300; ++i) {
    numbers += fmt::format(R"({}{{"type":"integer","minimum":{},"maximum":{}}})", i == 0 ? "" : ",",
                           int64_t{i} * 123456789, int64_t{i} * 987654321 + 5);
  }
  add(GrammarKind::kJsonSchema, numbers + "]}");
  return specs;
}

TEST(Hostile, StatesAndMasksHaveALimit) {
  std::mt19937 random(5);
  constexpr size_t kLimit = size_t{4} << 20;
  int failed = 0;
  for (const GrammarSpec& spec : hostile_specs()) {
    SCOPED_TRACE(spec.text.substr(0, 80));
    const size_t before = held_bytes();
    const auto pool = std::make_shared<GrammarPool>(GrammarPoolOptions{2 * kLimit, 1}, nullptr);
    CompileOptions options;
    options.pool = pool;
    size_t most = 0;
    {
      const auto grammar = compile_grammar(spec, test::toy_trie(), options);
      if (!grammar.ok()) {
        EXPECT_EQ(grammar.status().code(), StatusCode::kResourceExhausted);
        EXPECT_THAT(grammar.status().message(), testing::HasSubstr("more than"));
        ++failed;
      }
      for (int i = 0; i < 3 && grammar.ok(); ++i) {
        auto constraint = make_constraint(*grammar);
        walk(*constraint, random, 150);
        most = std::max(most, held_bytes() - std::min(before, held_bytes()));
        EXPECT_LE(pool->memory()->used(), pool->memory()->limit());
        if (constraint->status().ok()) continue;
        ++failed;
        EXPECT_EQ(constraint->status().code(), StatusCode::kResourceExhausted);
        EXPECT_THAT(constraint->status().message(), testing::HasSubstr("more than"));
        // Of forks too, and nothing but the end can come.
        const auto fork = constraint->fork();
        EXPECT_FALSE(fork->ready());
        for (const int32_t id : test::allowed(*fork, test::toy().vocab_size())) {
          EXPECT_TRUE(test::toy().is_end(id));
        }
      }
    }
    pool->stop();
    EXPECT_EQ(pool->memory()->used(), 0u);
    // What is counted is about what is held; two tables and a program at once.
    if (!test::kSanitized) {
      EXPECT_LT(most, 3 * kLimit);
    }
  }
  EXPECT_GT(failed, 0);
}

// Masks are the same whether all states are kept or the table is begun afresh again and again.
TEST(Hostile, ATableThatIsBegunAfreshSaysTheSame) {
  const GrammarSpec spec{GrammarKind::kRegex, "[a-d]*a[a-d]{14}x", {}};
  const auto pool = std::make_shared<GrammarPool>(GrammarPoolOptions{size_t{1} << 20, 1}, nullptr);
  CompileOptions options;
  options.pool = pool;
  {
    const auto all = test::compile(spec, test::toy_trie());
    const auto little = compile_grammar(spec, test::toy_trie(), options);
    ASSERT_TRUE(little.ok()) << little.status().message();
    std::mt19937 random(8);
    for (int i = 0; i < 300; ++i) {
      auto a = make_constraint(all);
      auto b = make_constraint(*little);
      for (int step = 0; step < 400; ++step) {
        ASSERT_EQ(b->prepare(), TokenConstraint::Readiness::kReady) << b->status().message();
        const auto ids = test::allowed(*a, test::toy().vocab_size());
        ASSERT_EQ(ids, test::allowed(*b, test::toy().vocab_size()));
        const int32_t token = ids[random() % ids.size()];
        a->advance(token);
        b->advance(token);
        if (test::toy().is_end(token)) break;
      }
    }
    // Which takes more than may be held.
    EXPECT_GT(grammar_bytes(*all), pool->memory()->limit());
  }
  pool->stop();
}

// By other threads the masks are the same, too; who is gone is not waited for.
TEST(Hostile, MasksOfAPoolAreThoseOfOneThread) {
  std::atomic<int> progress{0};
  const auto pool =
      std::make_shared<GrammarPool>(GrammarPoolOptions{size_t{64} << 20, 2}, [&] { ++progress; });
  CompileOptions options;
  options.pool = pool;
  int waited = 0;
  {
    std::mt19937 random(9);
    for (const char* pattern : {"(.{0,300}){3}", "(.*x){20}", "[a-z]{1,9}"}) {
      const GrammarSpec spec{GrammarKind::kRegex, pattern, {}};
      const auto alone = test::compile(spec, test::toy_trie());
      const auto shared = compile_grammar(spec, test::toy_trie(), options);
      ASSERT_TRUE(shared.ok()) << shared.status().message();
      auto a = make_constraint(alone);
      auto b = make_constraint(*shared, pool);
      make_constraint(*shared, pool)->prepare();
      for (int step = 0; step < 40; ++step) {
        pool->charge(pool->credit(0));  // nothing is done here
        auto readiness = b->prepare();
        if (readiness == TokenConstraint::Readiness::kLater) ++waited;
        while (readiness == TokenConstraint::Readiness::kLater) {
          std::this_thread::yield();
          readiness = b->prepare();
        }
        ASSERT_EQ(readiness, TokenConstraint::Readiness::kReady) << b->status().message();
        const auto ids = test::allowed(*a, test::toy().vocab_size());
        ASSERT_EQ(ids, test::allowed(*b, test::toy().vocab_size()));
        const int32_t token = ids[random() % ids.size()];
        a->advance(token);
        b->advance(token);
        if (test::toy().is_end(token)) break;
      }
    }
  }
  EXPECT_GT(waited, 10);
  EXPECT_GT(progress.load(), 10);
  pool->stop();
}

TEST(Hostile, WhatNobodyWantsIsStopped) {
  CompileOptions options;
  int asked = 0;
  options.is_stopped = [&] { return ++asked > 1; };
  const GrammarSpec spec{GrammarKind::kRegex, "(.{0,3000}){3}", {}};
  EXPECT_EQ(compile_grammar(spec, test::toy_trie(), options).status().code(),
            StatusCode::kCancelled);
}

}  // namespace aerie::hostile_test
