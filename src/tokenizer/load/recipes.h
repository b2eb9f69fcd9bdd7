// How byte-level vocabularies cut text, by the names that GGUF files have for it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tokenizer/pieces/normalizer.h"
#include "tokenizer/pieces/pretokenizer.h"

namespace aerie {

struct SplitRule {
  std::string pattern;  // in Oniguruma's syntax
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;
  bool operator==(const SplitRule&) const = default;
};

// A normaliser, rules, GPT-2's spelling of bytes, and rules that see that spelling.
struct Recipe {
  bool nfc = false;
  std::vector<SplitRule> rules;
  std::vector<SplitRule> rules_on_bytes;
  bool ignore_merges = false;  // see BpeOptions
  bool operator==(const Recipe&) const = default;
};

// The expression of GPT-2 (Radford et al. 2019, encoder.py), which Hugging Face's ByteLevel has.
extern const std::string_view kGpt2Pattern;
// Hugging Face's Digits and Punctuation.
extern const std::string_view kDigitPattern;
extern const std::string_view kPunctuationPattern;

// `name` is the value of tokenizer.ggml.pre; kUnsupported, naming it, if it is not known.
Expected<Recipe> recipe_of_name(std::string_view name);
// A name under which recipe_of_name() gives the same; empty if there is none.
std::string_view name_of_recipe(const Recipe& recipe);

// Adds the recipe's rules. The spelling is a step of its own only if rules follow it.
Status add_recipe(const Recipe& recipe, Normalizer& normalizer, PreTokenizer& pre_tokenizer);

}  // namespace aerie
