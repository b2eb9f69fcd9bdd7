// Puts a transformer's pass on a device's stream.
#pragma once

#include <span>

#include "base/status.h"
#include "kernels/device/device.h"
#include "model/blueprint.h"
#include "model/device/device_buffers.h"
#include "model/device/device_weights.h"
#include "model/device/pass_graphs.h"
#include "model/device/pass_input.h"
#include "model/model.h"

namespace aerie {

class DeviceRunner {
 public:
  static Expected<DeviceRunner> create(const Blueprint& blueprint, const ModelOptions& options,
                                       device::Device& device);

  PassInput& input() { return input_; }
  const DeviceBuffers& buffers() const { return buffers_; }
  const DeviceSizes& sizes() const { return sizes_; }

  // The pass that the input was built and sent for, in a cache with these planes. Logits, states,
  // taps and best tokens are in the buffers then.
  void run(const DeviceWeights& weights, const PassShape& shape, std::span<uint16_t* const> planes);

 private:
  DeviceRunner(const Blueprint& blueprint, const DeviceSizes& sizes, device::Device& device,
               PassInput input, DeviceBuffers buffers)
      : blueprint_(blueprint),
        sizes_(sizes),
        device_(&device),
        input_(std::move(input)),
        buffers_(std::move(buffers)) {}

  void run_layer(const DeviceLayer& layer, const LayerPlan& plan, uint16_t* plane,
                 const float* next_norm);
  void project(const DeviceLayer& layer);
  void attend(const DeviceLayer& layer, const LayerPlan& plan, uint16_t* plane);
  void feed_forward(const DeviceLayer& layer, const float* next_norm);
  void add_to_stream(const device::Matrix& matrix, const DeviceMemory& x, int x_stride,
                     const float* post_norm, const float* next_norm);
  void tap(int layer);
  void head(const DeviceWeights& weights);
  device::NextInput next_input(const float* norm) const;
  device::InputNorm input_norm(const DeviceMemory& squares) const;
  device::Product product(device::PassCount rows, int most_rows, const DeviceMemory& x,
                          int x_stride) const;

  Blueprint blueprint_;
  DeviceSizes sizes_;
  device::Device* device_;
  PassInput input_;
  DeviceBuffers buffers_;
  const PassShape* shape_ = nullptr;  // of the pass under way
};

}  // namespace aerie
