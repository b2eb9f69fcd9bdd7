// Broken and hostile files of Hugging Face folders: each refusal names the file and what is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/tokenizer/vocabularies.h"
#include "tokenizer/load/hf_folder.h"

namespace aerie::hostile_test {

using nlohmann::json;
using ::testing::HasSubstr;

json small() {
  return json::parse(R"({
    "added_tokens": [{"id": 3, "content": "<s>", "special": true}],
    "normalizer": null,
    "pre_tokenizer": {"type": "Metaspace", "replacement": "▁"},
    "decoder": {"type": "Metaspace", "replacement": "▁"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}
  })");
}

void expect_refused(const std::string& bytes, StatusCode code, const std::string& message) {
  const auto tokenizer = tokenizer_from_json(bytes, "dir/tokenizer.json", {});
  ASSERT_FALSE(tokenizer.ok()) << message;
  EXPECT_EQ(tokenizer.status().code(), code) << tokenizer.status().message();
  EXPECT_THAT(tokenizer.status().message(), HasSubstr(message));
  EXPECT_THAT(tokenizer.status().message(), HasSubstr("dir/tokenizer.json"));
}

// `value` under `path`, a JSON pointer.
void expect_refused_with(const std::string& path, const json& value, StatusCode code,
                         const std::string& message) {
  json file = small();
  file[json::json_pointer(path)] = value;
  SCOPED_TRACE(path + " = " + value.dump().substr(0, 80));
  expect_refused(file.dump(), code, message);
}

TEST(TokenizerJson, TheSmallOneIsRead) {
  const auto tokenizer = tokenizer_from_json(small().dump(), "x", {});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(tokenizer.value()->vocab_size(), 4);
}

TEST(TokenizerJson, NotJson) {
  const std::string whole = small().dump();
  for (size_t cut = 0; cut < whole.size(); cut += 7) {
    expect_refused(whole.substr(0, cut), StatusCode::kInvalidData, "dir/tokenizer.json");
  }
  expect_refused("[]", StatusCode::kInvalidData, "tokenizer.json");
  expect_refused("{}", StatusCode::kUnsupported, "decoder");
  expect_refused(std::string(100'000, '['), StatusCode::kInvalidData, "nested");
}

TEST(TokenizerJson, UnknownComponents) {
  const auto kUnsupported = StatusCode::kUnsupported;
  for (const char* type : {"BertNormalizer", "Unknown"}) {
    expect_refused_with("/normalizer", {{"type", type}}, kUnsupported, type);
    expect_refused_with("/normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", type}}}}},
                        kUnsupported, "normalizers[0]");
  }
  for (const char* type : {"UnicodeScripts", "FixedLength", "Unknown"}) {
    expect_refused_with("/pre_tokenizer", {{"type", type}}, kUnsupported, type);
  }
  for (const char* type : {"WordPiece", "BPEDecoder", "CTC", "Unknown"}) {
    expect_refused_with("/decoder", {{"type", type}}, kUnsupported, type);
  }
  for (const char* type : {"BertProcessing", "RobertaProcessing", "Unknown"}) {
    expect_refused_with("/post_processor", {{"type", type}}, kUnsupported, type);
  }
  for (const char* type : {"WordPiece", "WordLevel", "Unknown"}) {
    expect_refused_with("/model/type", type, kUnsupported, type);
  }
  expect_refused_with("/model/continuing_subword_prefix", "##", kUnsupported, "continuing_subword");
  expect_refused_with("/model/end_of_word_suffix", "</w>", kUnsupported, "end_of_word_suffix");
  expect_refused_with("/model/dropout", 0.1, kUnsupported, "dropout");
  expect_refused_with("/decoder", nullptr, kUnsupported, "decoder");
  expect_refused_with("/decoder", {{"type", "Strip"}, {"content", "x"}, {"start", 1}, {"stop", 0}},
                      kUnsupported, "Strip");
}

