#include <gtest/gtest.h>

#include "tests/fuzz/corpus.h"
#include "tests/grammar/grammars.h"

int fuzz_grammar(const uint8_t* data, size_t size);

namespace aerie::grammar_corpus_test {

// What begins with "bad" is refused.
TEST(GrammarCorpus, EverySeed) {
  const auto is_valid = [](const std::string& path) {
    return !std::filesystem::path(path).filename().string().starts_with("bad");
  };
  const test::SeedCount seeds =
      test::run_seeds(fuzz_grammar, "tests/fuzz/corpus/grammar", is_valid);
  EXPECT_GE(seeds.valid, 8);
  EXPECT_GE(seeds.all - seeds.valid, 3);
}

}  // namespace aerie::grammar_corpus_test
