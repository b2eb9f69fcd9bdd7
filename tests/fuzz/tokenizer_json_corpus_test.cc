#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "tests/fuzz/corpus.h"
#include "tokenizer/load/hf_folder.h"

int fuzz_tokenizer_json(const uint8_t* data, size_t size);

namespace aerie::tokenizer_json_corpus_test {

TEST(TokenizerJsonCorpus, EverySeed) {
  const auto is_valid = [](const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(file), {});
    return tokenizer_from_json(bytes, path, {}).ok();
  };
  const test::SeedCount seeds =
      test::run_seeds(fuzz_tokenizer_json, "tests/fuzz/corpus/tokenizer_json", is_valid);
  EXPECT_GE(seeds.valid, 45);
  EXPECT_GE(seeds.all - seeds.valid, 1);
}

}  // namespace aerie::tokenizer_json_corpus_test
