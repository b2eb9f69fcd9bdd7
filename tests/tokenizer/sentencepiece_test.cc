// tokenizer.model files, held to SentencePiece's own library.
#include <gtest/gtest.h>

#include "tests/tokenizer/vocabularies.h"
#include "tokenizer/hf_folder.h"

namespace aerie {
namespace {

using Ids = std::vector<int32_t>;
using nlohmann::json;
using test::kShared;

const json& goldens() {
  static const json kAll =
      json::parse(test::read_file("tests/golden/tokenizers/sentencepiece.json"));
  return kAll;
}

std::unique_ptr<Tokenizer> load(const std::filesystem::path& path) {
  auto tokenizer = tokenizer_from_sentencepiece(test::read_file(path), path.filename(), {});
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return tokenizer.ok() ? std::move(*tokenizer) : nullptr;
}

void expect_ids(const Tokenizer& tokenizer, const json& ids) {
  const json& texts = goldens().at("texts");
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(test::encode(tokenizer, texts[i].get<std::string>()), ids.at(i).get<Ids>())
        << texts[i];
  }
}

TEST(SentencePiece, TestModel) {
  AERIE_SKIP_WITHOUT(kShared / "tokenizers");
  const auto tokenizer = load(kShared / "tokenizers/sentencepiece/test_model.model");
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->vocab_size(), 1000);
  EXPECT_EQ(tokenizer->unk(), 0);
  EXPECT_EQ(tokenizer->bos(), 1);
  EXPECT_EQ(tokenizer->eos(), 2);
  expect_ids(*tokenizer, goldens().at("shared").at("ids"));
  std::vector<std::string> lines;
  std::istringstream file(test::read_file(kShared / "tokenizers/sentencepiece/botchan.txt"));
  for (std::string line; std::getline(file, line);) {
    if (line.ends_with('\r')) line.pop_back();
    lines.push_back(line);
  }
  size_t compared = 0;
  for (const auto& [index, ids] : goldens().at("shared").at("lines").items()) {
    const std::string& line = lines.at(std::stoul(index));
    EXPECT_EQ(test::encode(*tokenizer, line), ids.get<Ids>()) << line;
    ++compared;
  }
  EXPECT_GE(compared, 150u);
}

class TinyModel : public ::testing::TestWithParam<const char*> {};

TEST_P(TinyModel, Ids) {
  const auto tokenizer = load(std::string("tests/golden/tokenizers/") + GetParam() + ".model");
  ASSERT_NE(tokenizer, nullptr);
  expect_ids(*tokenizer, goldens().at("models").at(GetParam()).at("ids"));
}

// Read back from its GGUF metadata: the same ids.
TEST_P(TinyModel, GgufForm) {
  const auto tokenizer = load(std::string("tests/golden/tokenizers/") + GetParam() + ".model");
  ASSERT_NE(tokenizer, nullptr);
  const auto metadata = tokenizer->gguf_metadata();
  if (std::string_view(GetParam()) == "unigram_suffix") {
    EXPECT_EQ(metadata.status().code(), StatusCode::kUnsupported);
    return;
  }
  ASSERT_TRUE(metadata.ok()) << metadata.status().message();
  const auto again = test::create(*metadata);
  ASSERT_NE(again, nullptr);
  const bool noted = !metadata->notes.empty();  // user-defined tokens behind a dummy space
  size_t equal = 0;
  for (const auto& text : goldens().at("texts")) {
    const auto ids = test::encode(*tokenizer, text.get<std::string>());
    const bool same = test::encode(*again, text.get<std::string>()) == ids;
    EXPECT_TRUE(same || noted) << text;
    equal += same;
  }
  EXPECT_GE(equal, noted ? 30u : goldens().at("texts").size());
}

INSTANTIATE_TEST_SUITE_P(All, TinyModel,
                         ::testing::Values("bpe_bytes", "bpe_plain", "bpe_bare", "unigram_bytes",
                                           "unigram_suffix", "unigram_map"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace aerie
