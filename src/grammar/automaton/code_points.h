// Sets of Unicode scalar values, and how they are spelled in UTF-8.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace aerie::grammar {

inline constexpr uint32_t kMaxCodePoint = 0x10FFFF;

struct CodePointRange {
  uint32_t first = 0;
  uint32_t last = 0;  // inclusive

  auto operator<=>(const CodePointRange&) const = default;
};

// Ascending ranges that neither overlap nor touch; surrogates are never in it.
class CodePointSet {
 public:
  CodePointSet() = default;
  // Any ranges, in any order.
  explicit CodePointSet(const std::vector<CodePointRange>& ranges);
  static CodePointSet all();

  const std::vector<CodePointRange>& ranges() const { return ranges_; }
  bool empty() const { return ranges_.empty(); }
  bool contains(uint32_t code_point) const;
  CodePointSet complement() const;
  CodePointSet united(const CodePointSet& other) const;
  CodePointSet intersected(const CodePointSet& other) const;

  auto operator<=>(const CodePointSet&) const = default;

 private:
  std::vector<CodePointRange> ranges_;
};

// A range of one byte.
struct ByteRange {
  uint8_t first = 0;
  uint8_t last = 0;  // inclusive
};

// Sequences of byte ranges that spell exactly the code points of `range`.
std::vector<std::vector<ByteRange>> utf8_sequences(CodePointRange range);

void append_utf8(uint32_t code_point, std::string& text);

// The code point that `text` begins with, which is taken off it. False, with `text` as it was, if
// it is empty or does not begin with valid UTF-8.
bool take_code_point(std::string_view& text, uint32_t& code_point);

}  // namespace aerie::grammar
