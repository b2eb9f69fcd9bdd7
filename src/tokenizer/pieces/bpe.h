// Byte-pair encoding of words (Sennrich et al. 2016): over bytes as GPT-2 does it, and over
// characters as SentencePiece and Llama's tokenizer.json do.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/status.h"
#include "tokenizer/load/merges.h"
#include "tokenizer/pieces/word_model.h"
#include "tokenizer/vocabulary.h"

namespace aerie {

struct BpeOptions {
  bool bytes = true;           // words are bytes, spelled in the vocabulary as GPT-2 does
  bool byte_fallback = false;  // characters without a token become "<0x0A>" tokens if all are there
  bool fuse_unk = false;       // neighbouring unknown characters are one token
  bool ignore_merges = false;  // a word that is a token is that token
  // What a character (or byte) without a token becomes; -1: it is left out before merging, so that
  // its neighbours may join.
  int32_t unk = -1;
  // The tokens that text is made of, by id; null: the normal ones.
  const std::vector<bool>* in_model = nullptr;  // only read while the model is made
};

class Bpe final : public WordModel {
 public:
  // `merges` are pairs of names, by rank. kInvalidData, naming `key`, for pairs that are not in the
  // vocabulary, make nothing that is, or are there twice. The vocabulary must outlive the model.
  static Expected<std::unique_ptr<Bpe>> from_merges(
      const Vocabulary& vocabulary,
      const std::vector<std::pair<std::string_view, std::string_view>>& merges,
      const BpeOptions& options, const std::string& key);

  // SentencePiece's: any two neighbours whose concatenation is a normal (or unused) token may join,
  // the highest score first. kInvalidData for scores that are no numbers; kUnsupported for an
  // unused token that several pairs make.
  static Expected<std::unique_ptr<Bpe>> from_scores(const Vocabulary& vocabulary,
                                                    const std::vector<float>& scores,
                                                    bool byte_fallback);

  void encode(std::string_view word, ModelScratch& scratch,
              std::vector<int32_t>& ids) const override;
  void encode_byte(uint8_t byte, ModelScratch& scratch, std::vector<int32_t>& ids) const override;

  // -1 for a byte without a token; only of a model over bytes.
  int32_t byte_id(uint8_t byte) const { return byte_ids_[byte]; }
  const BpeOptions& options() const { return options_; }
  // By rank; from_merges() only.
  const std::vector<MergeRule>& rules() const { return rules_; }
  // The rules that from_scores() would make, those of equal rank in any order.
  static std::vector<MergeRule> rules_of_scores(const Vocabulary& vocabulary);

 private:
  Bpe(const Vocabulary& vocabulary, const BpeOptions& options)
      : vocabulary_(vocabulary), options_(options) {}
  bool in_model(int32_t id) const;
  void read_bytes();
  void read_characters();
  void read_joins();
  void set_symbol(uint32_t code, int32_t symbol);
  int32_t symbol_of(uint32_t code) const;
  Status expand_unused(const std::vector<MergeRule>& rules);

  void encode_chunk(std::string_view chunk, ModelScratch& scratch, std::vector<int32_t>& ids) const;
  void append_symbols(std::string_view chunk, std::vector<int32_t>& symbols) const;
  void append_unknown(std::string_view character, std::vector<int32_t>& ids) const;
  void append_token(int32_t symbol, size_t begin, std::vector<int32_t>& ids) const;
  size_t chunk_end(std::string_view word, size_t begin) const;

  const Vocabulary& vocabulary_;
  BpeOptions options_;
  std::vector<MergeRule> rules_;
  MergeTable merges_;
  std::array<int32_t, 256> byte_ids_{};  // -1: missing
  // Characters as symbols: their token, or a number behind the vocabulary's for one that only
  // occurs in longer tokens.
  std::vector<int32_t> plane0_;  // by code; -1: none
  std::unordered_map<uint32_t, int32_t> other_planes_;
  std::vector<uint32_t> extra_codes_;  // by symbol - vocabulary size
  std::unordered_map<int32_t, std::pair<int32_t, int32_t>> expanded_;  // unused token -> its parts
  NameTable words_;                                                    // for ignore_merges
  // Characters that stand before U+2581 inside a token. Between all others and U+2581 nothing
  // joins, so a text falls apart there.
  std::unordered_set<uint32_t> before_sign_;
  bool falls_apart_ = false;
};

}  // namespace aerie
