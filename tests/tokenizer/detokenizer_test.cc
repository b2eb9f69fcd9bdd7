#include "tokenizer/detokenizer.h"

#include <gtest/gtest.h>

#include "base/utf8.h"
#include "tests/tokenizer/vocabularies.h"

namespace aerie::detokenizer_test {

using test::add_token;
using test::BpeData;
using test::byte_vocabulary;

// A token for each byte, "é🦙" as user-defined 256, <|x|> as control 257.
class DetokenizerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    BpeData data = byte_vocabulary();
    add_token(data, "é🦙", TokenType::kUserDefined);
    add_token(data, "<|x|>", TokenType::kControl);
    tokenizer_ = test::create(data);
  }

  // What comes out at each push, then at finish.
  std::vector<std::string> stream(const std::vector<int32_t>& ids, bool show_control = false) {
    Detokenizer detokenizer(*tokenizer_, show_control);
    std::vector<std::string> parts;
    for (const int32_t id : ids) detokenizer.push(id, parts.emplace_back());
    detokenizer.finish(parts.emplace_back());
    return parts;
  }
  std::string joined(std::string_view bytes) {
    std::vector<int32_t> ids;
    for (const char c : bytes) ids.push_back(static_cast<uint8_t>(c));
    std::string text;
    for (const std::string& part : stream(ids)) {
      EXPECT_EQ(utf8_valid_prefix(part), part.size());
      text += part;
    }
    return text;
  }

  std::unique_ptr<Tokenizer> tokenizer_;
};

using Parts = std::vector<std::string>;

TEST_F(DetokenizerTest, CharactersComeOutWhole) {
  EXPECT_EQ(stream({0xC3, 0xA9, 0xF0, 0x9F, 0xA6, 0x99, 'a'}),
            (Parts{"", "é", "", "", "", "🦙", "a", ""}));
  EXPECT_EQ(stream({256}), (Parts{"é🦙", ""}));
}

TEST_F(DetokenizerTest, UnfinishedCharacterBecomesOneReplacement) {
  EXPECT_EQ(stream({0xF0, 0x9F, 0xA6}), (Parts{"", "", "", "\uFFFD"}));
  EXPECT_EQ(stream({0xF0, 0x9F, 'a'}), (Parts{"", "", "\uFFFDa", ""}));
  EXPECT_EQ(stream({0xE2, 256}), (Parts{"", "\uFFFDé🦙", ""}));
}

TEST_F(DetokenizerTest, FinishLeavesNothingBehind) {
  Detokenizer detokenizer(*tokenizer_);
  std::string text;
  detokenizer.push(0xE2, text);
  detokenizer.finish(text);
  detokenizer.finish(text);
  EXPECT_EQ(text, "\uFFFD");
}

TEST_F(DetokenizerTest, ControlTokensAreLeftOutOrShown) {
  EXPECT_EQ(stream({'a', 257, 'b'}), (Parts{"a", "", "b", ""}));
  EXPECT_EQ(stream({'a', 257, 'b'}, true), (Parts{"a", "<|x|>", "b", ""}));
  // As if it were not there, or as text that breaks the character.
  EXPECT_EQ(stream({0xC3, 257, 0xA9}), (Parts{"", "", "é", ""}));
  EXPECT_EQ(stream({0xC3, 257, 0xA9}, true), (Parts{"", "\uFFFD<|x|>", "\uFFFD", ""}));
}

TEST_F(DetokenizerTest, ReplacementsOfTheUnicodeStandard) {
  const std::string r = "\uFFFD";
  const auto times = [&](int n) {
    std::string text;
    while (n-- > 0) text += r;
    return text;
  };
  // Tables 3-8 to 3-11 of section 3.9.
  EXPECT_EQ(joined("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), times(8) + "A");
  EXPECT_EQ(joined("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), times(8) + "A");
  EXPECT_EQ(joined("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), times(5) + "A" + times(2) + "B");
  EXPECT_EQ(joined("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), times(4) + "A");
}

// Tokens of several bytes, cut at every place: the same text, in whole characters.
TEST_F(DetokenizerTest, TextDoesNotDependOnTheCut) {
  const std::string text = "中éa🦙\xE2\x82 \xFF\x80z\xF0\x9F\xA6";
  BpeData data = byte_vocabulary();
  std::vector<std::pair<int32_t, int32_t>> cuts;
  for (size_t cut = 1; cut < text.size(); ++cut) {
    // A user-defined token may be any bytes.
    const int32_t left = add_token(data, "", TokenType::kUserDefined);
    data.tokens.back() = text.substr(0, cut);
    const int32_t right = add_token(data, "", TokenType::kUserDefined);
    data.tokens.back() = text.substr(cut);
    cuts.emplace_back(left, right);
  }
  auto tokenizer = tokenizer_of(data);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const std::string expected = joined(text);
  for (const auto& [left, right] : cuts) {
    Detokenizer detokenizer(**tokenizer);
    std::string first, whole;
    detokenizer.push(left, first);
    EXPECT_EQ(utf8_valid_prefix(first), first.size());
    whole = first;
    detokenizer.push(right, whole);
    detokenizer.finish(whole);
    EXPECT_EQ(whole, expected);
  }
}

}  // namespace aerie::detokenizer_test
