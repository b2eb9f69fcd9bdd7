// What all methods have in common that grow trees from a network: keys, their checks and what
// follows from them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "draft/draft_host.h"
#include "draft/method.h"
#include "draft/network/network_drafter.h"
#include "draft/option_keys.h"
#include "tensor/dtype.h"

namespace aerie {

// The name of a static tree (draft/tree/static_tree.h).
inline constexpr std::string_view kTreeKey = "tree";

constexpr std::array<OptionKey<NetworkDrafterOptions>, 5> network_options(std::string_view steps) {
  return {
      tokens_key(&NetworkDrafterOptions::num_tokens),
      option_key("num_steps", &NetworkDrafterOptions::num_steps, 0, kMostOfMethods, steps),
      option_key("topk", &NetworkDrafterOptions::top_k, 1, 10,
                 "children of a node and nodes of a pass; 1: a chain"),
      option_key("top_p", &NetworkDrafterOptions::top_p, 0.01, 1,
                 "no more children than cover this probability"),
      option_key("min_probability", &NetworkDrafterOptions::min_probability, 0, 1,
                 "paths below it are not followed"),
  };
}

// `model` and `steps` say what these keys mean.
constexpr std::array<MethodKey, 7> network_keys(std::string_view model, std::string_view steps,
                                                bool needs_model = true) {
  using Kind = MethodKey::Kind;
  return joined(joined(std::array{MethodKey{kModelKey, Kind::kText, 0, 0, 0, needs_model, model}},
                       keys_of(network_options(steps))),
                std::array{MethodKey{kTreeKey, Kind::kText, 0, 0, 0, false,
                                     "a published shape: eagle or medusa"}});
}

// The tokens that can be drafted, and how many of them.
inline constexpr std::string_view kDraftVocabKey = "draft_vocab";
inline constexpr std::string_view kDraftVocabSizeKey = "draft_vocab_size";

// Of networks with weights of their own.
inline constexpr std::array kWeightKeys = {
    MethodKey{kDraftTypeKey, MethodKey::Kind::kText, 0, 0, 0, false,
              "its matrices are converted to q8_0, q4_0, bf16 ..."},
    MethodKey{kDraftVocabKey, MethodKey::Kind::kText, 0, 0, 0, false,
              "a file of token ids, the most frequent first: what can be drafted"},
    MethodKey{kDraftVocabSizeKey, MethodKey::Kind::kWhole, 0, 1 << 20, 0, false,
              "how many of them; 0: all"},
};

// SGLang's names; its number of draft tokens counts the root.
inline constexpr std::array kNetworkAliases = {
    MethodAlias{"speculative_num_steps", "num_steps"},
    MethodAlias{"speculative_eagle_topk", "topk"},
    MethodAlias{"speculative_num_draft_tokens", kTokensKey, -1},
    MethodAlias{"num_draft_tokens", kTokensKey, -1},
};

// Whether there is such a tree, which brings its number of nodes along.
Status check_tree(MethodConfig& config);

// Whether the type of kWeightKeys is one that matrices can be converted to.
Status check_draft_type(const MethodConfig& config);
std::optional<DType> draft_type(const MethodConfig& config);
// The ids that can be drafted, in ascending order; none: all. Errors are read_draft_vocabulary()'s.
Expected<std::vector<int32_t>> read_drafted_tokens(const MethodConfig& config, int vocab);

// What they say, and the target's facts.
NetworkDrafterOptions read_network_options(const MethodConfig& config, const DraftTarget& target);

}  // namespace aerie
