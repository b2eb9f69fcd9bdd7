#include <gtest/gtest.h>

#include "tests/fuzz/corpus.h"

namespace aerie {
namespace {

TEST(RequestCorpus, EverySeed) {
  const auto all = [](const std::string&) { return true; };
  EXPECT_GE(test::run_seeds("tests/fuzz/corpus/request", all).all, 12);
}

}  // namespace
}  // namespace aerie
