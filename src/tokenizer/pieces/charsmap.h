// SentencePiece's precompiled character map: which strings a normaliser replaces by what.
//
// Format: the trie's size in bytes (u32), the trie, the replacements, each ended by a NUL. The trie
// is a double array of 32-bit units (https://github.com/s-yata/darts-clone): bits 0-7 and 31 are a
// unit's label, bit 8 says that a key ends here, bits 10-30 (shifted by 8 if bit 9 is set) are the
// offset to the children. All of it comes from a file and is checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace aerie {

// Immutable after construction: safe to share between threads.
class Charsmap {
 public:
  // kInvalidData for bytes that are no such map. Empty bytes are the map that replaces nothing.
  static Expected<Charsmap> parse(std::string_view bytes);
  Charsmap() = default;

  struct Match {
    size_t length;                 // of the key, in bytes
    std::string_view replacement;  // points into the map
  };
  // The longest key that `text` begins with.
  std::optional<Match> longest(std::string_view text) const;
  // The shortest.
  std::optional<Match> shortest(std::string_view text) const;

  bool empty() const { return units_.empty(); }

 private:
  template <typename Visit>
  void visit_keys(std::string_view text, Visit&& visit) const;
  std::optional<Match> match(size_t length, uint32_t value) const;

  std::vector<uint32_t> units_;
  std::string replacements_;  // ends with a NUL
};

}  // namespace aerie
