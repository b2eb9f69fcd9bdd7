#include "tokenizer/load/gguf_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/errors.h"
#include "format/text.h"
#include "tokenizer/load/recipes.h"

namespace aerie {
namespace {

Status unsupported(std::string message) {
  return not_supported("this tokenizer has no form in GGUF: {}", std::move(message));
}

std::optional<int64_t> optional_id(int32_t id) {
  return id < 0 ? std::nullopt : std::optional<int64_t>(id);
}

// GGUF's files say "left right".
Status write_merges(const Vocabulary& vocabulary, const Bpe& model,
                    std::vector<std::string>& merges) {
  merges.reserve(model.rules().size());
  for (const MergeRule& rule : model.rules()) {
    const std::string_view left = vocabulary.name(rule.left), right = vocabulary.name(rule.right);
    if (left.find(' ') != left.npos || right.find(' ') != right.npos) {
      return unsupported(fmt::format("the merge of '{}' and '{}' has a space in it",
                                     printable(left, 40), printable(right, 40)));
    }
    merges.push_back(std::string(left) + " " + std::string(right));
  }
  return {};
}

auto pair_of(const MergeRule& rule) {
  return std::tuple(rule.left, rule.right, rule.result);
}

}  // namespace

GgufTokenizerMetadata gguf_vocabulary(const Vocabulary& vocabulary, const AddedTokens& added,
                                      const std::vector<int64_t>& ends) {
  GgufTokenizerMetadata metadata;
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    // GGUF has no holes.
    const std::string_view name = vocabulary.name(id);
    metadata.tokens.push_back(name.empty() ? filler_token(static_cast<size_t>(id))
                                           : std::string(name));
    metadata.types.push_back(static_cast<int64_t>(vocabulary.type(id)));
  }
  metadata.bos = optional_id(vocabulary.bos());
  metadata.eos = optional_id(vocabulary.eos());
  metadata.unk = optional_id(vocabulary.unk());
  metadata.pad = optional_id(vocabulary.pad());
  metadata.add_bos = vocabulary.add_bos();
  metadata.add_eos = vocabulary.add_eos();
  for (const int64_t id : ends) {
    if (id < 0 || id >= vocabulary.size() || id == metadata.eos) continue;
    if (!metadata.eot || *metadata.eot == id) {
      metadata.eot = id;
    } else if (!metadata.eom) {
      metadata.eom = id;
    } else if (*metadata.eom != id) {
      metadata.notes.push_back(fmt::format("token {} ends a reply as well", id));
    }
  }
  for (const AddedToken& token : added.tokens()) {
    if (!token.lstrip && !token.rstrip && !token.single_word) continue;
    metadata.notes.push_back(fmt::format("'{}' {}", printable(token.content, 40),
                                         token.single_word
                                             ? "is only found as a word of its own"
                                             : "takes the white space beside it along"));
  }
  return metadata;
}

Expected<GgufTokenizerMetadata> gguf_of_byte_level(GgufTokenizerMetadata metadata,
                                                   const Vocabulary& vocabulary, const Bpe& model,
                                                   const HfShape& shape) {
  metadata.model = "gpt2";
  metadata.pre = shape.is_recipe ? name_of_recipe(shape.recipe) : std::string_view();
  if (metadata.pre.empty()) return unsupported("its pre-tokenizer has no tokenizer.ggml.pre");
  if (model.options().unk >= 0) return unsupported("bytes without a token become another token");
  AERIE_RETURN_IF_ERROR(write_merges(vocabulary, model, metadata.merges));
  return metadata;
}

Expected<GgufTokenizerMetadata> gguf_of_merges(GgufTokenizerMetadata metadata,
                                               const Vocabulary& vocabulary, const Bpe& model,
                                               const HfShape& shape) {
  metadata.model = "llama";
  metadata.pre = "default";
  const bool prefix = shape.prepended == "\u2581";
  if (!shape.only_spaces_change || !shape.spaces_to_signs ||
      (!prefix && !shape.prepended.empty())) {
    return unsupported("its normaliser does more than to mark spaces");
  }
  if (model.options().ignore_merges) return unsupported("it ignores merges for whole words");
  std::vector<MergeRule> rules = model.rules(), wanted = Bpe::rules_of_scores(vocabulary);
  metadata.scores.assign(metadata.tokens.size(), -static_cast<float>(rules.size()) - 1);
  // The score of a token is the rank at which it is made; the ranks of a token must lie together.
  int32_t made = -1;
  for (size_t rank = 0; rank < rules.size(); ++rank) {
    const int32_t result = rules[rank].result;
    float& score = metadata.scores[static_cast<size_t>(result)];
    if (result == made) continue;
    if (score >= -static_cast<float>(rules.size())) {
      return unsupported(fmt::format("'{}' is made by merges of different ranks",
                                     printable(vocabulary.name(result), 40)));
    }
    score = -static_cast<float>(rank);
    made = result;
  }
  // A float counts exactly up to 2^24.
  if (rules.size() >= (size_t{1} << 24)) return unsupported("it has too many merges");
  const auto less = [](const MergeRule& a, const MergeRule& b) { return pair_of(a) < pair_of(b); };
  std::ranges::sort(rules, less);
  std::ranges::sort(wanted, less);
  const bool same =
      std::equal(rules.begin(), rules.end(), wanted.begin(), wanted.end(),
                 [](const MergeRule& a, const MergeRule& b) { return pair_of(a) == pair_of(b); });
  if (!same) return unsupported("its merges are not all pairs that make a token");
  metadata.add_space_prefix = prefix;
  metadata.remove_extra_whitespaces = false;
  if (shape.prefix_first_only) {
    metadata.notes.emplace_back("a space is put before the first text only, not behind tokens");
  }
  return metadata;
}

}  // namespace aerie
