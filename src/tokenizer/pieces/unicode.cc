#include "tokenizer/pieces/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <span>
#include <vector>

namespace aerie {
namespace {

// Characters below these neither change in the form nor compose with what comes before them.
uint32_t first_active(NormalForm form) {
  switch (form) {
    case NormalForm::kNfc:
      return 0x300;
    case NormalForm::kNfd:
      return 0xC0;
    case NormalForm::kNfkc:
    case NormalForm::kNfkd:
      return 0xA0;
  }
  return 0;
}

bool composes(NormalForm form) {
  return form == NormalForm::kNfc || form == NormalForm::kNfkc;
}

uint8_t mark_class(int32_t code) {
  return static_cast<uint8_t>(utf8proc_get_property(code)->combining_class);
}

// Sorts marks by class; those of one class keep their order.
void sort_marks(std::span<int32_t> marks, std::vector<int32_t>& scratch) {
  if (std::is_sorted(marks.begin(), marks.end(),
                     [](int32_t a, int32_t b) { return mark_class(a) < mark_class(b); })) {
    return;
  }
  std::array<size_t, 257> begins{};
  for (const int32_t mark : marks) ++begins[mark_class(mark) + size_t{1}];
  for (size_t i = 1; i < begins.size(); ++i) begins[i] += begins[i - 1];
  scratch.assign(marks.begin(), marks.end());
  for (const int32_t mark : scratch) marks[begins[mark_class(mark)]++] = mark;
}

// Marks in the canonical order. utf8proc's own sort takes quadratic time on runs of marks.
void order_marks(std::vector<int32_t>& codes) {
  std::vector<int32_t> scratch;
  for (size_t begin = 0; begin < codes.size();) {
    if (mark_class(codes[begin]) == 0) {
      ++begin;
      continue;
    }
    size_t end = begin + 1;
    while (end < codes.size() && mark_class(codes[end]) != 0) ++end;
    sort_marks(std::span(codes).subspan(begin, end - begin), scratch);
    begin = end;
  }
}

void append_form_slowly(NormalForm form, std::string_view text, std::string& out) {
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE |
                                                      (compatible ? UTF8PROC_COMPAT : 0));
  std::vector<int32_t> codes;
  codes.reserve(text.size());
  int boundary = 0;
  std::array<int32_t, 32> parts{};  // 18 are the most that a character decomposes to
  while (!text.empty()) {
    const Utf8Character character = utf8_first(text);
    text.remove_prefix(character.length);
    const auto count =
        utf8proc_decompose_char(static_cast<int32_t>(character.code), parts.data(),
                                static_cast<utf8proc_ssize_t>(parts.size()), options, &boundary);
    assert(count > 0 && static_cast<size_t>(count) <= parts.size());
    codes.insert(codes.end(), parts.begin(), parts.begin() + count);
  }
  order_marks(codes);
  if (composes(form)) {
    const auto count = utf8proc_normalize_utf32(
        codes.data(), static_cast<utf8proc_ssize_t>(codes.size()),
        static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    codes.resize(static_cast<size_t>(std::max<utf8proc_ssize_t>(count, 0)));
  }
  for (const int32_t code : codes) append_utf8(static_cast<uint32_t>(code), out);
}

}  // namespace

bool is_white_space(uint32_t code) {
  if (code < 0x80) return code == ' ' || (code >= 9 && code <= 13);
  return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) ||
         code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

bool is_mark(uint32_t code) {
  const auto category = utf8proc_category(static_cast<int32_t>(code));
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
         category == UTF8PROC_CATEGORY_ME;
}

bool is_word_character(uint32_t code) {
  const utf8proc_category_t category = utf8proc_category(static_cast<int32_t>(code));
  const bool letter_mark_or_number =
      category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL;
  if (letter_mark_or_number || category == UTF8PROC_CATEGORY_PC) return true;
  // The joiners, and the symbols with the property Other_Alphabetic: letters in circles and boxes.
  return code == 0x200C || code == 0x200D || (code >= 0x24B6 && code <= 0x24E9) ||
         (code >= 0x1F130 && code <= 0x1F149) || (code >= 0x1F150 && code <= 0x1F169) ||
         (code >= 0x1F170 && code <= 0x1F189);
}

std::string_view strip_left(std::string_view text) {
  while (!text.empty()) {
    const Utf8Character character = utf8_first(text);
    if (!is_white_space(character.code)) break;
    text.remove_prefix(character.length);
  }
  return text;
}

std::string_view strip_right(std::string_view text) {
  while (!text.empty()) {
    size_t begin = text.size() - 1;
    while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
    if (!is_white_space(utf8_first(text.substr(begin)).code)) break;
    text = text.substr(0, begin);
  }
  return text;
}

void append_normal_form(NormalForm form, std::string_view text, std::string& out) {
  const uint32_t active = first_active(form);
  size_t done = 0, at = 0, last = 0;
  while (at < text.size()) {
    // The characters before an active one are copied; it may compose with the last of them.
    while (at < text.size()) {
      const Utf8Character character = utf8_first(text.substr(at));
      if (character.code >= active) break;
      last = at;
      at += character.length;
    }
    if (at == text.size()) break;
    const size_t begin = at > done ? last : done;
    out.append(text.substr(done, begin - done));
    while (at < text.size()) {
      const Utf8Character character = utf8_first(text.substr(at));
      if (character.code < active) break;
      at += character.length;
    }
    append_form_slowly(form, text.substr(begin, at - begin), out);
    done = at;
  }
  out.append(text.substr(done));
}

void append_lowercase(std::string_view text, std::string& out) {
  while (!text.empty()) {
    const Utf8Character character = utf8_first(text);
    text.remove_prefix(character.length);
    if (character.code == 0x130) {  // the only one whose lower case is two characters
      out += "i\u0307";
    } else {
      append_utf8(static_cast<uint32_t>(utf8proc_tolower(static_cast<int32_t>(character.code))),
                  out);
    }
  }
}

size_t grapheme_length(std::string_view text) {
  Utf8Character character = utf8_first(text);
  size_t at = character.length;
  int32_t state = 0;
  while (at < text.size()) {
    const Utf8Character next = utf8_first(text.substr(at));
    if (utf8proc_grapheme_break_stateful(static_cast<int32_t>(character.code),
                                         static_cast<int32_t>(next.code), &state)) {
      break;
    }
    at += next.length;
    character = next;
  }
  return at;
}

}  // namespace aerie
