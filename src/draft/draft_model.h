// A separate, smaller model as drafter (Leviathan et al. 2211.17192; Chen et al. 2302.01318;
// trees: SpecInfer 2305.09781, EAGLE-2 2406.16858).
#pragma once

#include <memory>
#include <string_view>

#include "draft/drafter.h"
#include "draft/static_tree.h"
#include "draft/vocabulary_map.h"
#include "kernels/backend.h"
#include "model/model.h"

namespace aerie {

struct DraftModelOptions {
  std::string_view method = "draft_model";  // what the drafter calls itself
  int num_tokens = 5;                       // >= 1: nodes of a draft
  int num_steps = 0;             // passes of a draft at most, and so its depth; 0: num_tokens
  int top_k = 1;                 // children of a node, nodes of a pass; 1: a chain
  double top_p = 1.0;            // no children beyond those that cover this probability
  double min_probability = 0.0;  // a path below it is not followed
  // Not null: this shape, cut to num_tokens and num_steps, instead of what the last three settings
  // would make. Must outlive the drafter.
  const StaticTree* shape = nullptr;
  // Null: the target's ids are the draft model's.
  std::shared_ptr<const VocabularyMap> vocabulary;
  int vocab = 0;          // logits of the target; of the draft model's, wider ones are padding
  int max_positions = 0;  // the longest sequence; beyond it there are no drafts
  int max_sequences = 1;  // open at one time
  int max_rows = 512;     // of a pass, as the model was loaded for; >= max_sequences
  int max_logits = 64;    // likewise; >= draft_model_width()
  kernels::KvType cache_type = kernels::KvType::kF16;
};

// The most rows of one sequence that want logits in a pass.
int draft_model_width(const DraftModelOptions& options);

// The model's cache is kept in step with the committed tokens; what it has not seen yet is fed
// together with the root, then comes one pass for each level of the tree, for all sequences
// together. Entries of nodes stay in the cache uncommitted until observe() says which of them were
// right.
//
// Under the exact rule siblings are what the target itself would choose if its logits were the
// draft's, with the target's own noise (Sampler::ranking). Under the others, above temperature 0,
// the shape is fixed before drawing (the given one, or one that fits the settings) and siblings are
// drawn without replacement from NoiseStream::kDraft, keyed by root position and node.
Expected<std::unique_ptr<Drafter>> make_draft_model_drafter(std::unique_ptr<Model> model,
                                                            const DraftModelOptions& options);

}  // namespace aerie
