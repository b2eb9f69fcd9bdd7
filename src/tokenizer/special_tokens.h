// Finds tokens that are written in the text as they are: control and user-defined ones.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace aerie {

// Immutable after construction: safe to share between threads.
class SpecialTokens {
 public:
  struct Match {
    size_t begin = std::string_view::npos;  // npos: there is none
    size_t length = 0;
    int32_t id = -1;
  };

  // Names must outlive the object; empty ones are ignored.
  explicit SpecialTokens(std::vector<std::pair<std::string_view, int32_t>> tokens);
  SpecialTokens() = default;

  // The first name at or after `from`, the longest of those that begin there.
  Match find(std::string_view text, size_t from) const;
  // The longest name that begins at `at`.
  Match match_at(std::string_view text, size_t at) const {
    return begins_[static_cast<uint8_t>(text[at])] ? longest_at(text, at) : Match{};
  }
  bool empty() const { return tokens_.empty(); }

 private:
  Match longest_at(std::string_view text, size_t at) const;

  std::vector<std::pair<std::string_view, int32_t>> tokens_;  // by name
  std::array<bool, 256> begins_{};                            // whether a name begins with the byte
};

}  // namespace aerie
