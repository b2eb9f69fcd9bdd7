// The unigram language model (Kudo 2018): of all ways to cut a text into tokens the one with the
// highest sum of scores.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tokenizer/pieces/trie.h"
#include "tokenizer/pieces/word_model.h"
#include "tokenizer/vocabulary.h"

namespace aerie {

struct UnigramOptions {
  bool byte_fallback = false;  // unknown characters become "<0x0A>" tokens
  // As SentencePiece: sums are rounded to floats, user-defined tokens beat all others, control and
  // unused tokens are not found in text. Else as Hugging Face: sums are doubles, all names count.
  bool sentencepiece = true;
};

class Unigram final : public WordModel {
 public:
  // One score for each token, or for the first ones, which are those that text is made of.
  // kInvalidData for scores that are not finite, byte tokens that are
  // missing, and a vocabulary without an unknown token. The vocabulary must outlive the model.
  static Expected<std::unique_ptr<Unigram>> create(const Vocabulary& vocabulary,
                                                   const std::vector<double>& scores,
                                                   const UnigramOptions& options);

  void encode(std::string_view word, ModelScratch& scratch,
              std::vector<int32_t>& ids) const override;
  void encode_byte(uint8_t byte, ModelScratch& scratch, std::vector<int32_t>& ids) const override;

 private:
  Unigram(const Vocabulary& vocabulary, const UnigramOptions& options)
      : vocabulary_(vocabulary), options_(options) {}
  // Fills scratch.path for `word`.
  void find_path(std::string_view word, ModelScratch& scratch) const;

  const Vocabulary& vocabulary_;
  UnigramOptions options_;
  Trie trie_;
  std::vector<double> scores_;
  double unknown_score_ = 0;
  std::array<int32_t, 256> byte_ids_{};
};

}  // namespace aerie
