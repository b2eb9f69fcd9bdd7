// tokenizer.model files, held to SentencePiece's own library.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "tests/tokenizer/vocabularies.h"
#include "tokenizer/load/hf_folder.h"
#include "tokenizer/pieces/bpe.h"
#include "tokenizer/vocabulary.h"

namespace aerie::sentencepiece_test {

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

// The same tokenizer as a tokenizer.json, with a merge for each pair that makes a token, which is
// how Hugging Face converts them: the same ids, and the way back to scores.
TEST(SentencePiece, AsMerges) {
  const auto model = load("tests/golden/tokenizers/bpe_bare.model");
  ASSERT_NE(model, nullptr);
  const auto metadata = model->gguf_metadata();
  ASSERT_TRUE(metadata.ok());
  Vocabulary vocabulary;
  json vocab = json::object();
  for (size_t id = 0; id < metadata->tokens.size(); ++id) {
    const std::string& name = metadata->tokens[id];
    ASSERT_TRUE(vocabulary.add(name, name, metadata->types[id], {}).ok());
    vocab[name] = id;
  }
  ASSERT_TRUE(vocabulary.finish({}, {}).ok());
  std::vector<MergeRule> rules = Bpe::rules_of_scores(vocabulary);
  std::sort(rules.begin(), rules.end(), [&](const MergeRule& a, const MergeRule& b) {
    return metadata->scores[static_cast<size_t>(a.result)] >
           metadata->scores[static_cast<size_t>(b.result)];
  });
  json merges = json::array();
  for (const MergeRule& rule : rules) {
    merges.push_back({vocabulary.name(rule.left), vocabulary.name(rule.right)});
  }
  json file = json::parse(R"({
    "added_tokens": [{"id": 0, "content": "<unk>", "special": true},
                     {"id": 1, "content": "<s>", "special": true},
                     {"id": 2, "content": "</s>", "special": true}],
    "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    "decoder": {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
  })");
  file["model"] = {{"type", "BPE"},
                   {"vocab", vocab},
                   {"merges", merges},
                   {"unk_token", "<unk>"},
                   {"fuse_unk", true}};
  const auto tokenizer = tokenizer_from_json(file.dump(), "x", {});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const auto form = tokenizer.value()->gguf_metadata();
  ASSERT_TRUE(form.ok()) << form.status().message();
  EXPECT_EQ(form->model, "llama");
  const auto again = test::create(*form);
  ASSERT_NE(again, nullptr);
  for (const auto& text : goldens().at("texts")) {
    const auto ids = test::encode(*model, text.get<std::string>());
    EXPECT_EQ(test::encode(**tokenizer, text.get<std::string>()), ids) << text;
    EXPECT_EQ(test::encode(*again, text.get<std::string>()), ids) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(All, TinyModel,
                         ::testing::Values("bpe_bytes", "bpe_plain", "bpe_bare", "unigram_bytes",
                                           "unigram_suffix", "unigram_map"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace aerie::sentencepiece_test
