// Layers with linear attention on a device: their weights, the memory that they work in, and what
// is put on the stream in the place of attention.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "kernels/device/device.h"
#include "model/blueprint.h"
#include "model/device/device_memory.h"
#include "model/transformer_weights.h"

namespace aerie {

// LinearAttentionWeights in a device's memory. Without matrices in a layer that is none.
struct DeviceLinear {
  // Of what the convolution takes, the gate behind it, and what beta and the decay are made of, or
  // the gate before it: their products lie side by side.
  std::vector<device::Matrix> inputs;
  device::Matrix out;
  const float *conv = nullptr, *conv_bias = nullptr, *rate = nullptr, *step = nullptr,
              *skip = nullptr, *head_norm = nullptr;

  // Of a layer that a DevicePacker packed.
  static Expected<DeviceLinear> create(const LinearAttentionWeights& weights, DevicePool& pool);
};

// Floats of a row of the inputs' products, and elements of a row that goes to `out`, rounded up to
// steps of products; of a model without such layers 0.
int linear_projected_width(const ModelConfig& config);
int linear_gated_width(const ModelConfig& config);

// Puts them on a device's stream. Nothing is allocated for a blueprint without such layers.
class DeviceLinearRunner {
 public:
  // At most so many rows a pass.
  static Expected<DeviceLinearRunner> create(const Blueprint& blueprint, int rows,
                                             device::Device& device);
  // Device memory of it.
  static int64_t bytes(const Blueprint& blueprint, int rows);

  struct Input {
    device::StatePass pass;
    int most_rows = 0, most_sequences = 0;
    const float* projected = nullptr;  // [row][stride]: products of DeviceLinear::inputs
    int stride = 0;
    float* states = nullptr;  // the layer's, in the pass's cache
    float* records = nullptr;
  };
  void run(const DeviceLinear& layer, const Input& input);

  // What run() gives: bfloat16 [row][linear_gated_width()], for DeviceLinear::out.
  const DeviceMemory& gated() const { return gated_; }

 private:
  DeviceLinearRunner(const Blueprint& blueprint, device::Device& device);
  device::LinearLayer layer_of(const Input& input) const;
  void convolve(const DeviceLinear& layer, const device::LinearLayer& of) const;
  void gate(const DeviceLinear& layer, const device::LinearLayer& of) const;
  void gate_groups(const DeviceLinear& layer, const device::LinearLayer& of) const;

  LinearAttention config_;
  int gated_width_;
  device::StateShape shape_;
  float norm_eps_;
  device::Device* device_;
  DeviceMemory mixed_;  // float [row][channels]
  DeviceMemory gates_;  // float [row][2][heads]
  DeviceMemory given_;  // float [row][heads][value_dim]
  // Zeros behind what heads give, and nobody else's.
  DeviceMemory gated_;
};

}  // namespace aerie
