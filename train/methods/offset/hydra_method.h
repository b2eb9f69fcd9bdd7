// Training of Hydra's heads and Hydra++'s (Ankner et al. 2024, 2402.05109): as Medusa's, but each
// sees the tokens that were drafted before its own. What the engine does with them:
// draft/heads/hydra.h.
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

// As in the paper for Hydra.
struct HydraOptions {
  int heads = 4;        // each drafts one token more
  int blocks = 1;       // of a head; the first one narrows its input
  bool prefix = false;  // a layer of a Llama over the target's states first
  double dropout = 0.0;
  OffsetLoss loss;                  // labels alone
  std::vector<int32_t> vocabulary;  // the target's ids that can be drafted, ascending; empty: all
  bool bf16 = false;                // matrices are stored so, not as F32

  // The paper's for Hydra++: the prefix, four blocks, the target's distribution as teacher.
  static HydraOptions plus_plus();
};

// Heads begin by repeating what the target says of the root, whatever tokens they are given: output
// matrices are the target's, and the first block hands the state on. The prefix begins at random,
// adding little to the target's state.
//
// write(): Hydra's own layout, each head with its own output matrix; of a pruned vocabulary with
// "d2t" beside them.
//
// kInvalidArgument for options out of range: blocks that are none or more than 64, a dropout that
// is not at least 0 and below 1, and what OffsetHeads::create() refuses. kUnsupported for a prefix
// on a target whose layers are not a plain Llama's. The target must outlive the method.
Expected<std::unique_ptr<Method>> make_hydra(Target& target, const HydraOptions& options,
                                             at::Generator& generator);

}  // namespace aerie::train
