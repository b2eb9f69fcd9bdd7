// Characters and normal forms of valid UTF-8. All functions require valid UTF-8 where they take
// text; they take time and memory linear in the text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/utf8.h"

namespace aerie {

// White_Space of the Unicode character database.
bool is_white_space(uint32_t code);
// General category M.
bool is_mark(uint32_t code);
// What regular expressions call \w: Alphabetic, M, Nd, Pc and the two joiners.
bool is_word_character(uint32_t code);

// `text` without White_Space at its beginning or end.
std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);

// Unicode normalisation forms (UAX #15).
enum class NormalForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };
// Appends to `out`.
void append_normal_form(NormalForm form, std::string_view text, std::string& out);

// The full lower case of each character by itself, as Rust's char::to_lowercase.
void append_lowercase(std::string_view text, std::string& out);

// The length of the extended grapheme cluster (UAX #29) that `text`, not empty, begins with.
size_t grapheme_length(std::string_view text);

}  // namespace aerie
