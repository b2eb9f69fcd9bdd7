// The one implementation of Tokenizer: added tokens, normaliser, pre-tokenizer, model.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/load/gguf_metadata.h"
#include "tokenizer/pieces/normalizer.h"
#include "tokenizer/pieces/pretokenizer.h"
#include "tokenizer/pieces/word_model.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocabulary.h"

namespace aerie {

// A text goes through these in their order.
struct PipelineParts {
  std::unique_ptr<Vocabulary> vocabulary;
  AddedTokens added;
  Normalizer normalizer;
  // Whether the normaliser's Place tells it that text stands behind an added token: then it is as
  // if it began there.
  bool begins_after_added = true;
  PreTokenizer pre_tokenizer;
  std::unique_ptr<WordModel> model;
  std::string missing_bytes;
  bool strips_leading_space = false;
  // What GGUF calls all this, or why it has no name for it.
  Expected<GgufTokenizerMetadata> gguf = not_supported("not described");
};

class PipelineTokenizer final : public Tokenizer {
 public:
  explicit PipelineTokenizer(PipelineParts parts) : parts_(std::move(parts)) {}

  int vocab_size() const override { return parts_.vocabulary->size(); }
  Status encode(std::string_view text, const EncodeOptions& options,
                std::vector<int32_t>& ids) const override;
  std::string_view piece(int32_t id) const override { return parts_.vocabulary->piece(id); }
  std::string_view missing_bytes() const override { return parts_.missing_bytes; }
  bool strips_leading_space() const override { return parts_.strips_leading_space; }
  bool is_control(int32_t id) const override { return parts_.vocabulary->is_control(id); }
  bool is_end(int32_t id) const override { return parts_.vocabulary->is_end(id); }
  int32_t bos() const override { return parts_.vocabulary->bos(); }
  int32_t eos() const override { return parts_.vocabulary->eos(); }
  int32_t unk() const override { return parts_.vocabulary->unk(); }
  int32_t pad() const override { return parts_.vocabulary->pad(); }
  int32_t find(std::string_view name) const override { return parts_.vocabulary->find(name); }
  Expected<GgufTokenizerMetadata> gguf_metadata() const override { return parts_.gguf; }

 private:
  struct Scratch;
  // `first`: `text` stands at the beginning of all that is encoded.
  Status encode_between(std::string_view text, bool first, const EncodeOptions& options,
                        Scratch& scratch) const;
  Status encode_valid(std::string_view text, bool first, Place place, const EncodeOptions& options,
                      Scratch& scratch) const;
  void encode_word(std::string_view word, Scratch& scratch) const;

  PipelineParts parts_;
};

}  // namespace aerie
