// An engine's model with a filled cache, to time passes of.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/status.h"
#include "base/thread_pool.h"
#include "core/random_tokens.h"
#include "engine/engine.h"
#include "model/model.h"

namespace aerie::measure {

struct LoadOptions {
  EngineOptions engine;  // without what drafts and its context, which are set here
  int most_rows = 1;     // of a pass
  int positions = 1;     // that the longest sequence may have, the rows of a pass included
  int sequences = 1;     // open at a time, all of that length
};

// One thread at a time.
class LoadedModel {
 public:
  // kInvalidArgument, saying what is possible, if the model has fewer positions; else errors of
  // opening and loading.
  static Expected<std::unique_ptr<LoadedModel>> load(const LoadOptions& options);

  // Makes `context` positions of random tokens by passes as a prompt takes them, in place of what
  // was there before. Requires context + most_rows <= positions.
  Status fill(int context);
  // The same of a prompt's passes, timed: seconds of all of them. What fill() made is gone.
  Expected<double> read_prompt(int tokens);
  // Seconds of one forward of a root and a chain of rows - 1 nodes behind `context` positions, at
  // most as many as fill() made. All rows want logits, and nothing is committed.
  Expected<double> pass(int context, int rows);
  // Experts that the last one read (ForwardOutputs::experts).
  int64_t experts() const { return experts_; }

  const OpenedModel& parts() const { return engine_->parts(); }
  const ModelFile& file() const { return engine_->parts().file(); }
  Model& model() { return *engine_->parts().model; }
  const SplitBackend* split() const { return engine_->parts().split.get(); }  // null: one process
  KvCache& cache() { return *engine_->parts().cache; }
  ThreadPool& pool() { return *engine_->parts().pool; }
  int32_t random_token() { return tokens_.next(model().config().vocab); }

  static constexpr int kPrefillChunk = 512;

 private:
  explicit LoadedModel(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}
  Status stand_at(int context);
  Status make_batch(int rows, bool all_logits);

  std::unique_ptr<Engine> engine_;
  KvCache::Id sequence_ = -1;
  int64_t experts_ = 0;
  int filled_ = 0;
  RandomTokens tokens_;
  ForwardBatch batch_;
};

}  // namespace aerie::measure
