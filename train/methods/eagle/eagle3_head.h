// The network that EAGLE-3 (2503.01840) and P-EAGLE (2602.01469) train, in the parts that both put
// together, and its checkpoint in the format of the package speculators.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "train/methods/setting_list.h"
#include "train/methods/target.h"
#include "train/nn/llama_layer.h"
#include "train/nn/parameters.h"
#include "train/run/checkpoint_files.h"

namespace aerie::train {

struct Eagle3HeadOptions {
  // Layers whose input is tapped; the number of layers stands for the stream behind the last one.
  // Empty: 2, half of them, the third last, as the paper's code has it.
  std::vector<int32_t> tap_layers = {};
  // The target's ids that can be drafted, ascending; empty: all.
  std::vector<int32_t> vocabulary = {};
  int64_t layers = 1;
  int64_t intermediate = 0;  // 0: the target's
  int64_t heads = 0;         // of queries; 0: the target's
  int64_t kv_heads = 0;      // 0: the target's
  bool norm_before_residual = false;
  bool fc_norm = false;      // of each tap before they are joined
  bool norm_output = false;  // what is handed on has been normed
  int context = 2048;        // positions that it will have seen
  bool mask = false;         // P-EAGLE's mask_hidden
  int32_t mask_token = 0;
  // A copy of the target's whole embedding is trained and stored too.
  bool train_embedding = false;

  // Settings of what it reads, which both methods have.
  void add_taps_to(SettingList& settings);
};

// Weights begin at random, but for the output matrix and its norm, which are the target's.
class Eagle3Head {
 public:
  // kInvalidArgument for layers and tokens that the target does not have.
  static Expected<Eagle3Head> create(Target& target, const Eagle3HeadOptions& options,
                                     at::Generator& generator);

  const Eagle3HeadOptions& options() const { return options_; }  // with the defaults filled in
  Parameters& parameters() { return parameters_; }
  const std::vector<LlamaLayer>& layers() const { return layers_; }
  int64_t hidden() const { return layers_.front().shape.hidden; }
  int64_t feature_width() const { return feature_width_; }
  // [feature_width]; undefined without a mask.
  const at::Tensor& mask_hidden() const { return mask_hidden_; }

  Rotary rotary(const at::Tensor& positions) const;
  // g of rows with features [rows, feature_width]: [rows, hidden].
  at::Tensor fuse(const at::Tensor& features) const;
  // The embedding of tokens int64 [rows]: [rows, hidden].
  at::Tensor embed(const at::Tensor& tokens) const { return embedding_.index_select(0, tokens); }

  // What the first layer's attention is given, [rows, 2 hidden], and the stream that its result is
  // added to, [rows, hidden].
  struct Entry {
    at::Tensor input, stream;
  };
  Entry enter(const at::Tensor& embedded, const at::Tensor& g) const;

  // Of the stream behind the last layer [rows, hidden]: what output() is multiplied with, the
  // logits of the draft vocabulary, and what the rows hand on.
  at::Tensor normed(const at::Tensor& stream) const;
  at::Tensor logits(const at::Tensor& stream) const;
  at::Tensor handed(const at::Tensor& stream) const;
  // [draft vocabulary, hidden], trained.
  const at::Tensor& output() const { return output_; }

  // The target's logits of the draft vocabulary for the stream behind its last layer.
  at::Tensor wanted_logits(const at::Tensor& last) const;
  // int64 [draft vocabulary]: the target's ids.
  const at::Tensor& draft_ids() const { return draft_ids_; }

  // `algorithm`: "eagle3" or "peagle"; `depth`: tokens of a draft, for those who load it.
  Status write(const std::string& folder, const std::string& algorithm, int depth) const;

 private:
  Eagle3Head() = default;
  Status check(const Target& target);
  Status take_from_target(Target& target);

  const Target* target_ = nullptr;
  Eagle3HeadOptions options_;
  Parameters parameters_;
  int64_t feature_width_ = 0, tap_width_ = 0;
  double norm_eps_ = 0.0;
  at::Tensor embedding_, target_norm_, target_output_, draft_ids_;  // not trained
  at::Tensor fc_, hidden_norm_, output_norm_, output_, mask_hidden_;
  std::vector<at::Tensor> fc_norms_;
  std::vector<LlamaLayer> layers_;
};

}  // namespace aerie::train
