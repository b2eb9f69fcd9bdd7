// Runs the fuzzer's body over the committed seeds and findings.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "jinja/template.h"

int fuzz_jinja(const uint8_t* data, size_t size);

namespace aerie::jinja_corpus_test {

TEST(JinjaCorpus, EverySeed) {
  int seeds = 0, valid = 0;
  for (const auto& entry : std::filesystem::directory_iterator("tests/fuzz/corpus/jinja")) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    fuzz_jinja(reinterpret_cast<const uint8_t*>(text.data()), text.size());
    ++seeds;
    if (jinja::Template::parse(text.substr(0, text.find('\0'))).ok()) ++valid;
  }
  EXPECT_GE(seeds, 8);
  EXPECT_GE(valid, 6);
}

}  // namespace aerie::jinja_corpus_test
