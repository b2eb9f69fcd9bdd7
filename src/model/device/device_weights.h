// A transformer's weights in a device's memory.
#pragma once

#include <vector>

#include "base/status.h"
#include "format/model_file.h"
#include "kernels/device/device.h"
#include "model/blueprint.h"
#include "model/device/attention/device_latent.h"
#include "model/device/device_experts.h"
#include "model/device/device_memory.h"
#include "model/device/inputs/device_per_layer.h"
#include "model/device/linear/device_linear.h"
#include "model/model.h"
#include "model/transformer_weights.h"

namespace aerie {

struct DeviceLayer {
  // Of queries, keys and values; with latent attention of queries, or their latent, and of keys.
  std::vector<device::Matrix> inputs;
  device::Matrix o, gate, up, down;  // no gate if the feed-forward has none
  DeviceExperts experts;             // instead of gate, up and down, or beside them
  DeviceLatent latent;
  DeviceLinear linear;  // instead of inputs and o
  // In device memory; null where the blueprint has none. Of NormKind::kLayer biases lie behind
  // weights.
  const float* attention_norm = nullptr;
  const float* ffn_norm = nullptr;
  const float* attention_post_norm = nullptr;
  const float* ffn_post_norm = nullptr;
  const float* query_norm = nullptr;
  const float* key_norm = nullptr;
  const float* sinks = nullptr;
  DevicePerLayer per_layer;
  float output_scale = 1.0f;
};

// A layer that a DevicePacker packed, with its vectors copied to memory of the pool.
Expected<DeviceLayer> device_layer(const TransformerLayer& layer, DevicePool& pool);

struct DeviceWeights {
  std::vector<DeviceLayer> layers;  // those that the options leave out are empty
  int first_layer = 0;              // of those that are there
  device::Matrix output;
  const float* output_norm = nullptr;  // as DeviceLayer has them
  DevicePerLayerInputs per_layer;
  TransformerWeights host;  // the embeddings; of matrices only where they lie
  DevicePool pool;

  // As TransformerWeights::load(); kResourceExhausted where the device has not enough memory.
  static Expected<DeviceWeights> load(const ModelFile& file, const Blueprint& blueprint,
                                      const ModelOptions& options, device::Device& device);
};

// kUnsupported, saying what, for a transformer that devices have no code for yet.
Status check_device_code(const Blueprint& blueprint);

}  // namespace aerie
