// Remembers the tokens of short words during one call: text repeats its words.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace aerie {

// A word has one place, and a new word takes it over: memory is bounded, and no choice of words
// makes a look-up slow. Not thread-safe.
class WordCache {
 public:
  // For a text of this many bytes; short ones are not worth a cache.
  void reserve(size_t text_bytes) {
    const size_t wanted = std::min(std::bit_ceil(text_bytes / 8 + 1), kMostEntries);
    if (text_bytes >= kLeastBytes && wanted > entries_.size()) entries_.assign(wanted, Entry{});
  }

  // Null if it is not there.
  const int32_t* find(std::string_view word, size_t& count) const {
    if (entries_.empty() || word.size() > kWordBytes) return nullptr;
    const Entry& entry = entries_[place(word)];
    if (entry.length != word.size() ||
        std::memcmp(entry.word.data(), word.data(), word.size()) != 0)
      return nullptr;
    count = entry.count;
    return entry.ids.data();
  }

  void insert(std::string_view word, std::span<const int32_t> ids) {
    if (entries_.empty() || word.empty() || word.size() > kWordBytes || ids.size() > kIds) return;
    Entry& entry = entries_[place(word)];
    entry.length = static_cast<uint8_t>(word.size());
    entry.count = static_cast<uint8_t>(ids.size());
    std::memcpy(entry.word.data(), word.data(), word.size());
    std::copy(ids.begin(), ids.end(), entry.ids.begin());
  }

 private:
  static constexpr size_t kWordBytes = 22;
  static constexpr size_t kIds = 6;
  static constexpr size_t kMostEntries = size_t{1} << 15;
  static constexpr size_t kLeastBytes = 1024;
  struct Entry {
    uint8_t length = 0;  // 0: empty
    uint8_t count = 0;
    std::array<char, kWordBytes> word{};
    std::array<int32_t, kIds> ids{};
  };

  size_t place(std::string_view word) const {
    uint64_t hash = word.size();
    for (size_t at = 0; at < word.size(); at += 8) {
      uint64_t eight = 0;
      std::memcpy(&eight, word.data() + at, std::min<size_t>(8, word.size() - at));
      hash = (hash ^ eight) * 0x9E3779B97F4A7C15u;
      hash ^= hash >> 29;
    }
    return static_cast<size_t>(hash) & (entries_.size() - 1);
  }

  std::vector<Entry> entries_;
};

}  // namespace aerie
