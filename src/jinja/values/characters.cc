#include "jinja/values/characters.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>

#include "base/utf8.h"

namespace aerie::jinja {
namespace {

constexpr char32_t kSharpS = 0xDF;

utf8proc_category_t category(char32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

// memmem takes linear time, where the standard library's searches can take the product.
size_t first_match(std::string_view text, std::string_view needle, size_t from) {
  const void* found = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  return found == nullptr ? text.npos
                          : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

std::vector<size_t> matches(std::string_view text, std::string_view needle, size_t most) {
  std::vector<size_t> places;
  for (size_t at = 0; places.size() < most && at <= text.size();) {
    const size_t place = needle.empty() ? at : first_match(text, needle, at);
    if (place == text.npos) break;
    places.push_back(place);
    const bool steps = needle.empty() && at < text.size();
    at = steps ? at + next_character(text.substr(at)).length
               : place + std::max<size_t>(1, needle.size());
  }
  return places;
}

// The length of the line end that `text` begins with; 0 if it does not.
size_t line_end(std::string_view text, Character character) {
  const char32_t code = character.code;
  if (code == '\r') return text.size() > 1 && text[1] == '\n' ? 2 : 1;
  const bool ends = (code >= '\n' && code <= '\f') || (code >= 0x1C && code <= 0x1E) ||
                    code == 0x85 || code == 0x2028 || code == 0x2029;
  return ends ? character.length : 0;
}

}  // namespace

Character next_character(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return {first, 1};
  const Utf8Unit unit = utf8_next(text);
  if (unit.kind != Utf8Kind::kValid) return {0xFFFD, unit.length};
  return {static_cast<char32_t>(utf8_first(text).code), unit.length};
}

size_t last_character(std::string_view text) {
  for (size_t length = 1; length <= std::min<size_t>(4, text.size()); ++length) {
    const std::string_view tail = text.substr(text.size() - length);
    if ((static_cast<unsigned char>(tail[0]) & 0xC0) == 0x80) continue;
    return next_character(tail).length == length ? length : 1;
  }
  return 1;
}

size_t count_characters(std::string_view text) {
  size_t count = 0;
  while (!text.empty()) {
    text.remove_prefix(next_character(text).length);
    ++count;
  }
  return count;
}

size_t character_offset(std::string_view text, size_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += next_character(text.substr(at)).length;
  return at;
}

std::vector<std::string_view> characters_of(std::string_view text) {
  std::vector<std::string_view> characters;
  for (; !text.empty(); text.remove_prefix(characters.back().size())) {
    characters.push_back(text.substr(0, next_character(text).length));
  }
  return characters;
}

bool is_space(char32_t code) {
  return (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x20) || code == 0x85 ||
         (code >= 0xA0 && category(code) >= UTF8PROC_CATEGORY_ZS &&
          category(code) <= UTF8PROC_CATEGORY_ZP);
}

bool is_letter(char32_t code) {
  const auto c = category(code);
  return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t code) {
  return category(code) == UTF8PROC_CATEGORY_ND;
}

bool is_digit(char32_t code) {
  return is_decimal(code) || code == 0xB2 || code == 0xB3 || code == 0xB9 || code == 0x2070 ||
         (code >= 0x2074 && code <= 0x2079) || (code >= 0x2080 && code <= 0x2089);
}

bool is_numeric(char32_t code) {
  const auto c = category(code);
  return c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO;
}

bool is_alphanumeric(char32_t code) {
  return is_letter(code) || is_numeric(code);
}

bool is_word(char32_t code) {
  return code == '_' || is_alphanumeric(code);
}

bool is_lower(char32_t code) {
  return category(code) == UTF8PROC_CATEGORY_LL;
}

bool is_upper(char32_t code) {
  return category(code) == UTF8PROC_CATEGORY_LU;
}

bool is_printable(char32_t code) {
  if (code < 0x7F) return code >= ' ';
  const auto c = category(code);
  return c != UTF8PROC_CATEGORY_CN && c < UTF8PROC_CATEGORY_ZS;
}

bool has_case(std::string_view text, bool upper) {
  bool found = false;
  for (; !text.empty(); text.remove_prefix(next_character(text).length)) {
    const char32_t code = next_character(text).code;
    if (upper ? is_lower(code) : is_upper(code)) return false;
    found = found || (upper ? is_upper(code) : is_lower(code));
  }
  return found;
}

void append_in_case(std::string& text, Case how, char32_t code) {
  const auto number = static_cast<utf8proc_int32_t>(code);
  if (code == kSharpS && how != Case::kLower) {
    text += how == Case::kUpper ? "SS" : "Ss";
  } else {
    append_utf8(static_cast<uint32_t>(how == Case::kUpper   ? utf8proc_toupper(number)
                                      : how == Case::kTitle ? utf8proc_totitle(number)
                                                            : utf8proc_tolower(number)),
                text);
  }
}

std::string_view strip(std::string_view text, const std::string_view* chars, Ends ends) {
  auto set = characters_of(chars != nullptr ? *chars : "");
  std::ranges::sort(set);
  const auto goes = [&](std::string_view character) {
    return chars != nullptr ? std::binary_search(set.begin(), set.end(), character)
                            : is_space(next_character(character).code);
  };
  while (ends.left && !text.empty()) {
    const size_t length = next_character(text).length;
    if (!goes(text.substr(0, length))) break;
    text.remove_prefix(length);
  }
  while (ends.right && !text.empty()) {
    const size_t length = last_character(text);
    if (!goes(text.substr(text.size() - length))) break;
    text.remove_suffix(length);
  }
  return text;
}

std::string_view take_until(std::string_view& text, std::string_view ends) {
  // Where there is one, find() is several times as fast.
  const size_t end = ends.size() == 1 ? text.find(ends[0]) : text.find_first_of(ends);
  const std::string_view taken = text.substr(0, end);
  text.remove_prefix(taken.size());
  return taken;
}

bool contains_text(std::string_view text, std::string_view needle) {
  return first_match(text, needle, 0) != text.npos;
}

std::vector<size_t> find_all(std::string_view text, std::string_view needle, Search search) {
  if (!search.from_right) return matches(text, needle, search.most);
  if (needle.empty()) return {text.size()};
  const std::string reversed_text(text.rbegin(), text.rend());
  const std::string reversed_needle(needle.rbegin(), needle.rend());
  std::vector<size_t> places = matches(reversed_text, reversed_needle, search.most);
  for (size_t& place : places) place = text.size() - place - needle.size();
  std::ranges::reverse(places);
  return places;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t start = 0, at = 0;
  while (at < text.size()) {
    const Character character = next_character(text.substr(at));
    const size_t end = line_end(text.substr(at), character);
    if (end == 0) {
      at += character.length;
      continue;
    }
    lines.push_back(text.substr(start, at - start + (keep_ends ? end : 0)));
    at += end;
    start = at;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

}  // namespace aerie::jinja
