// What turns a word into tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tokenizer/load/merges.h"
#include "tokenizer/pieces/word_cache.h"

namespace aerie {

// What a model needs for itself during one call of Tokenizer::encode.
struct ModelScratch {
  struct Step {         // of a best path
    double score = 0;   // of the whole path up to here
    uint32_t from = 0;  // where its last token begins
    int32_t id = -1;    // -1: no path ends here
  };
  std::vector<int32_t> symbols;
  std::optional<Merger> merger;
  std::vector<Step> path;
  WordCache cache;
};

// Immutable: safe to share between threads.
class WordModel {
 public:
  virtual ~WordModel() = default;

  // Appends the tokens of `word`: valid UTF-8 of at most kMostBytes.
  virtual void encode(std::string_view word, ModelScratch& scratch,
                      std::vector<int32_t>& ids) const = 0;
  // Appends the tokens of a byte that is not part of a character.
  virtual void encode_byte(uint8_t byte, ModelScratch& scratch,
                           std::vector<int32_t>& ids) const = 0;

  static constexpr size_t kMostBytes = size_t{1} << 30;  // models count in 32 bits
};

}  // namespace aerie
