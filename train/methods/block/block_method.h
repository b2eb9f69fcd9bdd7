// DFlash (2602.06036): blocks behind places of a sample that are drawn at random, all in one pass;
// what a row drafts counts the less the further it is from the root (section 4.2 of the paper).
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <optional>

#include "base/status.h"
#include "train/methods/block/block_head.h"
#include "train/methods/target.h"
#include "train/methods/training_method.h"
#include "train/nn/losses.h"

namespace aerie::train {

struct BlockOptions {
  BlockHeadOptions head;
  double share = 0.25;  // of the supervised rows, drawn anew for each step, blocks begin behind
  double decay = 4.0;   // the token at depth d, from 0, counts exp(-d / decay); 0: all the same
  std::optional<Divergence> loss;  // none: cross entropy with the target's own tokens
};

// The loss of a batch is the weighted mean over the tokens that its blocks draft, times its
// supervised rows, which are its weight. A block's tokens count up to the first that the target has
// not generated. Figures "loss_d", "hits_d" and "rows_d" are sums over depth d, not weighted.
Expected<std::unique_ptr<Method>> make_block(Target& target, const BlockOptions& options,
                                             at::Generator& generator);

}  // namespace aerie::train
