// The parts of a Hugging Face tokenizer.json but for its model and vocabulary.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "format/json.h"
#include "tokenizer/load/recipes.h"
#include "tokenizer/pieces/normalizer.h"
#include "tokenizer/pieces/pretokenizer.h"

namespace aerie {

// What conversion to GGUF needs to know of a normaliser and a pre-tokenizer: the recipe that they
// are, or how they write spaces.
struct HfShape {
  Recipe recipe;
  bool is_recipe = true;           // false: some part is none of a recipe
  std::string prepended;           // Prepend's text
  bool spaces_to_signs = false;    // " " becomes U+2581
  bool only_spaces_change = true;  // false: some part does more than that
  bool prefix_first_only = false;  // the prefix stands at the beginning of a text only
};

// Each takes the value of the key of its name in tokenizer.json, which may be null. kUnsupported,
// naming file, key and type, for components that are not known; kInvalidData and kNotFound for
// broken ones.

Status read_hf_normalizer(const JsonObject& root, Normalizer& normalizer, HfShape& shape);

struct HfPreTokenizer {
  PreTokenizer steps;
  bool byte_level = false;  // words are bytes: the last step spells them as GPT-2 does
};
Expected<HfPreTokenizer> read_hf_pre_tokenizer(const JsonObject& root, HfShape& shape);

// How a token's name becomes text.
struct HfDecoder {
  bool byte_level = false;     // names spell bytes as GPT-2 does
  bool byte_fallback = false;  // "<0x0A>" is a byte
  std::vector<std::pair<std::string, std::string>> replacements;
  bool strips_leading_space = false;  // one, from the whole text

  std::string piece(std::string_view name) const;
};
Expected<HfDecoder> read_hf_decoder(const JsonObject& root);

// The tokens that are put around a text, if the post-processor says so.
struct HfTemplate {
  bool given = false;
  std::optional<std::string> before, behind;
};
Expected<HfTemplate> read_hf_post_processor(const JsonObject& root);

}  // namespace aerie
