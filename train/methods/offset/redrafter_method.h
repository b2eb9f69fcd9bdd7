// Training of the recurrent drafter (ReDrafter, Cheng et al. 2024, 2403.09919). What the engine
// does with it: draft/heads/redrafter.cc.
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

struct RedrafterOptions {
  int depth = 5;         // tokens that it learns to draft, the paper's
  int blocks = 2;        // x + silu(w x + b) before the output matrix
  int64_t exit = 0;      // what that matrix is given; 0: twice the hidden size
  bool rnn = true;       // false: embeddings of the drafted tokens are only added up
  OffsetLoss loss = {};  // labels alone, as in the paper
  std::vector<int32_t> vocabulary =
      {};             // the target's ids that can be drafted, ascending; empty: all
  bool bf16 = false;  // matrices are stored so, not as F32
};

// One head for all depths. It begins by repeating what the target says of the root, whatever is
// drafted (if `exit` leaves room for the target's state): blocks begin at 0 and the output matrix
// as the target's, without weights for the recurrent state, which is made by random matrices that
// bring embeddings to a size of about 1.
//
// write(): Apple's layout, which vLLM's and TensorRT-LLM's converters read; of a pruned vocabulary
// with "d2t" beside it.
//
// kInvalidArgument for options out of range: an exit below 0 or above 2^20, and what
// recurrent_offsets() refuses. The target must outlive the method.
Expected<std::unique_ptr<Method>> make_redrafter(Target& target, const RedrafterOptions& options,
                                                 at::Generator& generator);

}  // namespace aerie::train
