// Token ids to text as they arrive, in whole UTF-8 characters.
#pragma once

#include <cstdint>
#include <string>

#include "tokenizer/tokenizer.h"

namespace aerie {

// One for each stream of tokens; a copy goes on from the same state. The tokenizer must outlive it.
class Detokenizer {
 public:
  // With `show_control`, control tokens appear by name instead of being left out. One that is left
  // out does not end a character that began before it.
  explicit Detokenizer(const Tokenizer& tokenizer, bool show_control = false);

  // Appends to `text` what became complete with this token. Bytes that can no longer become a valid
  // character are replaced by U+FFFD, one for each maximal invalid part (Unicode 15, section 3.9).
  // Requires 0 <= id < vocab_size().
  void push(int32_t id, std::string& text);
  // The end of the stream: an unfinished character becomes U+FFFD.
  void finish(std::string& text);

 private:
  const Tokenizer* tokenizer_;
  bool show_control_;
  std::string pending_;  // the beginning of a character
};

}  // namespace aerie
