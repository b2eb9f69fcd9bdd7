#include "format/text.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace aerie::text_test {

using namespace std::string_view_literals;  // NOLINT: "..."sv

TEST(Utf8, WellFormedSequences) {
  EXPECT_EQ(utf8_sequence_length("a"), 1u);
  EXPECT_EQ(utf8_sequence_length("\0"sv), 1u);
  EXPECT_EQ(utf8_sequence_length("\xC2\x80z"), 2u);
  EXPECT_EQ(utf8_sequence_length("\xDF\xBF"), 2u);
  EXPECT_EQ(utf8_sequence_length("\xE0\xA0\x80"), 3u);
  EXPECT_EQ(utf8_sequence_length("\xED\x9F\xBF"), 3u);
  EXPECT_EQ(utf8_sequence_length("\xEE\x80\x80"), 3u);
  EXPECT_EQ(utf8_sequence_length("\xF0\x90\x80\x80"), 4u);
  EXPECT_EQ(utf8_sequence_length("\xF4\x8F\xBF\xBF"), 4u);
  EXPECT_TRUE(is_valid_utf8(""));
  EXPECT_TRUE(is_valid_utf8("a\xC3\xA4\xF0\x9F\xA6\x85z"));
}

TEST(Utf8, MalformedSequences) {
  for (const std::string_view text : {""sv,
                                      "\x80"sv,
                                      "\xBF"sv,
                                      "\xC0\x80"sv,
                                      "\xC1\xBF"sv,
                                      "\xC2"sv,
                                      "\xC2z"sv,
                                      "\xE0\x80\x80"sv,
                                      "\xE0\x9F\xBF"sv,
                                      "\xED\xA0\x80"sv,
                                      "\xED\xBF\xBF"sv,
                                      "\xE2\x82"sv,
                                      "\xE2\x82z"sv,
                                      "\xF0\x80\x80\x80"sv,
                                      "\xF0\x8F\xBF\xBF"sv,
                                      "\xF4\x90\x80\x80"sv,
                                      "\xF5\x80\x80\x80"sv,
                                      "\xF0\x9F\xA6"sv,
                                      "\xF8\x88\x80\x80\x80"sv,
                                      "\xFE"sv,
                                      "\xFF"sv}) {
    EXPECT_EQ(utf8_sequence_length(text), 0u) << printable(text);
    EXPECT_EQ(is_valid_utf8(text), text.empty()) << printable(text);
  }
}

TEST(Printable, EscapesWhatCouldHarm) {
  EXPECT_EQ(printable("plain text, größe"), "plain text, größe");
  EXPECT_EQ(printable("a\nb\r\tc\\"), "a\\nb\\r\\tc\\\\");
  EXPECT_EQ(printable("\x1b[0m\x7f\0"sv), "\\x1b[0m\\x7f\\x00");
  EXPECT_EQ(printable("\xC2\x9B\xC2\xA0"), "\\xc2\\x9b\xC2\xA0") << "C1 controls";
  EXPECT_EQ(printable("\xFFok\xE2\x82"), "\\xffok\\xe2\\x82");
}

TEST(Printable, CutsLongTextBetweenCharacters) {
  EXPECT_EQ(printable("abcdef", 6), "abcdef");
  EXPECT_EQ(printable("abcdef", 5), "abcde...");
  EXPECT_EQ(printable("\xC3\xA4\xC3\xA4\xC3\xA4", 3), "\xC3\xA4\xC3\xA4...");
  EXPECT_LT(printable(std::string(1000, 'x')).size(), 130u);
}

}  // namespace aerie::text_test
