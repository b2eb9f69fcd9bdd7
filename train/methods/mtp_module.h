// A module for multi-token prediction in DeepSeek-V3's layout (2412.19437) and its checkpoint.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "train/batches/batch.h"
#include "train/methods/target.h"
#include "train/nn/llama_layer.h"
#include "train/nn/ops.h"
#include "train/nn/parameters.h"

namespace aerie::train {

struct MtpModuleOptions {
  // The module reads the target's hidden state behind its final norm, not in front of it.
  bool feature_normed = true;
  // What it hands to its next step is behind the norm that comes before the LM head.
  bool handed_normed = true;
  int64_t intermediate = 0;  // of the feed-forward; 0: the target's
  int context = 2048;        // positions that it will have seen
  // The checkpoint gets copies of the target's embedding and LM head, which are not trained, as
  // DeepSeek's has. Loaders that take the target's do without: this engine's does.
  bool store_tables = false;
};

// Row t of step 0 is (the target's hidden state at t, token t + 1), with no embedding where t is 0;
// in step j it is (what the row handed on in step j - 1, token t + 1 + j) at position t + j. Step 0
// sees the rows of step 0 up to its own; step j those and what its own row was in the steps since,
// which is what the module sees in drafting.
class MtpModule {
 public:
  static Expected<MtpModule> create(Target& target, const MtpModuleOptions& options,
                                    at::Generator& generator);

  Parameters& parameters() { return parameters_; }

  // Some of the batch's rows between two steps. begin() gives all of them, step() their streams
  // behind the layer [some, hidden].
  struct State {
    int step = 0;               // the next one
    at::Tensor rows;            // int64 [some], ascending
    at::Tensor handed;          // [some, hidden]
    at::Tensor keys, values;    // of all rows, in step 0
    std::vector<OwnEntry> own;  // of the steps since
  };
  State begin(const Batch& batch) const;
  at::Tensor step(const Batch& batch, State& state) const;
  // Leaves these of the state's rows: int64 places in state.rows, ascending. Not before step 0,
  // whose rows see each other.
  static void narrow(State& state, const at::Tensor& places);

  at::Tensor logits(const at::Tensor& stream) const;
  // The target's, of the stream behind its last layer.
  at::Tensor wanted_logits(const at::Tensor& last) const;

  Status write(const std::string& folder) const;

 private:
  MtpModule() = default;

  const Target* target_ = nullptr;
  MtpModuleOptions options_;
  Parameters parameters_;
  at::Tensor embedding_, target_norm_, output_;  // the target's, not trained
  at::Tensor embedding_norm_, hidden_norm_, project_, output_norm_;
  LlamaLayer layer_;
};

}  // namespace aerie::train
