// Text to token ids and back.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "format/model_file.h"

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

  virtual int vocab_size() const = 0;

  // Appends the ids of `text` to `ids`. Any bytes are accepted, valid UTF-8 or not, and come back
  // from piece(), but for those of missing_bytes(). What `ids` held before plays no part.
  virtual void encode(std::string_view text, const EncodeOptions& options,
                      std::vector<int32_t>& ids) const = 0;

  // The bytes that a token stands for; a control token's are its name. A piece may be part of a
  // UTF-8 character. Requires 0 <= id < vocab_size().
  virtual std::string_view piece(int32_t id) const = 0;

  // The bytes that the vocabulary has no token for, ascending. They are left out of what is
  // encoded, as Hugging Face's tokenizers do: SmolLM2 lacks some control characters and F1, F2.
  virtual std::string_view missing_bytes() const = 0;

  // Control tokens (and the unknown token) steer and are not text; they are left out of replies.
  virtual bool is_control(int32_t id) const = 0;
  // Whether generation ends with it: EOS, end of turn, end of message, end of text.
  virtual bool is_end(int32_t id) const = 0;
  // -1 if there is none.
  virtual int32_t bos() const = 0;
  virtual int32_t eos() const = 0;
  // The id of the token with exactly this name in the vocabulary, or -1.
  virtual int32_t find(std::string_view name) const = 0;
};

}  // namespace aerie
