// Token ids to text as they arrive, in whole UTF-8 characters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace aerie {

// What stands before the tokens of a stream.
//
// SentencePiece puts a space before a text, so the first token of a text has one that is not the
// text's. Decoding a whole text leaves it out; a reply goes on from a prompt and keeps it, or the
// words on both sides of the border would grow together. llama.cpp and vLLM do the same.
enum class DetokenizeFrom : uint8_t { kPrompt, kBeginning };

// One for each stream of tokens; a copy goes on from the same state. The tokenizer must outlive it.
class Detokenizer {
 public:
  // With `show_control`, control tokens appear by name instead of being left out. One that is left
  // out does not end a character that began before it.
  explicit Detokenizer(const Tokenizer& tokenizer, bool show_control = false,
                       DetokenizeFrom from = DetokenizeFrom::kPrompt);

  // Of control tokens those appear by name.
  Detokenizer(const Tokenizer& tokenizer, std::vector<int32_t> shown);

  // Appends to `text` what became complete with this token. Bytes that can no longer become a valid
  // character are replaced by U+FFFD, one for each maximal invalid part (Unicode 15, section 3.9).
  // Requires 0 <= id < vocab_size().
  void push(int32_t id, std::string& text);
  // The end of the stream: an unfinished character becomes U+FFFD.
  void finish(std::string& text);

 private:
  const Tokenizer* tokenizer_;
  bool show_control_;
  std::vector<int32_t> shown_;  // beside all of them
  bool strip_space_;            // from what comes next
  std::string pending_;         // the beginning of a character
};

}  // namespace aerie
