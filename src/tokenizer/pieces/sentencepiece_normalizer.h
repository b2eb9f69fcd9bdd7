// SentencePiece's normaliser: a character map, and white space.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tokenizer/pieces/charsmap.h"
#include "tokenizer/pieces/normalizer.h"

namespace aerie {

struct SentencePieceNormalizerOptions {
  Charsmap map;
  std::vector<std::string> user_defined;    // stay as they are
  bool add_dummy_prefix = true;             // a space before a text that is not empty
  bool remove_extra_whitespaces = true;     // at both ends, and all but one between words
  bool escape_whitespaces = true;           // spaces become U+2581
  bool treat_whitespace_as_suffix = false;  // the dummy space goes behind
};

std::unique_ptr<NormalizerStep> sentencepiece_step(SentencePieceNormalizerOptions options);

}  // namespace aerie
