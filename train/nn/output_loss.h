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

// Of one batch. Products are in 16 bits as far as Autocast says so. Not thread-safe.
class OutputLoss {
 public:
  // `output` [tokens, width]: a leaf, which stays as it is as long as this lives.
  explicit OutputLoss(const at::Tensor& output);

  struct Result {
    at::Tensor losses;     // float [rows]
    at::Tensor likeliest;  // int64 [rows]: of the tokens, by the drafter
    at::Tensor gradient;   // float [rows, width], with respect to x; undefined: gradients are off
  };
  // x [rows, width] of at least one stream. The gradients are of scale * (sum of the losses).
  Result run(Divergence kind, const at::Tensor& x, const WantedLogits& wanted, double scale);

  // Adds what has come together to the leaf's gradients. Without it they lack something.
  void finish();

 private:
  // What stays in the last cache from a product to the next.
  static constexpr int64_t kRowsAtOnce = 256;

  at::Tensor output_;
  at::Tensor matrix_;         // as products take it
  at::Tensor kept_, inputs_;  // gradients of logits, and x, whose product is not added yet
  int64_t used_ = 0;          // rows of these
  int64_t at_once_ = kRowsAtOnce;
};

}  // namespace aerie::train
