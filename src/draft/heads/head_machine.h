// What computes a head's rows: the processor, or the device that computes its target. A head says
// once what is computed; the processor does each operation as it is called, a device is told all
// of them at once, as a graph that it keeps for the next pass of the same kind.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/status.h"
#include "draft/heads/feature_head.h"
#include "draft/heads/head_parts.h"
#include "kernels/device/device.h"
#include "kernels/op_kinds.h"
#include "kv/kv_cache.h"
#include "model/device/device_memory.h"
#include "model/device/device_packer.h"

namespace aerie {

// Rows of floats in the memory of a machine, which alone looks at them.
struct HeadRows {
  float* data = nullptr;
  int64_t width = 0;
  int64_t stride = 0;  // floats from row to row

  HeadRows columns(int64_t from, int64_t count) const { return {data + from, count, stride}; }
};

// How many rows an operation is for: those of the pass, or those of it that want logits.
enum class HeadWhich : uint8_t { kAll, kWanted };

struct HeadNorm {
  std::span<const float> weight;  // empty: there is none
  double eps = 0.0;
};

// Rows that go into a product, through a norm if there is one. Several are taken side by side.
struct HeadPart {
  HeadRows rows;
  HeadNorm norm = {};
};
class HeadInput {
 public:
  HeadInput(std::initializer_list<HeadPart> parts) : parts_(parts.begin(), parts.size()) {}
  HeadInput(std::span<const HeadPart> parts) : parts_(parts) {}

  auto begin() const { return parts_.begin(); }
  auto end() const { return parts_.end(); }

 private:
  std::span<const HeadPart> parts_;
};

struct HeadSizes {
  const Blueprint* blueprint = nullptr;  // of its layers; null: it has none
  int64_t features = 0;                  // the most floats of a row's features
  int64_t embedded = 0;                  // floats of a token's embedding; 0: it takes none
  int64_t widest = 0;                    // the longest input of a product
  int64_t handed = 0;                    // FeatureHead::hidden()
  int vocab = 0;
  int outputs = 1;  // FeatureHead::outputs_of_root()
  // Rows of nodes are of nothing but what the row above handed on and a token's embedding, which a
  // device rounds to bfloat16 in all of its passes: levels can follow a pass there.
  bool takes_levels = false;
};
// The embedding of the token that a logit stands for.
using EmbedLogit = std::function<void(int logit, float* out)>;

// A device on which a head is loaded and computed, and its weights there.
struct HeadDevice {
  HeadDevice(const kernels::Backend& backend, device::Device& d)
      : device(d), host(backend), pool(d), packer(std::in_place, backend, d, pool) {}

  device::Device& device;
  const kernels::Backend& host;  // of what the processor computes all the same
  DevicePool pool;
  std::optional<DevicePacker> packer;  // while it is being loaded
};

// Not thread-safe. Rows and weights that operations name must be the same ones each time.
class HeadMachine {
 public:
  using Embed = std::function<void(const BatchRow& row, float* out)>;
  struct Inputs {
    HeadRows features;  // of HeadPass, so many floats of each row
    HeadRows embedded;
  };

  // The one that the head was loaded for. kResourceExhausted without memory.
  static Expected<std::unique_ptr<HeadMachine>> create(const HeadTarget& target,
                                                       const HeadSizes& sizes);
  virtual ~HeadMachine() = default;

  // As Model's.
  virtual KvCache::Planes cache_planes() const { return KvCache::Planes::kHere; }
  virtual Status attach(KvCache& /*cache*/) { return {}; }

  // FeatureHead's.
  virtual int64_t level_bytes(int /*levels*/) const { return 0; }
  virtual Status allow_levels(int /*levels*/, const EmbedLogit& /*embed*/) {
    return {StatusCode::kUnsupported, "no levels"};
  }
  // FeatureHead's, of logits that stand for these of the target's tokens.
  virtual int64_t found_bytes() const { return 0; }
  virtual Status allow_found(std::span<const int32_t> /*target_ids*/) {
    return {StatusCode::kUnsupported, "no tokens"};
  }

  // Room for as many rows as there can be, zeros. For create functions of heads.
  virtual Expected<HeadRows> allocate(HeadWhich which, int64_t width) = 0;

