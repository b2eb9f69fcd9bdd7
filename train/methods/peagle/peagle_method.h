// P-EAGLE (2602.01469): EAGLE-3's head with masked rows in place of those that drafting would have
// to wait for, so that one pass drafts all depths.
//
// What masked rows are fed is the same for all of them: `mask_hidden`, which is trained, in place
// of features, and the embedding of a token. That is the target's own row unless
// Eagle3HeadOptions::train_embedding asks for a trained table, which then is stored whole, for the
// format has no place for a row of its own. It does not matter which token it is: rows that hold it
// in a text have the target's features.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "train/methods/eagle/eagle3_head.h"
#include "train/methods/peagle/peagle_elements.h"
#include "train/methods/target.h"
#include "train/methods/training_method.h"
#include "train/nn/losses.h"

namespace aerie::train {

struct PEagleOptions {
  PEagleOptions() {
    head.layers = 4;
    head.mask = true;
    head.mask_token = -1;
  }

  Eagle3HeadOptions head;  // mask_token -1: the target's last one
  DepthSampling sampling;
  // Parts into which the masked rows of a batch are cut, each of which goes forward and back before
  // the next one; gradients do not hang on it. Memory grows with a part. 1: all at once, and
  // nothing is computed twice; 0: as many as keep a part to kSegmentRows of the batch's rows.
  int64_t segments = 0;
  Divergence loss = Divergence::kForwardKl;

  static constexpr int64_t kSegmentRows = 512;
};

// The loss of a batch is the mean over its real rows that are supervised and all masked rows, times
// the former's number, which is the batch's weight: how many masked rows there are is drawn anew
// for every step. Figures "loss_d", "hits_d" and "rows_d" are sums over the rows of depth d.
Expected<std::unique_ptr<Method>> make_peagle(Target& target, const PEagleOptions& options,
                                              at::Generator& generator);

}  // namespace aerie::train
