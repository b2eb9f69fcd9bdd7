// A separate, smaller model as drafter (Leviathan et al. 2211.17192; Chen et al. 2302.01318;
// trees: SpecInfer 2305.09781, EAGLE-2 2406.16858).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "draft/drafter.h"
#include "draft/method.h"
#include "draft/network/network_drafter.h"
#include "draft/network/vocabulary_map.h"
#include "kernels/kv_layout.h"
#include "kv/kv_cache.h"
#include "model/model.h"

namespace aerie {

extern const Method kDraftModelMethod;

struct DraftModelOptions : NetworkDrafterOptions {
  DraftModelOptions() { method = kDraftModelMethod.name; }

  // Null: the target's ids are the draft model's.
  std::shared_ptr<const VocabularyMap> vocabulary;
  // The tokens that can be drafted, in ascending order, for which the model was loaded
  // (ModelOptions::logit_tokens); empty: all. Not together with `vocabulary`.
  std::vector<int32_t> drafted;
  int max_positions = 0;  // the longest sequence; beyond it there are no drafts
  // max_rows and max_logits are what the model was loaded for.
  kernels::KvType cache_type = kernels::KvType::kF16;
};

// The cache of a draft model, for all sequences.
KvCache::Creation draft_cache(const ModelConfig& model, const DraftModelOptions& options);

// The model's cache is kept in step with the committed tokens; what it has not seen yet is fed
// together with the root, then comes one pass for each level of the tree, for all sequences
// together. Entries of nodes stay in the cache uncommitted until observe() says which of them were
// right.
Expected<std::unique_ptr<Drafter>> make_draft_model_drafter(std::unique_ptr<Model> model,
                                                            const DraftModelOptions& options);

}  // namespace aerie
