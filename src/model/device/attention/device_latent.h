// Layers with multi-head latent attention on a device (LatentAttention in core/model_config.h):
// their weights, and what is put on the stream around attention itself. In the absorbed form, as
// on the processor (model/attention/latent_runner.h): queries are taken to the latent that the
// cache holds, and never a key or a value of a head is made.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "kernels/device/device.h"
#include "model/blueprint.h"
#include "model/device/device_experts.h"
#include "model/device/device_memory.h"
#include "model/transformer_weights.h"

namespace aerie {

// Beside the products of the layer's input: of queries, or of the latent that they are made of,
// and of keys.
struct DeviceLatent {
  device::Matrix queries;             // of their latent; without outputs if they have none
  const float* query_norm = nullptr;  // of that, in device memory; null: they have none
  const float* norm = nullptr;        // of the keys' latent
  DeviceStack to_keys, to_values;     // a matrix for each head

  bool any() const { return norm != nullptr; }

  // Of a layer that a DevicePacker packed; empty for one with other attention.
  static Expected<DeviceLatent> create(const TransformerLayer& layer, DevicePool& pool);
};

// Puts them on a device's stream. Nothing is allocated for a blueprint without.
//
// Products with a matrix for each head are those of experts, which are chosen once and for all: a
// pair is a row and a head, pairs of a head lie side by side.
class DeviceLatentRunner {
 public:
  // At most so many rows a pass. kUnsupported if they are too many for that many heads.
  static Expected<DeviceLatentRunner> create(const Blueprint& blueprint, int rows,
                                             device::Device& device);
  // Device memory of it.
  static int64_t bytes(const Blueprint& blueprint, int rows);

  struct Input {
    device::Pass pass;
    int most_rows = 0;
    // [row][stride]: queries or their latent, then the key.
    const float* projected = nullptr;
    int stride = 0;
    void* ordered = nullptr;       // Product::ordered, of an input as long as the queries' latent
    const float* turns = nullptr;  // device::Place's
    int turns_stride = 0;
  };
  // Queries to `queries` and keys to the plane of the cache, as attention takes them.
  void place(const DeviceLatent& layer, const Input& input, uint16_t* queries,
             uint16_t* plane) const;
  // Where attention has to write.
  void receive(device::Attend& attend) const;
  // What the heads make of that, bfloat16 [row][stride].
  void finish(const DeviceLatent& layer, const Input& input, uint16_t* out, int stride) const;

 private:
  // Pairs of all heads, cut into tiles of so many: those of the first rows of all heads first.
  struct Tiles {
    int rows = 0;
    DeviceMemory tiles;   // device::ExpertTile
    DeviceMemory counts;  // int32: of 0, 1, ... times `rows` rows
  };
  struct Part {
    DeviceMemory DeviceLatentRunner::*memory;
    int64_t bytes;
  };

  DeviceLatentRunner(const Blueprint& blueprint, int rows, device::Device& device);
  static std::vector<Part> parts(const ModelConfig& config, int most_rows);
  Status make_tiles(Tiles& out, int rows) const;
  Status make_tables();
  void make_queries(const DeviceLatent& layer, const Input& input) const;
  void multiply(const DeviceStack& stack, const Input& input, const uint16_t* x, int x_stride,
                const int32_t* from) const;

  LatentAttention shape_;
  int heads_;
  float eps_;
  bool halves_;
  int64_t apart_;  // pairs from one head's first to the next one's
  device::Device* device_;
  Tiles few_, many_;
  DeviceMemory from_;         // int32 [pair]: its place in attended_
  DeviceMemory query_input_;  // bfloat16 [row][query_rank], rounded up to steps
  DeviceMemory queries_;      // float [row][heads][plain + rope]; of those that have a latent
  DeviceMemory plain_;        // bfloat16 [pair][plain], rounded up to steps
  DeviceMemory given_;        // float [pair][rank], then [pair][value_dim]
  DeviceMemory attended_;     // bfloat16 [row][head][rank], rounded up to steps
};

}  // namespace aerie
