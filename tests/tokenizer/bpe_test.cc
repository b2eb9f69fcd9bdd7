#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/tokenizer/vocabularies.h"
#include "tokenizer/special_tokens.h"

namespace aerie::bpe_test {

using test::add_merge;
using test::add_token;
using test::BpeData;
using test::byte_vocabulary;
using test::create;
using test::encode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

void expect_refused(const BpeData& data, StatusCode code, const std::string& message) {
  const auto tokenizer = tokenizer_of(data);
  ASSERT_FALSE(tokenizer.ok()) << message;
  EXPECT_EQ(tokenizer.status().code(), code) << tokenizer.status().message();
  EXPECT_THAT(tokenizer.status().message(), HasSubstr(message));
}

TEST(Bpe, MergesInsideWordsOnly) {
  BpeData data = byte_vocabulary();
  const int32_t th = add_merge(data, "t", "h");
  const int32_t the = add_merge(data, "th", "e");
  const int32_t space_the = add_merge(data, " ", "the");
  add_merge(data, "e", " ");
  const auto tokenizer = create(data);
  EXPECT_THAT(encode(*tokenizer, "the the th"), ElementsAre(the, space_the, ' ', th));
  EXPECT_EQ(tokenizer->piece(space_the), " the");
  EXPECT_EQ(tokenizer->find("\u0120the"), space_the);
  EXPECT_EQ(tokenizer->find(" the"), -1);
}

TEST(Bpe, EveryByteHasItsToken) {
  const auto tokenizer = create(byte_vocabulary());
  EXPECT_THAT(tokenizer->missing_bytes(), IsEmpty());
  for (int byte = 0; byte < 256; ++byte) {
    const std::string text(1, static_cast<char>(byte));
    ASSERT_THAT(encode(*tokenizer, text), ElementsAre(byte));
    ASSERT_EQ(tokenizer->piece(byte), text);
  }
}

TEST(Bpe, EncodeAppends) {
  const auto tokenizer = create(byte_vocabulary());
  std::vector<int32_t> ids = {7};
  ASSERT_TRUE(tokenizer->encode("ab", {}, ids).ok());
  EXPECT_THAT(ids, ElementsAre(7, 'a', 'b'));
}

TEST(Bpe, BytesWithoutATokenAreLeftOutBeforeMerging) {
  BpeData data = byte_vocabulary();
  data.tokens[4] = "unused";
  data.tokens[0xF1] = "as well";
  const int32_t dots = add_merge(data, ".", ".");
  const auto tokenizer = create(data);
  EXPECT_EQ(tokenizer->missing_bytes(), "\x04\xF1");
  EXPECT_THAT(encode(*tokenizer, ".\x04."), ElementsAre(dots));
  EXPECT_THAT(encode(*tokenizer, "\x04\xF1"), IsEmpty());
}

class BpeSpecial : public ::testing::Test {
 protected:
  void SetUp() override {
    data_ = byte_vocabulary();
    user_ = add_token(data_, "  ", TokenType::kUserDefined);
    start_ = add_token(data_, "<|s|>", TokenType::kControl);
    longer_ = add_token(data_, "<|s|>>", TokenType::kControl);
    unknown_ = add_token(data_, "<unk>", TokenType::kUnknown);
    unused_ = add_token(data_, "<unused>", TokenType::kUnused);
    tokenizer_ = create(data_);
  }
  std::vector<int32_t> parse(std::string_view text) {
    return encode(*tokenizer_, text, {false, true});
  }

