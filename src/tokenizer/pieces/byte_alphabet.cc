#include "tokenizer/pieces/byte_alphabet.h"

#include <array>

namespace aerie {
namespace {

constexpr bool is_printable(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

// 68 bytes are not printable, so the characters end below U+0144.
constexpr int kCharacters = 0x144;

struct Alphabet {
  std::array<int, 256> character{};
  std::array<int, kCharacters> byte{};  // -1: stands for none
};

constexpr Alphabet make_alphabet() {
  Alphabet result;
  for (int& byte : result.byte) byte = -1;
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const int character = is_printable(byte) ? byte : next++;
    result.character[static_cast<size_t>(byte)] = character;
    result.byte[static_cast<size_t>(character)] = byte;
  }
  return result;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

void append_byte_name(uint8_t byte, std::string& out) {
  const int character = kAlphabet.character[byte];
  if (character < 0x80) {
    out += static_cast<char>(character);
  } else {
    out += static_cast<char>(0xC0 | character >> 6);
    out += static_cast<char>(0x80 | (character & 0x3F));
  }
}

bool append_named_bytes(std::string_view name, std::string& out) {
  const size_t before = out.size();
  for (size_t at = 0; at < name.size(); ++at) {
    int character = static_cast<uint8_t>(name[at]);
    // All characters of the alphabet have one or two bytes.
    if (character >= 0x80) {
      const int second = at + 1 < name.size() ? static_cast<uint8_t>(name[at + 1]) : 0;
      const bool valid = character >= 0xC2 && character < 0xE0 && (second & 0xC0) == 0x80;
      character = valid ? (character & 0x1F) << 6 | (second & 0x3F) : kCharacters;
      ++at;
    }
    const int byte = character < kCharacters ? kAlphabet.byte[static_cast<size_t>(character)] : -1;
    if (byte < 0) {
      out.resize(before);
      return false;
    }
    out += static_cast<char>(byte);
  }
  return true;
}

}  // namespace aerie
