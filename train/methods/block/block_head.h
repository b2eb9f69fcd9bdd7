// The network of DFlash (2602.06036) and its checkpoint, as z-lab/dflash publishes it: a block of
// the root's token and of masks behind it, whose rows see one another and, in every layer, keys and
// values that the layer makes of the target's fused taps. With what DSpark (2607.05147) adds, as
// deepseek-ai/DeepSpec publishes that: the root's row drafts too, a Markov head and a confidence
// head.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "train/batches/batch.h"
#include "train/methods/peagle/peagle_elements.h"
#include "train/methods/setting_list.h"
#include "train/methods/target.h"
#include "train/nn/llama_layer.h"
#include "train/nn/parameters.h"

namespace aerie::train {

struct BlockHeadOptions {
  // Layers whose input is tapped. Empty: as many as the head has layers, evenly from the second to
  // the third last one's output, as the authors' code has it.
  std::vector<int32_t> tap_layers = {};
  std::vector<int32_t> vocabulary = {};  // the target's ids that can be drafted; empty: all
  int64_t layers = 5;
  int64_t intermediate = 0;  // 0: the target's
  int64_t depth = 7;         // tokens of a draft; a block of DFlash's has a row more
  int32_t mask_token = -1;   // -1: the target's last one
  int context = 2048;        // positions that it will have seen
  bool spark = false;        // DSpark
  int64_t markov_rank = 64;  // of that

  void add_to(SettingList& settings);
};

// The target's embedding and output matrix stay as they are. Weights begin at random, the norm
// before the output as the target's.
class BlockHead {
 public:
  // kInvalidArgument for layers, tokens and depths that cannot be.
  static Expected<BlockHead> create(Target& target, const BlockHeadOptions& options,
                                    at::Generator& generator);

  const BlockHeadOptions& options() const { return options_; }  // with the defaults filled in
  Parameters& parameters() { return parameters_; }
  int64_t rows_of_block() const { return options_.depth + (options_.spark ? 0 : 1); }

  // Of blocks behind these rows of the batch, int64 [blocks], ascending, each followed by another
  // row of its document: that one's token is the root. What the output matrix takes of the rows
  // that draft, [blocks * depth, hidden].
  at::Tensor drafts(const Batch& batch, const at::Tensor& anchors) const;
  // [rows, draft vocabulary] of these, behind the tokens `before`, int64 [rows], which DFlash does
  // not look at.
  at::Tensor logits(const at::Tensor& drafts, const at::Tensor& before) const;
  // DSpark's: how likely it is that a token of these logits is accepted, as the logit of that:
  // [rows].
  at::Tensor confidence(const at::Tensor& drafts, const at::Tensor& before) const;

  // The target's logits of the draft vocabulary for the stream behind its last layer.
  at::Tensor wanted_logits(const at::Tensor& last) const;
  // int64 [draft vocabulary]: the target's ids.
  const at::Tensor& draft_ids() const { return draft_ids_; }

  Status write(const std::string& folder) const;

 private:
  BlockHead() = default;
  Status fill_in(const Target& target);
  Status take_from_target(Target& target);
  void add_spark(at::Generator& generator);

  const Target* target_ = nullptr;
  BlockHeadOptions options_;
  Parameters parameters_;
  at::Tensor embedding_, target_norm_, output_, draft_ids_;  // not trained
  at::Tensor fc_, context_norm_, output_norm_;
  at::Tensor markov_in_, markov_out_, confidence_, confidence_bias_;  // DSpark's
  std::vector<LlamaLayer> layers_;
};

}  // namespace aerie::train
