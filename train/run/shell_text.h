// Words as they can be pasted into a shell.
#pragma once

#include <string>
#include <string_view>

namespace aerie::train {

inline std::string shell_word(std::string_view text) {
  constexpr std::string_view kSpecial = " \t\n\\'\"`$&|;<>()[]{}*?!#~";
  if (!text.empty() && text.find_first_of(kSpecial) == text.npos) return std::string(text);
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

}  // namespace aerie::train
