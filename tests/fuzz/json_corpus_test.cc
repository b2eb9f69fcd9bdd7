#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "format/json.h"
#include "tests/fuzz/corpus.h"

int fuzz_json(const uint8_t* data, size_t size);

namespace aerie::json_corpus_test {

TEST(JsonCorpus, EverySeed) {
  const auto is_valid = [](const std::string& path) { return read_json(path).ok(); };
  const test::SeedCount seeds = test::run_seeds(fuzz_json, "tests/fuzz/corpus/json", is_valid);
  EXPECT_GE(seeds.valid, 4);
  EXPECT_GE(seeds.all - seeds.valid, 6);
}

}  // namespace aerie::json_corpus_test
