// Tokens that are found in a text as they are, before it is cut into words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tokenizer/pieces/normalizer.h"
#include "tokenizer/special_tokens.h"

namespace aerie {

// As Hugging Face's tokenizer.json describes one.
struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool special = false;      // only looked for where the caller asks for it
  bool single_word = false;  // only between characters that are not of words
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // and behind it
  bool normalized = false;   // looked for in the normalised text, itself normalised
};

// Immutable after construction: safe to share between threads.
class AddedTokens {
 public:
  // `normalizer` may be null: then the names of normalised tokens stay as they are.
  static Expected<AddedTokens> create(std::vector<AddedToken> tokens, const Normalizer* normalizer);
  AddedTokens() = default;
  AddedTokens(AddedTokens&&) noexcept = default;
  AddedTokens& operator=(AddedTokens&&) noexcept = default;

  enum class Pass : uint8_t { kRaw, kNormalized };
  struct Part {
    std::string_view text;
    int32_t id = -1;  // -1: text between tokens, not empty
  };
  // Appends the parts of `text` in its order: at each place the longest token that begins there.
  void split(std::string_view text, Pass pass, bool special, std::vector<Part>& parts) const;

  const std::vector<AddedToken>& tokens() const { return tokens_; }

 private:
  const SpecialTokens& names(Pass pass, bool special) const {
    return names_[pass == Pass::kNormalized ? 1 : 0][special ? 1 : 0];
  }
  static bool stands_alone(std::string_view text, size_t begin, size_t end);

  std::vector<AddedToken> tokens_;
  std::vector<std::string> patterns_;  // by token
  SpecialTokens names_[2][2];          // of indices into tokens_
};

}  // namespace aerie
