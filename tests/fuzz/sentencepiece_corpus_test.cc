#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "tests/fuzz/corpus.h"
#include "tokenizer/load/hf_folder.h"

int fuzz_sentencepiece(const uint8_t* data, size_t size);

namespace aerie::sentencepiece_corpus_test {

TEST(SentencePieceCorpus, EverySeed) {
  const auto is_valid = [](const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(file), {});
    return tokenizer_from_sentencepiece(bytes, path, {}).ok();
  };
  const test::SeedCount seeds =
      test::run_seeds(fuzz_sentencepiece, "tests/fuzz/corpus/sentencepiece", is_valid);
  EXPECT_GE(seeds.valid, 5);
  EXPECT_GE(seeds.all - seeds.valid, 3);
}

}  // namespace aerie::sentencepiece_corpus_test
