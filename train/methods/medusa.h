// Training of Medusa's heads (Cai et al. 2024, 2401.10774) for a target that stays as it is
// (Medusa-1). What the engine does with them: draft/heads/medusa.h.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/status.h"
#include "train/method.h"
#include "train/nn/losses.h"
#include "train/target.h"

namespace aerie::train {

// The matrix from a head's state to logits.
enum class MedusaOutput : uint8_t {
  kOwn,     // of each head: Medusa's own
  kShared,  // one for all heads, trained with them
  kTarget,  // the target's, not trained and not stored
};

struct MedusaOptions {
  int heads = 4;   // the paper's; each drafts one token more
  int blocks = 1;  // x + silu(w x + b) of each head, the paper's
  MedusaOutput output = MedusaOutput::kOwn;
  // The target's ids that can be drafted, ascending; empty: all, the paper's.
  std::vector<int32_t> vocabulary;
  double decay = 0.8;  // the loss of head k, from 1, counts decay^k: the paper's
  // Heads learn the target's distribution at their place, by this distance from it; without it, as
  // in the paper, the token that came there.
  std::optional<Divergence> soft;
  bool bf16 = false;  // matrices are stored so, not as F32
};

// The weights of blocks begin at 0 and output matrices as the target's, so that every head begins
// by saying what the target says of the root: as the paper has it. Nothing is random.
//
// write(): Medusa's own layout for heads with whole matrices of their own, else vLLM's, with
// "token_map" for a pruned vocabulary.
//
// kInvalidArgument for options out of range: heads or blocks that are none or more than 64, the
// target's matrix with a pruned vocabulary (the file could not say so; the engine prunes it when
// asked: draft_vocab), and what OffsetHeads::create() refuses. The target must outlive the method.
Expected<std::unique_ptr<Method>> make_medusa(Target& target, const MedusaOptions& options,
                                              at::Generator& generator);

}  // namespace aerie::train
