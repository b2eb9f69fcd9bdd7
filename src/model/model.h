// A model: weights and a forward pass over a batch of rows.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/thread_pool.h"
#include "core/forward_batch.h"
#include "core/found_tokens.h"
#include "core/model_config.h"
#include "format/model_file.h"
#include "kernels/backend.h"
#include "kv/kv_cache.h"

namespace aerie {

// The layers first .. end - 1.
struct LayerRange {
  static constexpr int kAll = -1;
  int first = 0;
  int end = kAll;

  int end_of(int layers) const { return end == kAll ? layers : end; }
  bool has(int layer) const { return layer >= first && (end == kAll || layer < end); }
  bool is_part() const { return first > 0 || end != kAll; }
};

struct ModelOptions {
  const kernels::Backend* backend = nullptr;  // required
  ThreadPool* pool = nullptr;                 // required; must outlive the model
  int max_rows = 512;                         // the largest batch
  int max_logits = 64;                        // the most rows that want logits, and states
  int max_positions = 2048;                   // the longest sequence
  int max_taps = 8;                           // the most layers tapped at a time
  // The layers that passes run; of others nothing is loaded. Without the last layer there is no
  // output either: no row may want logits or states.
  LayerRange layers;
  std::string weight_cache;  // a folder for packed weights; empty: none is kept
  // The tokens whose logits are computed, in ascending order: ForwardOutputs::vocab is their
  // number. Empty: all. The cache must not be asked for with it.
  std::vector<int32_t> logit_tokens;
  // Of rows that want logits, so many of the best tokens are looked for where that spares bringing
  // logits to the host (ForwardOutputs::top); at most kernels::kMostTop.
  int ranks = 0;
};

struct Blueprint;
struct TransformerWeights;
namespace device {
class Device;
}

// What draft heads that were trained for a model share with it. Both live as long as the model;
// null: it has none to share.
struct ModelParts {
  const Blueprint* blueprint = nullptr;
  const TransformerWeights* weights = nullptr;
};

// The same of a model that a device computes, for heads that it computes, too: matrices lie in its
// memory (device_matrix()). No device: there is none, or it shares nothing.
struct DeviceParts {
  device::Device* device = nullptr;
  ModelParts parts;
};

// Not thread-safe: one pass at a time. Bits are as design promises: a row's outputs depend on its
// inputs and visible keys alone.
class Model {
 public:
  virtual ~Model() = default;

  virtual const ModelConfig& config() const = 0;

  // Requires a batch that check_batch() accepts, for a cache made from config(), or from it with as
  // many layers as are not skipped. Writes the rows' keys and values to their slots, moves no
  // boundary, and returns the outputs that rows asked for; they hold until the next pass. Allocates
  // nothing.
  virtual ForwardOutputs forward(const ForwardBatch& batch, KvCache& cache) = 0;
  // Of a model on a device: begins a pass whose tokens the device is about to find, behind that.
  // `rows` [row]: among the rows of what is found, -1: the token is known. A forward() of the same
  // batch with the tokens that were found then gives its outputs, and one of another batch is a
  // pass of its own; outputs of the pass before end with it. False: nothing was begun.
  virtual bool begin(const ForwardBatch& /*batch*/, KvCache& /*cache*/,
                     const FoundTokens& /*found*/, std::span<const int32_t> /*rows*/) {
    return false;
  }
  virtual bool can_begin() const { return false; }

  virtual ModelParts parts() const { return {}; }
  virtual DeviceParts device_parts() const { return {}; }

  // What a cache for it is made from: config(), or what this process keeps of it, where several run
  // the model.
  virtual ModelConfig cache_config() const { return config(); }
  // Where a cache for it has to have its planes. Of those elsewhere it makes the cache's moves
  // itself, before each pass.
  virtual KvCache::Planes cache_planes() const { return KvCache::Planes::kHere; }
  // Of planes elsewhere, how many layers' from the first on are with the cache all the same
  // (KvCache::Creation::here).
  virtual int layers_here() const { return 0; }
  // To be called with each cache while it is empty, before the first pass: where several processes
  // run the model, the others then have one as well; where planes are elsewhere, they are made. It
  // stays where it is from now on. `skipped`: layers that it has none of. On an error, for which
  // there may be no memory, the cache is not attached.
  virtual Status attach([[maybe_unused]] KvCache& cache,
                        [[maybe_unused]] std::span<const int32_t> skipped) {
    return {};
  }
  // One that was attached will not be used again.
  virtual void detach([[maybe_unused]] KvCache& cache) {}

  // Bytes of packed weights and of working memory.
  virtual int64_t weight_bytes() const = 0;
};

// A cache that its model knows, until it goes.
struct DetachCache {
  Model* model = nullptr;
  void operator()(KvCache* cache) const {
    model->detach(*cache);
    delete cache;
  }
};
using ModelCache = std::unique_ptr<KvCache, DetachCache>;

// A cache as the model needs it, and attached to it, which must outlive it: whatever `creation`
// says of planes. Errors are KvCache::create()'s and Model::attach()'s.
Expected<ModelCache> make_cache(Model& model, KvCache::Creation creation);

// Memory that the weights take once they are packed, about.
int64_t packed_weight_bytes(const ModelFile& file, const kernels::Backend& backend,
                            const LayerRange& layers = {});
// The same with what stays beside them as it is: the embedding of a model that has its output by
// it.
int64_t loaded_weight_bytes(const ModelFile& file, const kernels::Backend& backend,
                            const LayerRange& layers = {});
// Working memory of a model loaded with these options, weights and cache apart.
int64_t working_bytes(const ModelConfig& config, const ModelOptions& options);

// Reads the configuration alone. kUnsupported, naming it and what is supported, for a family that
// is not there.
Expected<ModelConfig> read_model_config(const ModelFile& file);

// Checks and packs all weights, or takes them from the cache, if there is one, as they were packed
// before (model/weight_cache.h); a cache that is of no use is a warning, and is written anew.
// Nothing is read of the file once the model is there: what others do to it then has no effect.
// What they did before is kInvalidData (ModelFile::check_intact()). Pages of the mapping that have
// been packed are released.
Expected<std::unique_ptr<Model>> load_model(const ModelFile& file, const ModelOptions& options);

// kInvalidArgument, naming row and value, if a row's token, sequence, parent or position or the
// layers are not what ForwardBatch says, or the batch is larger than `options` allow.
Status check_batch(const ForwardBatch& batch, const ModelConfig& config,
                   const ModelOptions& options);

}  // namespace aerie
