// Runs requests through a Decoder and says where two runs differ: the one way in which tests of
// exactness, real ones and those with a planted fault, compare tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "decode/decoder.h"
#include "model/model.h"

namespace aerie::test {

// Passes everything on, counts passes that end behind the last layer and leave none out, and fails
// the test for a batch that check_batch() refuses.
class CheckedModel : public Model {
 public:
  CheckedModel(Model& model, const ModelOptions& options) : model_(model), options_(options) {}

  const ModelConfig& config() const override { return model_.config(); }
  int64_t weight_bytes() const override { return model_.weight_bytes(); }
  ForwardOutputs forward(const ForwardBatch& batch, KvCache& cache) override;
  bool begin(const ForwardBatch& batch, KvCache& cache, const FoundTokens& found,
             std::span<const int32_t> rows) override {
    return model_.begin(batch, cache, found, rows);
  }
  bool can_begin() const override { return model_.can_begin(); }
  ModelConfig cache_config() const override { return model_.cache_config(); }
  KvCache::Planes cache_planes() const override { return model_.cache_planes(); }
  int layers_here() const override { return model_.layers_here(); }
  Status attach(KvCache& cache, std::span<const int32_t> skipped) override {
    return model_.attach(cache, skipped);
  }
  void detach(KvCache& cache) override { model_.detach(cache); }
  int64_t passes() const { return passes_; }

 private:
  Model& model_;
  ModelOptions options_;
  int64_t passes_ = 0;
};

struct Request {
  std::vector<int32_t> prompt;
  SequenceOptions options;
  int joins_at = 0;  // the round before which it is opened
  // Makes options.stop anew for each run.
  std::function<std::unique_ptr<StopCondition>()> make_stop;
};

struct Reply {
  std::vector<int32_t> tokens;  // generated
  FinishReason finish = FinishReason::kNone;
  SequenceStats stats;
  std::vector<EmittedToken> emitted;
};

struct Replies {
  std::vector<Reply> of;
  int64_t passes = 0;          // of the target
  int64_t prefill_passes = 0;  // prompt chunks, by arithmetic
  int64_t rounds = 0;
  int64_t reused = 0;  // tokens of prompts that were in the cache
  int suspended = 0;
};

// Decodes them together: one round() for all that are open and unfinished. Fails the test for any
// error.
Replies decode(Model& model, KvCache& cache, Drafter* drafter, const DecoderOptions& options,
               std::span<const Request> requests);

// As a server does: pieces of prompts share passes with rounds, and where `suspends` is not 0
// sequences are suspended, one in so many passes, and resumed some passes later. Fails the test for
// any error; pages that are kept stay.
Replies serve(Model& model, KvCache& cache, Drafter* drafter, const DecoderOptions& options,
              std::span<const Request> requests, int suspends);

// An attached cache for `sequences` sequences of options.max_positions. Layers with a window have
// room for all positions, or for what passes of that many rows of that many sequences need and no
// more.
ModelCache cache_for(Model& model, const DecoderOptions& options, int sequences,
                     kernels::KvType type = kernels::KvType::kF16,
                     const KvCache::Windows& windows = {0, 0, 0});

// Empty if tokens and reasons to finish are the same; else the first difference.
std::string difference(std::span<const Reply> expected, std::span<const Reply> actual);

}  // namespace aerie::test
