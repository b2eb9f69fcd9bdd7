#include "base/utf8.h"

#include <cassert>
#include <cstring>

namespace aerie {
namespace {

// The bytes that may follow a lead byte directly, and the character's length; 0 for no lead byte.
struct Lead {
  uint8_t length, low, high;
};

Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Unit utf8_next(std::string_view bytes) {
  assert(!bytes.empty());
  Lead lead = lead_of(static_cast<uint8_t>(bytes[0]));
  if (lead.length == 0) return {Utf8Kind::kInvalid, 1};
  for (uint8_t i = 1; i < lead.length; ++i) {
    if (i == bytes.size()) return {Utf8Kind::kIncomplete, i};
    const uint8_t byte = static_cast<uint8_t>(bytes[i]);
    if (byte < lead.low || byte > lead.high) return {Utf8Kind::kInvalid, i};
    lead.low = 0x80;
    lead.high = 0xBF;
  }
  return {Utf8Kind::kValid, lead.length};
}

size_t utf8_valid_prefix(std::string_view bytes) {
  size_t at = 0;
  while (at < bytes.size()) {
    uint64_t eight;
    while (at + 8 <= bytes.size()) {
      std::memcpy(&eight, bytes.data() + at, 8);
      if ((eight & 0x8080808080808080u) != 0) break;
      at += 8;
    }
    if (at == bytes.size()) break;
    const Utf8Unit unit = utf8_next(bytes.substr(at));
    if (unit.kind != Utf8Kind::kValid) break;
    at += unit.length;
  }
  return at;
}

Utf8Character utf8_first(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[i])); };
  const uint32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xE0) return {(first & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (first < 0xF0) return {(first & 0xF) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(first & 7) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

size_t utf8_length(char first) {
  const auto byte = static_cast<uint8_t>(first);
  if (byte < 0xC0) return 1;
  if (byte < 0xE0) return 2;
  return byte < 0xF0 ? 3 : 4;
}

void append_utf8(uint32_t code, std::string& out) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | code >> 6);
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | code >> 12);
    out += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | code >> 18);
    out += static_cast<char>(0x80 | (code >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  }
}

}  // namespace aerie
