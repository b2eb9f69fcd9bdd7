// Inputs of each layer (PerLayerInputs) on a device: the weights, the memory that they work in, and
// what is put on the stream for them.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "kernels/device/device.h"
#include "model/blueprint.h"
#include "model/device/device_memory.h"
#include "model/transformer_weights.h"

namespace aerie {

// Of a layer; without outputs in one that has none.
struct DevicePerLayer {
  device::Matrix gate, out;
  const float* post_norm = nullptr;

  bool any() const { return gate.n > 0; }

  // Of a layer that a DevicePacker packed.
  static Expected<DevicePerLayer> create(const PerLayerWeights& weights, DevicePool& pool);
};

// Of a model: from the embedding to the values of all layers, and the norm of those of each.
struct DevicePerLayerInputs {
  device::Matrix project;
  const float* norm = nullptr;

  static Expected<DevicePerLayerInputs> create(const TransformerWeights& weights, DevicePool& pool);
};

// Floats that the host sends with each row: what the table has for its token, and behind that the
// token's embedding where the stream is not that (`begins_later`). 0: the model has no such inputs.
int per_layer_floats(const Blueprint& blueprint, bool begins_later);

// Nothing is allocated for a blueprint without such inputs.
class DevicePerLayerRunner {
 public:
  // At most so many rows a pass.
  static Expected<DevicePerLayerRunner> create(const Blueprint& blueprint, int rows,
                                               device::Device& device);
  // Device memory of it.
  static int64_t bytes(const Blueprint& blueprint, int rows);

  struct Rows {
    device::Product product;          // of its rows and room; x has room for rows of embeddings
    uint16_t* x = nullptr;            // that, product.x_stride apart
    const float* embedded = nullptr;  // as the first layer gets them
    int embedded_stride = 0;
    const float* tokens = nullptr;  // what the table has for the rows' tokens
    int tokens_stride = 0;
  };
  // The values of these rows for all layers.
  void start(const DevicePerLayerInputs& weights, const Rows& rows);
  // What DevicePerLayer::out is to be multiplied by: of layer `index`, whose stream, not normed, is
  // the product's x, gated by its glu.
  void gate(const DevicePerLayer& layer, int index, const device::Product& product);
  const uint16_t* gated() const { return gated_.as<uint16_t>(); }
  int gated_stride() const { return rounded_up(width_, device::kStep); }
  // A norm's weights that leave what they are for as it is; [hidden].
  const float* ones() const { return ones_.as<float>(); }

 private:
  DevicePerLayerRunner(const Blueprint& blueprint, device::Device& device);

  int hidden_, width_, layers_;
  float eps_;
  device::Device* device_;
  DeviceMemory ones_;
  DeviceMemory values_;  // float [row][layer][width]
  DeviceMemory gate_;    // float [row][width]
  DeviceMemory gated_;   // bfloat16 [row][gated_stride()]
};

}  // namespace aerie
