#include "draft/method.h"

#include <algorithm>
#include <array>

namespace aerie {
namespace {

using Kind = MethodKey::Kind;

constexpr double kMost = 64;  // of most counts

constexpr MethodKey tokens(double fallback) {
  return {
      kTokensKey, Kind::kWhole, 1, kMost, fallback, false, "the most tokens to draft in a round"};
}

constexpr std::array kNgramKeys = {
    MethodKey{"prompt_lookup_max", Kind::kWhole, 1, kMost, 3, false, "the longest n"},
    MethodKey{"prompt_lookup_min", Kind::kWhole, 1, kMost, 1, false, "the shortest n"},
    MethodKey{"num_matches", Kind::kWhole, 1, 16, 1, false, "occurrences that go into a draft"},
    tokens(10),
};

constexpr std::array kPredictionKeys = {
    MethodKey{"prompt_lookup_max", Kind::kWhole, 1, kMost, 8, false,
              "more tokens that agree make no difference"},
    MethodKey{"prompt_lookup_min", Kind::kWhole, 1, kMost, 1, false,
              "tokens that must agree to find the way back"},
    tokens(16),
};

// The first three as in vLLM.
constexpr std::array kSuffixKeys = {
    MethodKey{"suffix_decoding_max_tree_depth", Kind::kWhole, 2, 256, 24, false,
              "tokens of a match and its draft together"},
    MethodKey{"suffix_decoding_max_spec_factor", Kind::kFraction, 0, 100, 1, false,
              "tokens drafted for each token that matched"},
    MethodKey{"suffix_decoding_min_token_prob", Kind::kFraction, 0.001, 1, 0.1, false,
              "the least probability of a path, by the counts"},
    MethodKey{"suffix_decoding_spec_offset", Kind::kFraction, 0, 100, 0, false,
              "tokens drafted beyond that"},
    MethodKey{"suffix_decoding_max_cached_tokens", Kind::kWhole, 0, 1 << 26, 65536, false,
              "tokens of past outputs"},
    MethodKey{"suffix_decoding_tree", Kind::kWhole, 0, 1, 0, false,
              "1: the likeliest nodes rather than the likeliest chain"},
    tokens(16),
};

constexpr std::array kRecyclingKeys = {
    MethodKey{"num_successors", Kind::kWhole, 1, 8, 8, false, "successors kept for each token"},
    MethodKey{"refresh", Kind::kWhole, 0, kMost, 3, false,
              "rows of a round, beside accepted ones, whose likeliest tokens are kept; 0: none"},
    tokens(16),
};

// As the paper calls them: W, N and G.
constexpr std::array kLookaheadKeys = {
    MethodKey{"window", Kind::kWhole, 1, kMost, 5, false, "W, columns of the window"},
    MethodKey{"ngram", Kind::kWhole, 2, 16, 5, false, "N, tokens of an n-gram"},
    MethodKey{"guesses", Kind::kWhole, 1, kMost, 5, false, "G, n-grams kept for a first token"},
    MethodKey{kTokensKey, Kind::kWhole, 1, 256, 64, false,
              "the most tokens in a round, the window's included"},
};

constexpr std::array kEarlyExitKeys = {
    MethodKey{"exit_layer", Kind::kWhole, 0, 1024, 0, false,
              "layers that draft; 0: a quarter of the model's"},
    tokens(5),
};

constexpr std::array kLayerSkipKeys = {
    MethodKey{"skip_layers", Kind::kText, 0, 0, 0, false,
              "layers to leave out when drafting, counted from 0, such as 8-12+14"},
    MethodKey{"skip_fraction", Kind::kFraction, 0, 0.95, 0.2, false,
              "how many of them, evenly, unless skip_layers says which"},
    tokens(5),
};

template <size_t N, size_t M>
constexpr std::array<MethodKey, N + M> joined(const std::array<MethodKey, N>& a,
                                              const std::array<MethodKey, M>& b) {
  std::array<MethodKey, N + M> all = {};
  std::copy(a.begin(), a.end(), all.begin());
  std::copy(b.begin(), b.end(), all.begin() + N);
  return all;
}

// Of all that grow trees from a network.
constexpr std::array<MethodKey, 7> network_keys(std::string_view model, std::string_view steps) {
  return {
      MethodKey{"model", Kind::kText, 0, 0, 0, true, model},
      tokens(5),
      MethodKey{"num_steps", Kind::kWhole, 0, kMost, 0, false, steps},
      MethodKey{"topk", Kind::kWhole, 1, 10, 1, false,
                "children of a node and nodes of a pass; 1: a chain"},
      MethodKey{"top_p", Kind::kFraction, 0.01, 1, 1, false,
                "no more children than cover this probability"},
      MethodKey{"min_probability", Kind::kFraction, 0, 1, 0, false,
                "paths below it are not followed"},
      MethodKey{kTreeKey, Kind::kText, 0, 0, 0, false, "a published shape: eagle or medusa"},
  };
}

constexpr auto kDraftModelKeys =
    joined(network_keys("the draft model's file",
                        "passes of the draft model in a round, at most; 0: as many as tokens"),
           std::array{
               MethodKey{kVocabularyKey, Kind::kText, 0, 0, 0, false,
                         "how tokens are matched: same, intersection or text"},
           });

// Of every trained head.
constexpr auto kHeadKeys =
    joined(network_keys("the head's folder (config.json and safetensors)",
                        "levels of a draft, at most; 0: as many as tokens"),
           std::array{
               MethodKey{kDraftTypeKey, Kind::kText, 0, 0, 0, false,
                         "its matrices are converted to q8_0, q4_0, bf16 ..."},
               MethodKey{"draft_vocab", Kind::kText, 0, 0, 0, false,
                         "a file of token ids, the most frequent first: what can be drafted"},
               MethodKey{"draft_vocab_size", Kind::kWhole, 0, 1 << 20, 0, false,
                         "how many of them; 0: all"},
           });

constexpr auto kEagle3Keys =
    joined(kHeadKeys,
           std::array{
               MethodKey{"parallel_drafting", Kind::kFlag, 0, 1, MethodKey::kUnsaid, false,
                         "all depths in one pass (P-EAGLE); as the head was trained unless given"},
               MethodKey{"tap_layers", Kind::kText, 0, 0, 0, false,
                         "layers whose input is tapped, such as 2+16+29, not those of config.json"},
               MethodKey{"norm_before_residual", Kind::kFlag, 0, 1, MethodKey::kUnsaid, false,
                         "as config.json has it unless given"},
           });

constexpr auto kMtpKeys = [] {
  auto keys = joined(kHeadKeys,
                     std::array{
                         MethodKey{"feature_normed", Kind::kFlag, 0, 1, MethodKey::kUnsaid, false,
                                   "it takes the target's hidden state behind the final norm"},
                         MethodKey{"handed_normed", Kind::kFlag, 0, 1, MethodKey::kUnsaid, false,
                                   "it hands on what is behind its own norm"},
                         MethodKey{"hidden_first", Kind::kFlag, 0, 1, MethodKey::kUnsaid, false,
                                   "it takes the hidden state before the embedding"},
                         MethodKey{"zero_first", Kind::kFlag, 0, 1, MethodKey::kUnsaid, false,
                                   "position 0 has no embedding"},
                     });
  // The modules usually come with the model.
  keys[0].required = false;
  keys[0].what = "the folder that has the modules; the target's own unless given";
  return keys;
}();

// SGLang's names; its number of draft tokens counts the root.
constexpr std::array kDraftModelAliases = {
    MethodAlias{"speculative_num_steps", "num_steps"},
    MethodAlias{"speculative_eagle_topk", "topk"},
    MethodAlias{"speculative_num_draft_tokens", kTokensKey, -1},
    MethodAlias{"num_draft_tokens", kTokensKey, -1},
};

constexpr std::array kMethods = {
    Method{"ngram", kNgramKeys, "what followed the last words where they stood before"},
    Method{"prediction", kPredictionKeys, "a text that the caller expects"},
    Method{"suffix", kSuffixKeys, "what followed the same words here and in past outputs"},
    Method{"recycling", kRecyclingKeys, "each token's successors of late"},
    Method{"lookahead", kLookaheadKeys, "what the model guessed ahead of the text"},
    Method{"early_exit", kEarlyExitKeys, "the model's own first layers"},
    Method{"layer_skip", kLayerSkipKeys, "the model without some of its layers"},
    Method{"draft_model", kDraftModelKeys, "a smaller model", kDraftModelAliases},
    Method{"eagle", kHeadKeys, "an EAGLE-1, EAGLE-2 or HASS head", kDraftModelAliases},
    Method{"eagle3", kEagle3Keys, "an EAGLE-3 or P-EAGLE head", kDraftModelAliases},
    Method{"medusa", kHeadKeys, "Medusa's heads", kDraftModelAliases},
    Method{"hydra", kHeadKeys, "Hydra's or Hydra++'s heads", kDraftModelAliases},
    Method{"mlp_speculator", kHeadKeys, "an MLP speculator", kDraftModelAliases},
    Method{"redrafter", kHeadKeys, "a recurrent drafter; with topk, beams", kDraftModelAliases},
    Method{"mtp", kMtpKeys, "a model's modules for multi-token prediction", kDraftModelAliases},
};

}  // namespace

const MethodKey* Method::find(std::string_view key) const {
  const auto found = std::find_if(
      keys.begin(), keys.end(), [&](const MethodKey& candidate) { return candidate.name == key; });
  return found == keys.end() ? nullptr : &*found;
}

const MethodAlias* Method::find_alias(std::string_view alias) const {
  const auto found =
      std::find_if(aliases.begin(), aliases.end(),
                   [&](const MethodAlias& candidate) { return candidate.name == alias; });
  return found == aliases.end() ? nullptr : &*found;
}

std::span<const Method> methods() {
  return kMethods;
}

const Method* find_method(std::string_view name) {
  const auto found = std::find_if(kMethods.begin(), kMethods.end(),
                                  [&](const Method& method) { return method.name == name; });
  return found == kMethods.end() ? nullptr : &*found;
}

bool is_method_key(std::string_view key) {
  return std::any_of(kMethods.begin(), kMethods.end(), [&](const Method& method) {
    return method.find(key) != nullptr || method.find_alias(key) != nullptr;
  });
}

}  // namespace aerie
