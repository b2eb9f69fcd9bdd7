#include <gtest/gtest.h>

#include "format/input_file.h"
#include "hub/hub_api.h"
#include "tests/fuzz/corpus.h"

int fuzz_hub(const uint8_t* data, size_t size);

namespace aerie::hub_corpus_test {

TEST(HubCorpus, EverySeed) {
  const auto is_valid = [](const std::string& path) {
    const auto text = read_file(path);
    return text.ok() && parse_listing(*text, path).ok();
  };
  const test::SeedCount seeds = test::run_seeds(fuzz_hub, "tests/fuzz/corpus/hub", is_valid);
  EXPECT_GE(seeds.valid, 4);
  EXPECT_GE(seeds.all - seeds.valid, 6);
}

}  // namespace aerie::hub_corpus_test
