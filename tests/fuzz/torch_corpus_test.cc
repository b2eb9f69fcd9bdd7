#include <gtest/gtest.h>

#include "format/torch/torch_file.h"
#include "tests/fuzz/corpus.h"

int fuzz_torch(const uint8_t* data, size_t size);

namespace aerie::torch_corpus_test {

constexpr const char* kCorpus = "tests/fuzz/corpus/torch/";

TEST(TorchCorpus, EverySeed) {
  const auto is_valid = [](const std::string& path) { return TorchFile::open(path).ok(); };
  const test::SeedCount seeds = test::run_seeds(fuzz_torch, kCorpus, is_valid);
  EXPECT_GE(seeds.valid, 10);
  EXPECT_GE(seeds.all - seeds.valid, 4);
}

// Each byte changed in two ways, and the file cut off before it.
TEST(TorchCorpus, EveryByteBroken) {
  for (const char* name : {"module.pt", "nested.pt", "old.pt", "protocol4.pt"}) {
    std::ifstream file(std::string(kCorpus) + name, std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    ASSERT_FALSE(text.empty());
    for (size_t i = 0; i < text.size(); ++i) {
      for (const uint8_t change : {0x01, 0x80}) {
        std::string broken = text;
        broken[i] = static_cast<char>(static_cast<uint8_t>(broken[i]) ^ change);
        fuzz_torch(reinterpret_cast<const uint8_t*>(broken.data()), broken.size());
      }
      const std::string cut = text.substr(0, i);
      fuzz_torch(reinterpret_cast<const uint8_t*>(cut.data()), cut.size());
    }
  }
}

}  // namespace aerie::torch_corpus_test