  // Begins a pass. What `program` and the pass's sizes are decides what operations there are.
  virtual Inputs begin(const HeadPass& pass, KvCache& cache, int program, int64_t features,
                       const Embed& embed) = 0;
  // The rest of it: `operations` calls those below, or did for a pass of the same kind.
  virtual HeadOutputs run(const std::function<void()>& operations) = 0;
  // The same, and the pass's levels if there are any: `of_level` calls what is computed for rows of
  // nodes, with these inputs.
  virtual HeadOutputs run_levels(const std::function<void()>& operations,
                                 const std::function<void(const Inputs&)>& /*of_level*/) {
    return run(operations);
  }

  // y = w x + bias, or += that.
  virtual void linear(const Linear& w, HeadInput x, HeadWhich which, HeadRows y,
                      bool adds = false) = 0;
  virtual void norm(const HeadNorm& norm, HeadRows x, HeadWhich which, HeadRows out) = 0;
  virtual void copy(HeadRows x, HeadWhich which, HeadRows out) = 0;
  // out = the rows of x that want logits.
  virtual void gather(HeadRows x, HeadRows out) = 0;
  // out = activation(x), or += that. Rows lie side by side.
  virtual void activate(kernels::Activation activation, HeadRows x, HeadWhich which, HeadRows out,
                        bool adds = false) = 0;
  // out += factor x; x += the vector.
  virtual void add(HeadRows x, float factor, HeadWhich which, HeadRows out) = 0;
  virtual void shift(std::span<const float> by, HeadWhich which, HeadRows x) = 0;
  // The target's final norm.
  virtual void target_norm(HeadRows x, HeadWhich which, HeadRows out) = 0;
  // x += silu(w x + bias), for one block after the other. `scratch` is like x.
  void residual_blocks(std::span<const Linear> blocks, HeadRows x, HeadWhich which,
                       HeadRows scratch);

  // The residual stream of the layers, of all rows, and a layer of it; of one whose queries, keys
  // and values are not of the stream's norm what they are of.
  virtual HeadRows stream() = 0;
  virtual void layer(const TransformerLayer& layer, const LayerPlan& plan, int plane) = 0;
  virtual void layer(const TransformerLayer& layer, const LayerPlan& plan, int plane,
                     HeadInput input) = 0;
  // The keys and values alone that a layer makes of this input: what rows of other passes see.
  // Heads that need it are not for devices (kUnsupported).
  virtual void remember(const TransformerLayer& layer, const LayerPlan& plan, int plane,
                        HeadInput input) = 0;

  // Of the rows that want logits: their logits, or the `place`-th of HeadSizes::outputs; and what
  // they hand on.
  virtual void output(const Linear& w, HeadInput x, int place = 0) = 0;
  virtual HeadRows handed() = 0;
};

// A head whose rows a machine computes.
class MachineHead : public FeatureHead {
 public:
  explicit MachineHead(std::unique_ptr<HeadMachine> machine) : machine_(std::move(machine)) {}

  KvCache::Planes cache_planes() const override { return machine_->cache_planes(); }
  Status attach(KvCache& cache) override { return machine_->attach(cache); }
  int64_t level_bytes(int levels) const override {
    return embedding() == nullptr ? 0 : machine_->level_bytes(levels);
  }
  Status allow_levels(int levels) override {
    if (embedding() == nullptr) return FeatureHead::allow_levels(levels);
    return machine_->allow_levels(levels, [this](int logit, float* out) {
      const std::span<const int32_t> ids = target_ids();
      embedding()->row(ids.empty() ? logit : ids[static_cast<size_t>(logit)], out);
    });
  }
  int64_t found_bytes() const override { return machine_->found_bytes(); }
  Status allow_found() override { return machine_->allow_found(target_ids()); }

 protected:
  // Of HeadSizes::takes_levels; null: it does not.
  virtual const HeadEmbedding* embedding() const { return nullptr; }
  HeadMachine& machine() { return *machine_; }

 private:
  std::unique_ptr<HeadMachine> machine_;
};

// Of create(): for a target with a device.
Expected<std::unique_ptr<HeadMachine>> make_device_machine(const HeadTarget& target,
                                                           const HeadSizes& sizes);

}  // namespace aerie
