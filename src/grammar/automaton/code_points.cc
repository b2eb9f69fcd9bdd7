#include "grammar/automaton/code_points.h"

#include <algorithm>

#include "base/utf8.h"

namespace aerie::grammar {
namespace {

constexpr CodePointRange kSurrogates{0xD800, 0xDFFF};

int utf8_length(uint32_t code_point) {
  if (code_point < 0x80) return 1;
  if (code_point < 0x800) return 2;
  return code_point < 0x10000 ? 3 : 4;
}

// Of two spellings that differ in bytes from `at` on, where all that follows the first differing
// byte may be anything in between: cut until that holds.
void split(const std::string& first, const std::string& last,
           std::vector<std::vector<ByteRange>>& sequences) {
  const size_t size = first.size();
  size_t at = 0;
  while (at < size && first[at] == last[at]) ++at;
  const auto byte = [](char c) { return static_cast<uint8_t>(c); };
  const auto tail_is = [&](const std::string& text, uint8_t value) {
    return std::all_of(text.begin() + static_cast<std::ptrdiff_t>(std::min(at + 1, size)),
                       text.end(), [&](char c) { return byte(c) == value; });
  };
  if (at + 1 < size && !tail_is(first, 0x80)) {
    std::string end = first;
    for (size_t i = at + 1; i < size; ++i) end[i] = '\xBF';
    split(first, end, sequences);
    std::string next = first;
    next[at] = static_cast<char>(byte(first[at]) + 1);
    for (size_t i = at + 1; i < size; ++i) next[i] = '\x80';
    split(next, last, sequences);
    return;
  }
  if (at + 1 < size && !tail_is(last, 0xBF)) {
    std::string begin = last;
    for (size_t i = at + 1; i < size; ++i) begin[i] = '\x80';
    std::string before = last;
    before[at] = static_cast<char>(byte(last[at]) - 1);
    for (size_t i = at + 1; i < size; ++i) before[i] = '\xBF';
    split(first, before, sequences);
    split(begin, last, sequences);
    return;
  }
  std::vector<ByteRange> sequence;
  for (size_t i = 0; i < size; ++i) sequence.push_back({byte(first[i]), byte(last[i])});
  sequences.push_back(std::move(sequence));
}

}  // namespace

CodePointSet::CodePointSet(const std::vector<CodePointRange>& ranges) {
  std::vector<CodePointRange> clean;
  for (const CodePointRange& range : ranges) {
    const uint32_t last = std::min(range.last, kMaxCodePoint);
    if (range.first > last) continue;
    if (range.first < kSurrogates.first) {
      clean.push_back({range.first, std::min(last, kSurrogates.first - 1)});
    }
    if (last > kSurrogates.last)
      clean.push_back({std::max(range.first, kSurrogates.last + 1), last});
  }
  std::sort(clean.begin(), clean.end());
  for (const CodePointRange& range : clean) {
    if (!ranges_.empty() && range.first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, range.last);
    } else {
      ranges_.push_back(range);
    }
  }
}

CodePointSet CodePointSet::all() {
  return CodePointSet({{0, kMaxCodePoint}});
}

bool CodePointSet::contains(uint32_t code_point) const {
  const auto above = std::upper_bound(
      ranges_.begin(), ranges_.end(), code_point,
      [](uint32_t value, const CodePointRange& range) { return value < range.first; });
  return above != ranges_.begin() && code_point <= (above - 1)->last;
}

CodePointSet CodePointSet::complement() const {
  std::vector<CodePointRange> gaps;
  uint32_t next = 0;
  for (const CodePointRange& range : ranges_) {
    if (range.first > next) gaps.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kMaxCodePoint) gaps.push_back({next, kMaxCodePoint});
  return CodePointSet(gaps);
}

CodePointSet CodePointSet::united(const CodePointSet& other) const {
  std::vector<CodePointRange> ranges = ranges_;
  ranges.insert(ranges.end(), other.ranges_.begin(), other.ranges_.end());
  return CodePointSet(ranges);
}

CodePointSet CodePointSet::intersected(const CodePointSet& other) const {
  std::vector<CodePointRange> ranges;
  for (size_t i = 0, j = 0; i < ranges_.size() && j < other.ranges_.size();) {
    const CodePointRange& a = ranges_[i];
    const CodePointRange& b = other.ranges_[j];
    const uint32_t first = std::max(a.first, b.first);
    const uint32_t last = std::min(a.last, b.last);
    if (first <= last) ranges.push_back({first, last});
    (a.last < b.last ? i : j)++;
  }
  return CodePointSet(ranges);
}

std::vector<std::vector<ByteRange>> utf8_sequences(CodePointRange range) {
  std::vector<std::vector<ByteRange>> sequences;
  constexpr uint32_t kLastOfLength[] = {0x7F, 0x7FF, 0xFFFF, kMaxCodePoint};
  const CodePointSet scalars({range});
  for (CodePointRange part : scalars.ranges()) {
    while (part.first <= part.last) {
      const uint32_t end = kLastOfLength[utf8_length(part.first) - 1];
      const uint32_t last = std::min(part.last, end);
      std::string low, high;
      append_utf8(part.first, low);
      append_utf8(last, high);
      split(low, high, sequences);
      if (last == part.last) break;
      part.first = last + 1;
    }
  }
  return sequences;
}

void append_utf8(uint32_t code_point, std::string& text) {
  const auto put = [&](uint32_t value) { text.push_back(static_cast<char>(value)); };
  switch (utf8_length(code_point)) {
    case 1:
      put(code_point);
      break;
    case 2:
      put(0xC0 | code_point >> 6);
      put(0x80 | (code_point & 0x3F));
      break;
    case 3:
      put(0xE0 | code_point >> 12);
      put(0x80 | (code_point >> 6 & 0x3F));
      put(0x80 | (code_point & 0x3F));
      break;
    default:
      put(0xF0 | code_point >> 18);
      put(0x80 | (code_point >> 12 & 0x3F));
      put(0x80 | (code_point >> 6 & 0x3F));
      put(0x80 | (code_point & 0x3F));
  }
}

bool take_code_point(std::string_view& text, uint32_t& code_point) {
  if (text.empty()) return false;
  const Utf8Unit unit = utf8_next(text);
  if (unit.kind != Utf8Kind::kValid) return false;
  const uint8_t lead = static_cast<uint8_t>(text[0]);
  uint32_t value = unit.length == 1 ? lead : lead & (0x7Fu >> unit.length);
  for (size_t i = 1; i < unit.length; ++i) {
    value = value << 6 | (static_cast<uint8_t>(text[i]) & 0x3Fu);
  }
  text.remove_prefix(unit.length);
  code_point = value;
  return true;
}

}  // namespace aerie::grammar
