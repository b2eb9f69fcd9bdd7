// What drafters are made with: the facts of the target, and what only an engine can do for them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "aerie/drafter.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "draft/auto/pass_cost.h"
#include "draft/drafter.h"
#include "format/model_file.h"
#include "kernels/backend.h"
#include "kernels/kv_layout.h"
#include "kv/kv_cache.h"
#include "model/import/head_file.h"
#include "model/model.h"
#include "tensor/dtype.h"
#include "tokenizer/tokenizer.h"

namespace aerie {

struct DraftTarget {
  const Tokenizer* tokenizer = nullptr;
  int vocab = 0;           // logits of the target
  Model* model = nullptr;  // the target itself, for drafters that are or share a part of it
  const ModelFile* file = nullptr;  // what it was loaded from
  int model_rows = 0;               // of its largest pass
  int max_positions = 0;
  int max_sequences = 1;        // open at a time
  int64_t cache_positions = 0;  // of all of them together, as the target's cache has it
  const kernels::Backend* backend = nullptr;
  ThreadPool* pool = nullptr;
  std::string weight_cache;  // as ModelOptions has it
  kernels::KvType cache_type = kernels::KvType::kF16;
  const PassCost* cost = nullptr;         // where that decides; must outlive the drafter
  int max_rows = 0;                       // of a pass
  std::shared_ptr<CustomDrafter> custom;  // what method "custom" is; null: there is none
};

// How many sequences share a pass of a draft network.
int shared_draft_sequences(const DraftTarget& target);

// A draft model that was opened.
struct DraftSource {
  const ModelFile* file = nullptr;
  // Null if the file says itself which of the target's tokens its rows stand for
  // (draft/network/draft_vocabulary.h).
  const Tokenizer* tokenizer = nullptr;
};

// What it opens stays open for as long as any drafter that was made with it. Not thread-safe.
class DraftHost {
 public:
  virtual ~DraftHost() = default;

  virtual const DraftTarget& target() const = 0;

  // A file, a folder, or what such a name stands for; the same below. With `type`, its matrices are
  // converted to it, whatever type they have.
  virtual Expected<DraftSource> open_model(const std::string& name, std::optional<DType> type) = 0;
  // A head's folder; its matrices are converted to `type`, if there is one.
  virtual Expected<HeadFile*> open_head(const std::string& name, std::optional<DType> type) = 0;

  // kResourceExhausted, naming `what` and the sizes, if so much does not fit into the memory that
  // is left.
  virtual Status check_memory(const std::string& what, int64_t weight_bytes, int64_t cache_bytes,
                              int64_t work_bytes) = 0;

  // The same of the memory of the target's device, if it has one.
  virtual Status check_device_memory(const std::string& /*what*/, int64_t /*weight_bytes*/,
                                     int64_t /*cache_bytes*/, int64_t /*work_bytes*/) {
    return {};
  }

  // What was checked so, and is not there after all.
  virtual void return_device_memory(int64_t /*bytes*/) {}

  // check_memory() of such a cache for what drafts with `model`, which is there already, where that
  // has its planes.
  Status check_cache(const std::string& what, const Model& model, const ModelConfig& config,
                     KvCache::Creation cache) {
    cache.planes = model.cache_planes();
    cache.here = model.layers_here();
    const int64_t here = KvCache::bytes_here(config, cache);
    const int64_t elsewhere = KvCache::bytes_needed(config, cache) - here;
    if (here > 0) AERIE_RETURN_IF_ERROR(check_memory(what, 0, here, 0));
    return elsewhere > 0 ? check_device_memory(what, 0, elsewhere, 0) : Status();
  }

  // A model that drafts, loaded where the host has it computed; it will have such a cache.
  // Errors of check_memory() and load_model(). The processor, unless the host has a device.
  virtual Expected<std::unique_ptr<Model>> load(const std::string& what, const ModelFile& file,
                                                const ModelConfig& config,
                                                const ModelOptions& options,
                                                const KvCache::Creation& cache) {
    AERIE_RETURN_IF_ERROR(check_memory(what, loaded_weight_bytes(file, *options.backend),
                                       KvCache::bytes_needed(config, cache),
                                       working_bytes(config, options)));
    return load_model(file, options);
  }
};

}  // namespace aerie
