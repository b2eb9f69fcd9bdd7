// Strings as sequences of Unicode characters. In bytes that are not UTF-8, every maximal invalid
// part is one character.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace aerie::jinja {

struct Character {
  char32_t code;   // U+FFFD for an invalid part
  uint8_t length;  // in bytes
};

// Requires that `text` is not empty.
Character next_character(std::string_view text);
// The length in bytes of the last character. Requires that `text` is not empty.
size_t last_character(std::string_view text);
size_t count_characters(std::string_view text);
// Where the character with number `index` begins; text.size() if there are not as many.
size_t character_offset(std::string_view text, size_t index);
std::vector<std::string_view> characters_of(std::string_view text);

bool is_space(char32_t code);
bool is_letter(char32_t code);
bool is_digit(char32_t code);    // str.isdigit: 0-9 of any script, superscripts
bool is_decimal(char32_t code);  // str.isdecimal
bool is_numeric(char32_t code);
bool is_alphanumeric(char32_t code);  // str.isalnum
bool is_word(char32_t code);          // that, or an underscore
bool is_lower(char32_t code);
bool is_upper(char32_t code);
bool is_printable(char32_t code);  // what repr() does not escape
// Whether there is a letter of the one case and none of the other.
bool has_case(std::string_view text, bool upper);

enum class Case : uint8_t { kUpper, kTitle, kLower };
// One character becomes one, but ß, whose upper case is SS.
void append_in_case(std::string& text, Case how, char32_t code);
// Each character in the case that `choose(code)` gives. Bytes that are not UTF-8 stay as they are.
template <typename Choose>
std::string in_case(std::string_view text, Choose choose) {
  std::string result;
  while (!text.empty()) {
    const Character character = next_character(text);
    const Case how = choose(character.code);
    if (character.code == 0xFFFD) {
      result += text.substr(0, character.length);
    } else {
      append_in_case(result, how, character.code);
    }
    text.remove_prefix(character.length);
  }
  return result;
}

// Without the white space, or the characters of `chars` if it is not null, at its ends.
struct Ends {
  bool left = true;
  bool right = true;
};
std::string_view strip(std::string_view text, const std::string_view* chars, Ends ends);

// What `text` begins with, up to one of `ends` or its end, which is taken off it.
std::string_view take_until(std::string_view& text, std::string_view ends);

// Linear time whatever the two are.
bool contains_text(std::string_view text, std::string_view needle);
// All places, from left to right, that do not overlap. From the right, the last `most` of them are
// found from right to left, as str.rsplit does; that takes a copy of both. An empty needle is
// before each character and at the end; from the right, at the end only.
struct Search {
  size_t most = SIZE_MAX;
  bool from_right = false;
};
std::vector<size_t> find_all(std::string_view text, std::string_view needle, Search search);

// str.splitlines.
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

}  // namespace aerie::jinja
