#include "format/checksum.h"

#include <bit>
#include <cassert>
#include <cstring>

namespace aerie {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kWords = kLine / sizeof(uint64_t);

// Digits of pi: any odd numbers that look random would do.
constexpr uint64_t kKeys[kWords + 2] = {0x243F6A8885A308D3, 0x13198A2E03707345, 0xA4093822299F31D1,
                                        0x082EFA98EC4E6C89, 0x452821E638D01377, 0xBE5466CF34E90C6D,
                                        0xC0AC29B7C97C50DD, 0x3F84D5B5B5470917, 0x9216D5D98979FB1B,
                                        0xD1310BA698DFB5AD};

// The 128-bit product, folded: every bit of it depends on both numbers.
uint64_t fold(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t line_checksum(const std::byte* line, uint64_t number) {
  static_assert(std::endian::native == std::endian::little);
  uint64_t words[kWords];
  std::memcpy(words, line, kLine);
  uint64_t sum = 0;
  for (size_t i = 0; i < kWords; i += 2) {
    sum += fold(words[i] ^ kKeys[i], words[i + 1] ^ kKeys[i + 1]);
  }
  return fold(sum ^ kKeys[kWords], number ^ kKeys[kWords + 1]);
}

}  // namespace

uint64_t checksum(std::span<const std::byte> bytes, uint64_t offset) {
  assert(offset % kLine == 0);
  uint64_t number = offset / kLine, sum = 0;
  size_t at = 0;
  for (; at + kLine <= bytes.size(); at += kLine) sum += line_checksum(&bytes[at], number++);
  if (at < bytes.size()) {
    std::byte last[kLine] = {};
    std::memcpy(last, &bytes[at], bytes.size() - at);
    sum += line_checksum(last, number);
  }
  return sum;
}

}  // namespace aerie
