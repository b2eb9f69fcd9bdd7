#include "base/utf8.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace aerie::utf8_test {

// Each byte string as its units: v/i/p (valid, invalid, incomplete) and the length.
std::string units(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const Utf8Unit unit = utf8_next(bytes);
    text += unit.kind == Utf8Kind::kValid ? 'v' : unit.kind == Utf8Kind::kInvalid ? 'i' : 'p';
    text += std::to_string(unit.length);
    bytes.remove_prefix(unit.length);
  }
  return text;
}

TEST(Utf8, UnicodeTable38NonShortest) {
  EXPECT_EQ(units("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), "i1i1i1i1i1i1i1i1v1");
}
TEST(Utf8, UnicodeTable39Surrogates) {
  EXPECT_EQ(units("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), "i1i1i1i1i1i1i1i1v1");
}
TEST(Utf8, UnicodeTable310Other) {
  EXPECT_EQ(units("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), "i1i1i1i1i1v1i1i1v1");
}
TEST(Utf8, UnicodeTable311Truncated) {
  EXPECT_EQ(units("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), "i2i1i3i2v1");
}
TEST(Utf8, IncompleteOnlyWhereMoreBytesCouldComplete) {
  EXPECT_EQ(units("\xF0"), "p1");
  EXPECT_EQ(units("\xF0\x9F"), "p2");
  EXPECT_EQ(units("\xF0\x9F\xA6"), "p3");
  EXPECT_EQ(units("\xF0\x9F\xA6\x99"), "v4");
  EXPECT_EQ(units("\xF0\x8F"), "i1i1");
  EXPECT_EQ(units("\xE0\xA0"), "p2");
  EXPECT_EQ(units("\xE0\x9F"), "i1i1");
  EXPECT_EQ(units("\xF4\x90"), "i1i1");
  EXPECT_EQ(units("\xF5"), "i1");
}

// Code points spelled by arithmetic: surrogates and what is above 10FFFF are not characters.
TEST(Utf8, EveryCharacterIsValidAndNothingElseOfItsLength) {
  for (uint32_t c = 0; c <= 0x1FFFFF; c += c < 0x3000 ? 1 : 61) {
    std::string bytes;
    const int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    constexpr uint32_t kLead[] = {0, 0xC0, 0xE0, 0xF0};
    bytes += static_cast<char>(kLead[more] | c >> (6 * more));
    for (int i = more; i-- > 0;) bytes += static_cast<char>(0x80 | (c >> (6 * i) & 0x3F));
    const bool valid = c <= 0x10FFFF && (c < 0xD800 || c > 0xDFFF);
    ASSERT_EQ(utf8_valid_prefix(bytes) == bytes.size(), valid) << std::hex << c;
  }
}

TEST(Utf8, ValidPrefixEndsAtTheFirstBadByteWhereverItIs) {
  for (size_t length = 0; length < 40; ++length) {
    for (size_t bad = 0; bad < length; ++bad) {
      std::string bytes(length, 'x');
      bytes[bad] = '\x80';
      ASSERT_EQ(utf8_valid_prefix(bytes), bad);
    }
    ASSERT_EQ(utf8_valid_prefix(std::string(length, 'x')), length);
  }
}

}  // namespace aerie::utf8_test
