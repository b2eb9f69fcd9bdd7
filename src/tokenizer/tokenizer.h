// Text to token ids and back.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "format/model_file.h"
#include "tokenizer/load/gguf_metadata.h"

namespace aerie {

struct EncodeOptions {
  bool add_special = true;     // BOS/EOS where the model's metadata asks for them, never doubled
  bool parse_special = false;  // "<|im_start|>" in the text becomes the control token
};

// Immutable after construction: safe to share between threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // From the tokenizer.ggml.* metadata. kUnsupported, naming it, for a tokenizer or pre-tokenizer
  // that cannot be reproduced faithfully; kNotFound or kInvalidData, naming the key, for metadata
  // that is incomplete or contradicts itself. The file need not outlive the tokenizer.
  static Expected<std::unique_ptr<Tokenizer>> from_gguf(const ModelFile& file);

  // From a Hugging Face folder: tokenizer.json, else tokenizer.model (SentencePiece), else
  // vocab.json with merges.txt (GPT-2); tokenizer_config.json, special_tokens_map.json,
  // added_tokens.json and generation_config.json say which tokens have a role. Errors as above,
  // naming file and key; kNotFound if there is no tokenizer in the folder.
  static Expected<std::unique_ptr<Tokenizer>> from_folder(const std::string& path);

  virtual int vocab_size() const = 0;

  // Appends the ids of `text` to `ids`. Any bytes are accepted, valid UTF-8 or not. What `ids` held
  // before plays no part. Of a tokenizer that has a token for each byte and no normaliser, the
  // bytes come back from piece(), but for a leading space (strips_leading_space()).
  // kResourceExhausted, with `ids` as they were, if a regular expression of the model's files takes
  // too many steps on this text.
  virtual Status encode(std::string_view text, const EncodeOptions& options,
                        std::vector<int32_t>& ids) const = 0;

  // The bytes that a token stands for; a control token's are its name. A piece may be part of a
  // UTF-8 character. Requires 0 <= id < vocab_size().
  virtual std::string_view piece(int32_t id) const = 0;

  // The bytes that a byte-level vocabulary has no token for, ascending. They are left out of what
  // is encoded, as Hugging Face's tokenizers do: SmolLM2 lacks some control characters and F1, F2.
  // Other vocabularies have none: what they do not know becomes unk().
  virtual std::string_view missing_bytes() const = 0;

  // Whether encoding puts a space before a text, so that the first token of a text has one that is
  // not part of it (SentencePiece's dummy prefix).
  virtual bool strips_leading_space() const = 0;

  // Control tokens (and the unknown token) steer and are not text; they are left out of replies.
  virtual bool is_control(int32_t id) const = 0;
  // Whether generation ends with it: EOS, end of turn, end of message, end of text.
  virtual bool is_end(int32_t id) const = 0;
  // -1 if there is none.
  virtual int32_t bos() const = 0;
  virtual int32_t eos() const = 0;
  virtual int32_t unk() const = 0;
  virtual int32_t pad() const = 0;
  // The id of the token with exactly this name in the vocabulary, or -1.
  virtual int32_t find(std::string_view name) const = 0;

  // For writing a GGUF file. kUnsupported, saying what, if GGUF has no name for what it does.
  virtual Expected<GgufTokenizerMetadata> gguf_metadata() const = 0;
};

// The chat template's source in a Hugging Face folder: chat_template.jinja, else
// chat_template.json, else the key chat_template of tokenizer_config.json (of several named ones
// "default"). kNotFound if there is none.
Expected<std::string> chat_template_of_folder(const std::string& path);

}  // namespace aerie
