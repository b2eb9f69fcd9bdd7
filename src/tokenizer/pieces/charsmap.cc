#include "tokenizer/pieces/charsmap.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "base/errors.h"
#include "base/utf8.h"

namespace aerie {
namespace {

static_assert(std::endian::native == std::endian::little);

uint32_t label(uint32_t unit) {
  return unit & (1u << 31 | 0xFF);
}
bool ends_key(uint32_t unit) {
  return (unit >> 8 & 1) != 0;
}
uint32_t offset(uint32_t unit) {
  return (unit >> 10) << ((unit & 1u << 9) >> 6);
}

}  // namespace

Expected<Charsmap> Charsmap::parse(std::string_view bytes) {
  const auto invalid = [](std::string what) {
    return invalid_data("the precompiled character map {}", std::move(what));
  };
  Charsmap map;
  if (bytes.empty()) return map;
  uint32_t trie_bytes = 0;
  if (bytes.size() < sizeof(trie_bytes)) return invalid("is cut off");
  std::memcpy(&trie_bytes, bytes.data(), sizeof(trie_bytes));
  bytes.remove_prefix(sizeof(trie_bytes));
  if (trie_bytes > bytes.size() || trie_bytes % 4 != 0) {
    return invalid(fmt::format("claims a trie of {} bytes and has {}", trie_bytes, bytes.size()));
  }
  if (trie_bytes == 0) return map;
  map.units_.resize(trie_bytes / 4);
  std::memcpy(map.units_.data(), bytes.data(), trie_bytes);
  map.replacements_ = bytes.substr(trie_bytes);
  if (map.replacements_.empty() || map.replacements_.back() != '\0') {
    return invalid("does not end with a NUL");
  }
  constexpr size_t kMostReplacement = 1024;  // the longest of Unicode's have 54 bytes
  for (size_t begin = 0; begin < map.replacements_.size();) {
    const size_t end = map.replacements_.find('\0', begin);
    if (end - begin > kMostReplacement) {
      return invalid(fmt::format("has a replacement of {} bytes", end - begin));
    }
    begin = end + 1;
  }
  return map;
}

// Calls visit(length, value) for each key that `text` begins with, from the shortest, until it
// returns false. A walk that leaves the array is over.
template <typename Visit>
void Charsmap::visit_keys(std::string_view text, Visit&& visit) const {
  if (units_.empty()) return;
  uint32_t node = offset(units_[0]);
  for (size_t at = 0; at < text.size(); ++at) {
    const uint32_t byte = static_cast<uint8_t>(text[at]);
    node ^= byte;
    if (byte == 0 || node >= units_.size() || label(units_[node]) != byte) return;
    const bool key = ends_key(units_[node]);
    node ^= offset(units_[node]);
    if (!key) continue;
    if (node >= units_.size()) return;
    // A key that ends inside a character would leave half of it behind.
    if (at + 1 < text.size() && (static_cast<uint8_t>(text[at + 1]) & 0xC0) == 0x80) continue;
    if (!visit(at + 1, units_[node] & ~(1u << 31))) return;
  }
}

std::optional<Charsmap::Match> Charsmap::match(size_t length, uint32_t value) const {
  if (length == 0 || value >= replacements_.size()) return std::nullopt;
  const std::string_view replacement(replacements_.data() + value);
  if (utf8_valid_prefix(replacement) != replacement.size()) return std::nullopt;
  return Match{length, replacement};
}

std::optional<Charsmap::Match> Charsmap::longest(std::string_view text) const {
  size_t length = 0;
  uint32_t value = 0;
  visit_keys(text, [&](size_t key_length, uint32_t key_value) {
    length = key_length;
    value = key_value;
    return true;
  });
  return match(length, value);
}

std::optional<Charsmap::Match> Charsmap::shortest(std::string_view text) const {
  size_t length = 0;
  uint32_t value = 0;
  visit_keys(text, [&](size_t key_length, uint32_t key_value) {
    length = key_length;
    value = key_value;
    return false;
  });
  return match(length, value);
}

}  // namespace aerie