  BpeData data_;
  int32_t user_ = 0, start_ = 0, longer_ = 0, unknown_ = 0, unused_ = 0;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(BpeSpecial, ControlTokensOnlyWhenParsed) {
  EXPECT_THAT(parse("a<|s|>b"), ElementsAre('a', start_, 'b'));
  EXPECT_THAT(encode(*tokenizer_, "<|s|>"), ElementsAre('<', '|', 's', '|', '>'));
  EXPECT_THAT(parse("<unk>"), ElementsAre(unknown_));
  EXPECT_EQ(parse("<unused>").size(), 8u);
}

TEST_F(BpeSpecial, UserDefinedTokensAlways) {
  EXPECT_THAT(encode(*tokenizer_, "a   b"), ElementsAre('a', user_, ' ', 'b'));
  EXPECT_THAT(parse("a   b"), ElementsAre('a', user_, ' ', 'b'));
}

TEST_F(BpeSpecial, LongestAtThePosition) {
  EXPECT_THAT(parse("<|s|>><|s|><|s|"), ElementsAre(longer_, start_, '<', '|', 's', '|'));
  EXPECT_THAT(parse("<<|s|>"), ElementsAre('<', start_));
}

TEST_F(BpeSpecial, Kinds) {
  EXPECT_TRUE(tokenizer_->is_control(start_));
  EXPECT_TRUE(tokenizer_->is_control(unknown_));
  EXPECT_FALSE(tokenizer_->is_control(user_));
  EXPECT_FALSE(tokenizer_->is_control('a'));
  EXPECT_EQ(tokenizer_->piece(start_), "<|s|>");
  EXPECT_EQ(tokenizer_->piece(user_), "  ");
  EXPECT_EQ(tokenizer_->find("<|s|>"), start_);
  EXPECT_EQ(tokenizer_->bos(), -1);
  EXPECT_EQ(tokenizer_->eos(), -1);
}

// Against looking at every name at every position.
TEST(SpecialTokens, AgreesWithTheDefinition) {
  std::mt19937 random(4);
  const auto word = [&](size_t longest) {
    std::string text(random() % (longest + 1), ' ');
    for (char& c : text) c = "ab\xFF"[random() % 3];
    return text;
  };
  for (int round = 0; round < 3000; ++round) {
    std::map<std::string, int32_t> names;
    for (int32_t i = 0; i < 4; ++i) names.emplace(word(4), i);
    const SpecialTokens tokens(
        std::vector<std::pair<std::string_view, int32_t>>(names.begin(), names.end()));
    const std::string text = word(12);
    const size_t from = random() % (text.size() + 1);
    SpecialTokens::Match expected;
    for (size_t at = from; at < text.size() && expected.id < 0; ++at) {
      for (const auto& [name, id] : names) {
        if (name.size() > expected.length && std::string_view(text).substr(at).starts_with(name)) {
          expected = {at, name.size(), id};
        }
      }
    }
    const SpecialTokens::Match match = tokens.find(text, from);
    ASSERT_EQ(match.id, expected.id);
    ASSERT_EQ(match.begin, expected.begin);
    ASSERT_EQ(match.length, expected.length);
  }
}

TEST(BpeBosEos, AddedWhereAskedForAndNeverDoubled) {
  BpeData data = byte_vocabulary();
  const int32_t bos = add_token(data, "<s>", TokenType::kControl);
  const int32_t eos = add_token(data, "<e>", TokenType::kControl);
  data.bos = bos;
  data.eos = eos;
  const EncodeOptions plain{true, false}, parsed{true, true};
  EXPECT_THAT(encode(*create(data), "a", plain), ElementsAre('a'));
  data.add_bos = true;
  const auto with_bos = create(data);
  EXPECT_THAT(encode(*with_bos, "a", plain), ElementsAre(bos, 'a'));
  EXPECT_THAT(encode(*with_bos, "a", {false, false}), ElementsAre('a'));
  EXPECT_THAT(encode(*with_bos, "", plain), ElementsAre(bos));
  EXPECT_THAT(encode(*with_bos, "<s>a", parsed), ElementsAre(bos, 'a'));
  EXPECT_THAT(encode(*with_bos, "<s>", plain), ElementsAre(bos, '<', 's', '>'));
  EXPECT_THAT(encode(*with_bos, "a<s>", parsed), ElementsAre(bos, 'a', bos));
  data.add_eos = true;
  const auto both = create(data);
  EXPECT_THAT(encode(*both, "", plain), ElementsAre(bos, eos));
  EXPECT_THAT(encode(*both, "a<e>", parsed), ElementsAre(bos, 'a', eos));
  // What is there already plays no part.
  std::vector<int32_t> ids = {bos};
  ASSERT_TRUE(both->encode("a", plain, ids).ok());
  EXPECT_THAT(ids, ElementsAre(bos, bos, 'a', eos));
}

TEST(BpeEnds, EosTurnsAndWellKnownControlTokens) {
  BpeData data = byte_vocabulary();
  data.eos = 'e';
  data.eot = 't';
  data.eom = 'm';
  data.bos = 'b';
  const int32_t im_end = add_token(data, "<|im_end|>", TokenType::kControl);
  const int32_t im_start = add_token(data, "<|im_start|>", TokenType::kControl);
  const int32_t text = add_token(data, "</s>", TokenType::kUserDefined);
  const auto tokenizer = create(data);
  for (const int32_t id : {int{'e'}, int{'t'}, int{'m'}, im_end}) {
    EXPECT_TRUE(tokenizer->is_end(id)) << id;
  }
  for (const int32_t id : {int{'b'}, int{'a'}, im_start, text}) {
    EXPECT_FALSE(tokenizer->is_end(id)) << id;
  }
  EXPECT_EQ(tokenizer->eos(), 'e');
  EXPECT_EQ(tokenizer->bos(), 'b');
}

TEST(BpeHostile, Tokens) {
  expect_refused({}, StatusCode::kInvalidData, "tokenizer.ggml.tokens is empty");
  BpeData data = byte_vocabulary();
  data.types.pop_back();
  expect_refused(data, StatusCode::kInvalidData, "tokenizer.ggml.token_type has 255");
  data = byte_vocabulary();
  add_token(data, "a", TokenType::kNormal);
  expect_refused(data, StatusCode::kInvalidData,
                 "tokenizer.ggml.tokens has 'a' twice, at 97 and 256");
  for (const int64_t type : {int64_t{0}, int64_t{7}, int64_t{-1}, int64_t{1} << 40}) {
    data = byte_vocabulary();
    data.types[9] = type;
    expect_refused(data, StatusCode::kInvalidData, "tokenizer.ggml.token_type of token 9");
  }
  data.types[9] = 6;
  expect_refused(data, StatusCode::kUnsupported, "tokenizer.ggml.token_type of token 9");
}

TEST(BpeHostile, NotByteLevel) {
  for (const int byte : {0x20, 0x41, 0x7E, 0x0A}) {
    BpeData data = byte_vocabulary();
    data.tokens[static_cast<size_t>(byte)] = "something else";
    expect_refused(data, StatusCode::kUnsupported, "byte-level");
    data = byte_vocabulary();
    data.types[static_cast<size_t>(byte)] = static_cast<int64_t>(TokenType::kControl);
    expect_refused(data, StatusCode::kUnsupported, "byte-level");
  }
}

TEST(BpeHostile, Merges) {
  const auto with_merge = [](const std::string& merge) {
    BpeData data = byte_vocabulary();
    add_merge(data, "a", "b");
    data.merges.push_back(merge);
    return data;
  };
  const std::string key = "tokenizer.ggml.merges: entry 1";
  for (const char* merge : {"", "ab", "a b c", " ", "a ", " b", "a  b"}) {
    expect_refused(with_merge(merge), StatusCode::kInvalidData, key);
  }
  expect_refused(with_merge("a zz"), StatusCode::kInvalidData, "not in the vocabulary");
  expect_refused(with_merge("zz a"), StatusCode::kInvalidData, "not in the vocabulary");
  expect_refused(with_merge("a c"), StatusCode::kInvalidData, "makes a token");
  expect_refused(with_merge("a b"), StatusCode::kInvalidData, "is there twice");
  expect_refused(with_merge(std::string(1 << 20, '\x01')), StatusCode::kInvalidData, "\\x01...");
}

TEST(BpeHostile, Ids) {
  const std::pair<const char*, std::optional<int64_t> BpeData::*> ids[] = {{"bos", &BpeData::bos},
                                                                           {"eos", &BpeData::eos},
                                                                           {"eot", &BpeData::eot},
                                                                           {"eom", &BpeData::eom}};
  for (const auto& [name, member] : ids) {
    for (const int64_t id : {int64_t{-1}, int64_t{256}, int64_t{1} << 40}) {
      BpeData data = byte_vocabulary();
      data.*member = id;
      expect_refused(data, StatusCode::kInvalidData,
                     std::string("tokenizer.ggml.") + name + "_token_id is " + std::to_string(id));
    }
  }
  BpeData data = byte_vocabulary();
  data.add_bos = true;
  expect_refused(data, StatusCode::kInvalidData, "tokenizer.ggml.bos_token_id");
  data.bos = 1;
  data.add_eos = true;
  expect_refused(data, StatusCode::kInvalidData, "tokenizer.ggml.eos_token_id");
}

TEST(BpeHostile, PreTokenizer) {
  BpeData data = byte_vocabulary();
  data.pre = "qwen99";
  expect_refused(data, StatusCode::kUnsupported, "tokenizer.ggml.pre is 'qwen99'");
}

// Names that spell no bytes: they decode as they are and never come out of encode.
TEST(Bpe, NamesThatSpellNoBytes) {
  BpeData data = byte_vocabulary();
  const int32_t chinese = add_token(data, "中", TokenType::kNormal);
  const int32_t broken = add_token(data, "a\xC4", TokenType::kNormal);
  const int32_t empty = add_token(data, "", TokenType::kNormal);
  const auto tokenizer = create(data);
  EXPECT_EQ(tokenizer->piece(chinese), "中");
  EXPECT_EQ(tokenizer->piece(broken), "a\xC4");
  EXPECT_EQ(tokenizer->piece(empty), "");
  EXPECT_THAT(encode(*tokenizer, "中"), ElementsAre(0xE4, 0xB8, 0xAD));
}

}  // namespace aerie::bpe_test
