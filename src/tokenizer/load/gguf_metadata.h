// A tokenizer as GGUF's tokenizer.ggml.* keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace aerie {

class MetadataBuilder;
class Tokenizer;

// The comments name the keys. Written by Tokenizer::gguf_metadata(), it is what a GGUF file needs
// to give the same ids; read from a file, it is unchecked.
struct GgufTokenizerMetadata {
  std::string model = "gpt2";                 // tokenizer.ggml.model: "gpt2", "llama" or "t5"
  std::string pre;                            // tokenizer.ggml.pre; empty: no key
  std::vector<std::string> tokens;            // tokenizer.ggml.tokens: id -> name
  std::vector<int64_t> types;                 // tokenizer.ggml.token_type, one for each token
  std::vector<float> scores;                  // tokenizer.ggml.scores; empty: no key
  std::vector<std::string> merges;            // tokenizer.ggml.merges: "left right"; empty: no key
  std::string precompiled_charsmap;           // tokenizer.ggml.precompiled_charsmap; empty: no key
  std::optional<int64_t> bos, eos, eot, eom;  // tokenizer.ggml.bos_token_id, ...
  std::optional<int64_t> unk, pad;  // tokenizer.ggml.unknown_token_id, tokenizer.ggml.padding_...
  std::optional<bool> add_bos;      // tokenizer.ggml.add_bos_token
  std::optional<bool> add_eos;      // tokenizer.ggml.add_eos_token
  std::optional<bool> add_space_prefix;          // tokenizer.ggml.add_space_prefix
  std::optional<bool> remove_extra_whitespaces;  // tokenizer.ggml.remove_extra_whitespaces
  std::string model_name;                        // general.name; only read

  // What the tokenizer does and GGUF has no key for, for people: "'<|end|>' takes the white space
  // behind it along". Texts in which it plays no part keep their ids.
  std::vector<std::string> notes;
};

// Adds the keys to what will be a GGUF file's metadata.
void add_tokenizer(const GgufTokenizerMetadata& words, MetadataBuilder& metadata);

// The name of an id that no token has; its type is "unused", and it stands for no text.
std::string filler_token(size_t id);

// Makes the tokens as many as a model has embeddings, as GGUF asks for: models are padded to round
// numbers, and some tokenizers know tokens that the model does not, which is noted. kUnsupported if
// one of those is of a vocabulary's ordinary tokens.
Status fit_tokens(int64_t count, GgufTokenizerMetadata& words);

// A tokenizer from such metadata, which is checked; errors as of Tokenizer::from_gguf, naming keys.
Expected<std::unique_ptr<Tokenizer>> tokenizer_of(const GgufTokenizerMetadata& metadata);

}  // namespace aerie