TEST(TokenizerJson, BrokenParts) {
  const auto kInvalid = StatusCode::kInvalidData;
  for (const char* path : {"/normalizer", "/pre_tokenizer", "/decoder", "/post_processor",
                           "/added_tokens", "/model"}) {
    for (const json& value : {json(7), json("x"), json(true)}) {
      expect_refused_with(path, value, kInvalid, std::string(path).substr(1));
    }
  }
  expect_refused_with("/normalizer", json::object(), StatusCode::kNotFound, "type");
  expect_refused_with("/normalizer", {{"type", "Replace"}, {"content", "x"}}, StatusCode::kNotFound,
                      "pattern");
  expect_refused_with("/normalizer", {{"type", "Sequence"}, {"normalizers", 3}}, kInvalid,
                      "normalizers");
  expect_refused_with("/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "%%"}},
                      kInvalid, "precompiled_charsmap");
  expect_refused_with("/normalizer",
                      {{"type", "Precompiled"}, {"precompiled_charsmap", "AAAA/w=="}}, kInvalid,
                      "character map");
  expect_refused_with("/pre_tokenizer",
                      {{"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "Gone"}},
                      kInvalid, "Gone");
  expect_refused_with("/pre_tokenizer/replacement", "ab", kInvalid, "replacement");
  expect_refused_with("/pre_tokenizer/prepend_scheme", "often", kInvalid, "prepend_scheme");
  expect_refused_with(
      "/post_processor",
      {{"type", "TemplateProcessing"},
       {"single", {{{"SpecialToken", {{"id", "<x>"}}}}, {{"Sequence", {{"id", "A"}}}}}}},
      kInvalid, "<x>");
}

TEST(TokenizerJson, BrokenExpressions) {
  for (const char* pattern :
       {"(", "[", "a{2}?", "\\p{Nonsense}", "(?x)a", "[[:alpha:]]", "[a&&b]", "\\", "\\G", "\\xE9",
        "(?<!a+)b", "\\k<a>", "(*ANYCRLF)a", "[^[^a]]", "\\12", "a(?i)b"}) {
    expect_refused_with(
        "/pre_tokenizer",
        {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}},
        StatusCode::kUnsupported, "regular expression");
  }
  json many = {{"type", "Sequence"}, {"pretokenizers", json::array()}};
  for (int i = 0; i < 65; ++i) many["pretokenizers"].push_back({{"type", "WhitespaceSplit"}});
  expect_refused_with("/pre_tokenizer", many, StatusCode::kUnsupported, "too many");
}

// Steps that make a text longer and longer are stopped.
TEST(TokenizerJson, GrowthIsBounded) {
  json file = small();
  json steps = json::array();
  for (int i = 0; i < 40; ++i) {
    steps.push_back({{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aaaaaaaa"}});
  }
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", steps}};
  const auto tokenizer = tokenizer_from_json(file.dump(), "x", {});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  std::vector<int32_t> ids;
  EXPECT_EQ(tokenizer.value()->encode("banana", {}, ids).code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(ids.empty());
  expect_refused_with("/normalizer", {{"type", "Prepend"}, {"prepend", std::string(2000, 'x')}},
                      StatusCode::kUnsupported, "longer than");
}

// An expression that backtracks without end is stopped, and says so.
TEST(TokenizerJson, ExpressionsAreBounded) {
  json file = small();
  file["pre_tokenizer"] = {
      {"type", "Split"}, {"pattern", {{"Regex", "(a|aa|b)+(?<=x)$"}}}, {"behavior", "Isolated"}};
  const auto tokenizer = tokenizer_from_json(file.dump(), "x", {});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  std::vector<int32_t> ids = {5};
  const Status status = tokenizer.value()->encode(std::string(200, 'a'), {}, ids);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.message();
  EXPECT_THAT(status.message(), HasSubstr("too many steps"));
  EXPECT_EQ(ids, std::vector<int32_t>{5});
}

TEST(TokenizerJson, Vocabularies) {
  const auto kInvalid = StatusCode::kInvalidData;
  expect_refused_with("/model/vocab", nullptr, StatusCode::kNotFound, "vocab");
  expect_refused_with("/model/vocab", json::array(), kInvalid, "vocab");
  expect_refused_with("/model/vocab/a", "0", kInvalid, "'a'");
  expect_refused_with("/model/vocab/a", -1, kInvalid, "'a'");
  expect_refused_with("/model/vocab/a", 1, kInvalid, "same id");
  expect_refused_with("/model/vocab/a", 2'000'000'000, kInvalid, "far beyond");
  expect_refused_with("/model/vocab/a", uint64_t{1} << 63, kInvalid, "too large");
  expect_refused_with("/model/vocab/a", 0.5, kInvalid, "'a'");
  expect_refused_with("/model/unk_token", "<unk>", kInvalid, "unk_token");
  for (const json& merge : {json("a"), json("a b c"), json("a x"), json("b a"), json(7), json("a "),
                            json::array({"a"}), json::array({"a", 1}), json("")}) {
    expect_refused_with("/model/merges/0", merge, kInvalid, "merges");
  }
  expect_refused_with("/model/merges/1", "a b", kInvalid, "there twice");
  expect_refused_with("/model/merges", "a b", kInvalid, "merges");
  expect_refused_with("/added_tokens/0/id", -1, kInvalid, "added_tokens[0]");
  expect_refused_with("/added_tokens/0/id", 1 << 30, kInvalid, "far beyond");
  expect_refused_with("/added_tokens/0/id", 1, kInvalid, "same id");
  expect_refused_with("/added_tokens/0/content", "a", kInvalid, "the vocabulary says 0");
  expect_refused_with("/added_tokens/0/special", "yes", kInvalid, "special");
}

TEST(TokenizerJson, Unigrams) {
  const auto unigram = [](json vocab, json unk) {
    json file = small();
    file["added_tokens"] = json::array();
    file["model"] = {{"type", "Unigram"}, {"vocab", std::move(vocab)}, {"unk_id", std::move(unk)}};
    return file;
  };
  const json vocab = json::parse(R"([["<unk>", 0], ["a", -1.5]])");
  EXPECT_TRUE(tokenizer_from_json(unigram(vocab, 0).dump(), "x", {}).ok());
  expect_refused(unigram(vocab, 2).dump(), StatusCode::kInvalidData, "unk_id");
  expect_refused(unigram(vocab, -1).dump(), StatusCode::kInvalidData, "unk_id");
  expect_refused(unigram(vocab, nullptr).dump(), StatusCode::kNotFound, "unk_id");
  for (const json& entry : {json("a"), json::array({"a"}), json::array({1, 2}),
                            json::array({"a", "b"}), json::array({"<unk>", 1})}) {
    json broken = vocab;
    broken.push_back(entry);
    expect_refused(unigram(broken, 0).dump(), StatusCode::kInvalidData, "");
  }
  json bytes = unigram(vocab, 0);
  bytes["model"]["byte_fallback"] = true;
  expect_refused(bytes.dump(), StatusCode::kInvalidData, "<0x00>");
}

std::string model_bytes() {
  return test::read_file("tests/golden/tokenizers/bpe_bytes.model");
}

TEST(SentencePieceHostile, CutOffAnywhere) {
  const std::string whole = model_bytes();
  size_t refused = 0;
  for (size_t cut = 0; cut < whole.size(); ++cut) {
    const auto tokenizer = tokenizer_from_sentencepiece(whole.substr(0, cut), "dir/x.model", {});
    if (tokenizer.ok()) continue;  // between two fields
    EXPECT_THAT(tokenizer.status().message(), ::testing::StartsWith("dir/x.model: "));
    ++refused;
  }
  EXPECT_GT(refused, whole.size() / 2);
}

TEST(SentencePieceHostile, FlippedBytes) {
  const std::string whole = model_bytes();
  std::mt19937 random(11);
  for (int round = 0; round < 600; ++round) {
    std::string broken = whole;
    for (int i = 0; i < 3; ++i) broken[random() % broken.size()] = static_cast<char>(random());
    const auto tokenizer = tokenizer_from_sentencepiece(broken, "x", {});
    if (tokenizer.ok()) test::encode(*tokenizer.value(), "Hello  world <sep> 中", {true, true});
  }
}

class Folder : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::path(::testing::TempDir()) / "aerie_tokenizer_folder";
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  void TearDown() override { std::filesystem::remove_all(path_); }
  void write(const std::string& name, const std::string& text) {
    std::ofstream(path_ / name, std::ios::binary) << text;
  }
  void expect_refused(StatusCode code, const std::string& message) {
    const auto tokenizer = Tokenizer::from_folder(path_.string());
    ASSERT_FALSE(tokenizer.ok()) << message;
    EXPECT_EQ(tokenizer.status().code(), code) << tokenizer.status().message();
    EXPECT_THAT(tokenizer.status().message(), HasSubstr(message));
    EXPECT_THAT(tokenizer.status().message(), HasSubstr(path_.string()));
  }
  std::filesystem::path path_;
};

TEST_F(Folder, NothingThere) {
  expect_refused(StatusCode::kNotFound, "no tokenizer");
  write("vocab.json", "{}");
  expect_refused(StatusCode::kNotFound, "merges.txt");
}

TEST_F(Folder, SettingsGiveRoles) {
  write("tokenizer.json", small().dump());
  write("tokenizer_config.json",
        R"({"bos_token": {"content": "<s>"}, "eos_token": "b", "add_bos_token": true})");
  write("generation_config.json", R"({"eos_token_id": [2, 3]})");
  const auto tokenizer = Tokenizer::from_folder(path_.string());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(tokenizer.value()->bos(), 3);
  EXPECT_EQ(tokenizer.value()->eos(), 1);
  for (const int32_t id : {1, 2, 3}) EXPECT_TRUE(tokenizer.value()->is_end(id));
  EXPECT_FALSE(tokenizer.value()->is_end(0));
  EXPECT_EQ(test::encode(*tokenizer.value(), "ab", {true, false}).front(), 3);
}

TEST_F(Folder, BrokenSettings) {
  write("tokenizer.json", small().dump());
  write("tokenizer_config.json", R"({"bos_token": 7})");
  expect_refused(StatusCode::kInvalidData, "bos_token");
  write("tokenizer_config.json", R"({"added_tokens_decoder": {"x": {"content": "a"}}})");
  expect_refused(StatusCode::kInvalidData, "is not a token id");
  write("tokenizer_config.json", R"({"add_bos_token": "yes"})");
  expect_refused(StatusCode::kInvalidData, "add_bos_token");
  write("tokenizer_config.json", "{");
  expect_refused(StatusCode::kInvalidData, "tokenizer_config.json");
  write("tokenizer_config.json", "{}");
  write("generation_config.json", R"({"eos_token_id": ["a"]})");
  expect_refused(StatusCode::kInvalidData, "eos_token_id");
}

TEST_F(Folder, VocabAndMerges) {
  write("vocab.json", R"({"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3})");
  write("merges.txt", "#version: 0.2\na b\n");
  const auto tokenizer = Tokenizer::from_folder(path_.string());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(test::encode(*tokenizer.value(), "ab<|endoftext|>", {true, true}),
            (std::vector<int32_t>{2, 3}));
  EXPECT_EQ(tokenizer.value()->eos(), 3);
  write("merges.txt", "a b c\n");
  expect_refused(StatusCode::kInvalidData, "merges.txt: entry 0");
  write("merges.txt", "a x\n");
  expect_refused(StatusCode::kInvalidData, "merges.txt: entry 0");
  write("merges.txt", "a b\n");
  write("tokenizer_config.json", R"({"tokenizer_class": "RobertaTokenizer"})");
  expect_refused(StatusCode::kUnsupported, "RobertaTokenizer");
}

TEST_F(Folder, SentencePieceWithSettings) {
  write("tokenizer.model", model_bytes());
  write("tokenizer_config.json",
        R"({"eos_token": "<|end|>", "add_bos_token": true, "legacy": false,
            "added_tokens_decoder": {"500": {"content": "<|end|>", "special": true}}})");
  const auto loaded = Tokenizer::from_folder(path_.string());
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  const Tokenizer& tokenizer = **loaded;
  EXPECT_EQ(tokenizer.vocab_size(), 501);
  EXPECT_EQ(tokenizer.eos(), 500);
  EXPECT_EQ(tokenizer.bos(), tokenizer.find("<s>"));
  const auto ids = test::encode(tokenizer, "a<|end|>a", {true, true});
  // Without "legacy" no space is put before text behind a token.
  EXPECT_EQ(test::decode(tokenizer, ids), "<s> a<|end|>a");
  EXPECT_EQ(ids.front(), tokenizer.bos());
  write("tokenizer_config.json", R"({"added_tokens_decoder": {"9": {"content": "<x>"}}})");
  // A spare piece with another name.
  const auto renamed = Tokenizer::from_folder(path_.string());
  ASSERT_TRUE(renamed.ok()) << renamed.status().message();
  EXPECT_EQ(renamed.value()->find("<x>"), 9);
  EXPECT_THAT(test::encode(*renamed.value(), "<x>"), ::testing::ElementsAre(9));
}

TEST_F(Folder, ChatTemplates) {
  EXPECT_EQ(chat_template_of_folder(path_.string()).status().code(), StatusCode::kNotFound);
  write("tokenizer_config.json", R"({"chat_template": "one"})");
  EXPECT_EQ(*chat_template_of_folder(path_.string()), "one");
  write("tokenizer_config.json",
        R"({"chat_template": [{"name": "tool_use", "template": "x"},
                              {"name": "default", "template": "two"}]})");
  EXPECT_EQ(*chat_template_of_folder(path_.string()), "two");
  write("chat_template.json", R"({"chat_template": "three"})");
  EXPECT_EQ(*chat_template_of_folder(path_.string()), "three");
  write("chat_template.jinja", "four");
  EXPECT_EQ(*chat_template_of_folder(path_.string()), "four");
  std::filesystem::remove(path_ / "chat_template.jinja");
  write("chat_template.json", R"({"chat_template": [{"name": "rag", "template": "x"}]})");
  EXPECT_THAT(chat_template_of_folder(path_.string()).status().message(), HasSubstr("default"));
  write("chat_template.json", R"({"chat_template": 7})");
  EXPECT_EQ(chat_template_of_folder(path_.string()).status().code(), StatusCode::kInvalidData);
}

}  // namespace aerie::hostile_test
