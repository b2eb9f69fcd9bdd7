// How GPT-2's vocabulary files spell bytes: every byte as a printable character of its own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace aerie {

// Appends the character that stands for `byte`: itself for printable Latin-1, else U+0100 onwards.
void append_byte_name(uint8_t byte, std::string& out);

// Appends the bytes that `name` spells. False, with `out` unchanged, if it has a character that
// stands for no byte or is not valid UTF-8.
bool append_named_bytes(std::string_view name, std::string& out);

}  // namespace aerie
