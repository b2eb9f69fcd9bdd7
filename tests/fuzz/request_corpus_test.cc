#include <gtest/gtest.h>

#include "tests/fuzz/corpus.h"

int fuzz_request(const uint8_t* data, size_t size);

namespace aerie::request_corpus_test {

TEST(RequestCorpus, EverySeed) {
  const auto all = [](const std::string&) { return true; };
  EXPECT_GE(test::run_seeds(fuzz_request, "tests/fuzz/corpus/request", all).all, 12);
}

}  // namespace aerie::request_corpus_test
