// Cuts text into the words inside which byte-pair merges happen.
//
// A pre-tokenizer is a list of regular expressions, applied one after the other, each to every
// piece that the one before it left: matches become pieces, and so does what lies between them.
// Adding one is a row of the table in pretokenizer.cc, under the name that GGUF files give it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace aerie {

// Immutable after construction: safe to share between threads.
class PreTokenizer {
 public:
  // `name` is the value of tokenizer.ggml.pre. kUnsupported for one that is not in the table.
  static Expected<PreTokenizer> create(std::string_view name);

  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  // Appends the words of `text`, none of them empty; their concatenation is `text`. Expressions see
  // valid UTF-8 only: a byte that belongs to no valid character is a word of its own, and ends the
  // text before it as the end of `text` would.
  void split(std::string_view text, std::vector<std::string_view>& words) const;

 private:
  class Regex;
  struct Scratch;
  PreTokenizer();
  void split_stage(size_t stage, std::string_view piece, Scratch& scratch,
                   std::vector<std::string_view>& words) const;

  std::vector<std::unique_ptr<Regex>> stages_;
};

}  // namespace aerie
