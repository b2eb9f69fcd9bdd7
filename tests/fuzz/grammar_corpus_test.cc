#include <gtest/gtest.h>

#include "tests/fuzz/corpus.h"

namespace aerie {
namespace {

TEST(GrammarCorpus, EverySeed) {
  const auto seeds =
      test::run_seeds("tests/fuzz/corpus/grammar", [](const std::string&) { return true; });
  EXPECT_GE(seeds.all, 8);
}

}  // namespace
}  // namespace aerie
