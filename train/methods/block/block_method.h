// DFlash (2602.06036) and DSpark (2607.05147): blocks behind places of a sample that are drawn at
// random, all in one pass; what a row drafts counts the less the further it is from the root.
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
  // None: cross entropy with the target's own tokens; of DSpark a tenth of that and nine tenths of
  // the distance of the distributions, sum |p - q| (section 3.3 of its paper).
  std::optional<Divergence> loss;
};

// The loss of a batch is the weighted mean over the tokens that its blocks draft, times its
// supervised rows, which are its weight. A block's tokens count up to the first that the target has
// not generated. DSpark's confidence learns, beside that, the chance that what is drafted is
// accepted, sum min(p, q): the cross entropy of both is part of the loss. Figures "loss_d",
// "hits_d" and "rows_d" are sums over depth d, not weighted.
Expected<std::unique_ptr<Method>> make_block(Target& target, const BlockOptions& options,
                                             at::Generator& generator);

}  // namespace aerie::train
