// Training of MLPSpeculator (Wertheimer et al. 2024, 2404.19124). What the engine does with it:
// draft/heads/mlp_speculator.cc.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "train/methods/offset/offset_heads.h"
#include "train/methods/target.h"
#include "train/methods/training_method.h"

namespace aerie::train {

struct MlpSpeculatorOptions {
  int steps = 3;              // tokens that it drafts at most, the published heads' number
  int64_t inner = 0;          // width of its state; 0: the target's hidden size
  bool tied = false;          // one embedding, norm and output matrix for all steps, and one
                              // projection for all but the first
  bool scales_input = false;  // the target's state is normed once more
  OffsetLoss loss = {};       // labels alone, as in the paper
  std::vector<int32_t> vocabulary =
      {};             // the target's ids that can be drafted, ascending; empty: all
  bool bf16 = false;  // matrices are stored so, not as F32
};

// Embeddings and output matrices begin as the target's where the state is as wide as the target's,
// embeddings made as large as the paper draws them; else at random, as in the paper. Projections
// begin by handing on what they are given.
//
// write(): the paper's layout, which vLLM reads; of a pruned vocabulary with "d2t" beside it.
//
// kInvalidArgument for options out of range: an inner width below 0 or above 2^20, a loss of
// features for a state that is not as wide as the target's, and what OffsetHeads::create() refuses.
// The target must outlive the method.
Expected<std::unique_ptr<Method>> make_mlp_speculator(Target& target,
                                                      const MlpSpeculatorOptions& options,
                                                      at::Generator& generator);

}  // namespace aerie::train
