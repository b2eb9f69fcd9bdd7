// A model with its tokenizer, cache and drafters, ready to be decoded with: what Engine and Service
// are made of.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "base/thread_pool.h"
#include "decode/decoder.h"
#include "draft/auto/pass_cost.h"
#include "draft/drafter.h"
#include "engine/engine_options.h"
#include "engine/model_source.h"
#include "kv/kv_cache.h"
#include "model/model.h"

namespace aerie {

// How much goes on at a time.
struct Concurrency {
  int sequences = 1;
  // Of all sequences together; 0: the context of one, and a page. At least that in any case.
  // Negative: as many as they may need, or as fit into half of the free memory.
  int64_t cache_positions = 0;
  int pass_rows = 0;  // rows of a pass, at least
};

struct OpenedModel {
  struct Speculation {
    std::vector<ModelSource> sources;  // of models that the drafter runs
    std::unique_ptr<Drafter> drafter;  // null: plain decoding
    int max_nodes = 0;
  };

  EngineOptions options;  // with the defaults filled in
  std::unique_ptr<ThreadPool> pool;
  ModelSource source;
  std::unique_ptr<Model> model;
  std::unique_ptr<KvCache> cache;
  std::unique_ptr<PassCost> cost;         // null unless a speculation decides by it
  std::vector<Speculation> speculations;  // options.speculation, then more_speculations
  DecoderOptions decoder;
};

// kInvalidArgument for an option that cannot be, and the errors of all that is opened.
Expected<OpenedModel> open_model(const EngineOptions& options, const Concurrency& concurrency);

}  // namespace aerie
