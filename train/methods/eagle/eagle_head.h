// The network of EAGLE (2401.15077), which EAGLE-2 (2406.16858) drafts with too and HASS
// (2408.15766) trains in another way, its losses and its checkpoint.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "train/batches/batch.h"
#include "train/methods/target.h"
#include "train/methods/training_method.h"
#include "train/nn/llama_layer.h"
#include "train/nn/parameters.h"

namespace aerie::train {

struct EagleHeadOptions {
  bool bias = true;          // of fc: heads for LLaMA-2 and Vicuna have one, those for LLaMA-3 none
  int64_t intermediate = 0;  // of the feed-forward; 0: the target's
  int context = 2048;        // positions that it will have seen
  // The checkpoint gets a copy of the target's embedding, which is not trained. Loaders that take
  // the target's do without: this engine's does.
  bool store_embedding = false;
};

// What the losses of a row weigh.
struct EagleLoss {
  double feature = 1.0;  // smooth L1 of the feature, the mean over its values
  double token = 0.1;    // cross entropy with the target's distribution
  double top = 0.0;      // the same over the target's `top_tokens` likeliest tokens alone (HASS)
  int64_t top_tokens = 10;
};

// Row t is (the target's hidden state at t behind its final norm, token t + 1); its output is to be
// that hidden state at t + 1.
class EagleHead {
 public:
  static Expected<EagleHead> create(Target& target, const EagleHeadOptions& options,
                                    at::Generator& generator);

  Parameters& parameters() { return parameters_; }

  // Features of the batch's rows [rows, hidden].
  at::Tensor true_features(const Batch& batch) const;

  // Outputs of all rows [rows, hidden], of which row r reads what it would after `passes.size() -
  // 1` drafted tokens. passes[i] [rows, hidden] are what its rows read as features in pass i. Its
  // query, and what the layer adds to, are made of those of the last pass j; the keys and values of
  // row c of those of pass j - (r - c), and of the first pass where that is less than 0 (HASS,
  // section 3.2).
  at::Tensor forward(const Batch& batch, std::span<const at::Tensor> passes) const;

  // The losses of the outputs of pass `pass`, summed over the rows at `places`; figures get their
  // names with "_PASS". Where gradients are on, adds scale times theirs to the parameters'. Returns
  // the loss.
  double learn(const Batch& batch, const at::Tensor& outputs, const at::Tensor& places,
               const EagleLoss& loss, double scale, int pass, Figures& figures) const;

  Status write(const std::string& folder) const;

 private:
  EagleHead() = default;
  at::Tensor enter(const at::Tensor& embedded, const at::Tensor& features) const;

  const Target* target_ = nullptr;
  EagleHeadOptions options_;
  Parameters parameters_;
  at::Tensor embedding_, target_norm_, output_;  // the target's, not trained
  at::Tensor fc_, fc_bias_;                      // fc_bias_: undefined without one
  LlamaLayer layer_;
};

}  // namespace aerie::train
