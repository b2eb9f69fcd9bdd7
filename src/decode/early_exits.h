// Drafts by the target's own first layers, and verification that goes on where they ended.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/token_tree.h"
#include "decode/sequence.h"
#include "draft/target_access.h"
#include "kv/kv_cache.h"
#include "model/model.h"

namespace aerie {

// Not thread-safe. Model and cache must outlive it. Allocates only while rounds are larger than
// ever before.
class EarlyExits final : public TargetAccess {
 public:
  // `max_rows` and `max_nodes` as in DecoderOptions.
  EarlyExits(Model& model, KvCache& cache, int max_rows, int max_nodes);

  // A round of these sequences begins; nothing has been run. Requires room for their roots.
  void start(std::span<Sequence* const> sequences);

  const ModelConfig& config() const override { return model_.config(); }
  bool reserve(SequenceId id, int rows) override;
  ForwardOutputs run_first_layers(int end_layer, std::span<const ExitRow> rows) override;

  // `batch` is the round's verify pass: for each sequence of start() the root's row, then its
  // tree's, in slots 0, 1, ... behind what is committed. Where drafts were run, runs the first
  // layers of the rows that were not, and makes the batch go on from the exits, which hold until
  // the next round; else leaves it as it is. The error is the model's.
  Status go_on(ForwardBatch& batch, std::span<const TokenTree> trees);

 private:
  // The chain that was run for one sequence.
  struct Run {
    SequenceId id = 0;
    KvCache::Id cache = -1;
    int end_layer = 0;
    std::vector<int32_t> tokens;
    std::vector<float> exits;  // [tokens][hidden]
  };

  Run& find(SequenceId id);
  int exit_of(const ForwardBatch& batch) const;
  static int usable_rows(const Run& run, const TokenTree& tree, int32_t root);
  Status complete(const ForwardBatch& batch, int exit);

  Model& model_;
  KvCache& cache_;
  size_t max_rows_, max_nodes_;
  std::vector<Run> runs_;  // the first open_, in the order of start()
  size_t open_ = 0;
  ForwardBatch batch_;
  std::vector<float> hidden_;     // [rows of the verify pass][hidden]
  std::vector<int32_t> rest_;     // rows of the verify pass that were not run
  std::vector<int32_t> rest_at_;  // [rows of the verify pass]: their row in batch_; -1: was run
};

}  // namespace aerie
