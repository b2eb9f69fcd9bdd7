// The loss of streams behind an output matrix, with its gradients, and without a graph: the logits
// become their own gradients (train/nn/loss_gradients.h).
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "train/nn/losses.h"

namespace aerie::train {

// What rows are to say.
struct WantedLogits {
  at::Tensor logits;  // [places, tokens]; no gradient flows to it
  at::Tensor places;  // int64 [rows]
};

struct OutputLoss {
  at::Tensor losses;     // float [rows]
  at::Tensor likeliest;  // int64 [rows]: of the tokens, by the drafter
  at::Tensor gradient;   // float [rows, width], with respect to x; undefined: there is no training
};

// x [rows, width] of at least one stream, and `output` [tokens, width], a leaf. Where gradients
// are on, those of scale * (sum of the losses) are added to the leaf's. Products are in 16 bits as
// far as Autocast says so.
OutputLoss output_loss(Divergence kind, const at::Tensor& x, const at::Tensor& output,
                       const WantedLogits& wanted, double scale);

}  // namespace aerie::train
