// Puts a transformer's pass on a device's stream.
#pragma once

#include <span>

#include "base/status.h"
#include "kernels/device/device.h"
#include "model/blueprint.h"
#include "model/device/attention/device_latent.h"
#include "model/device/device_buffers.h"
#include "model/device/device_experts.h"
#include "model/device/device_planes.h"
#include "model/device/device_top.h"
#include "model/device/device_weights.h"
#include "model/device/inputs/device_per_layer.h"
#include "model/device/linear/device_linear.h"
#include "model/device/pass/pass_graphs.h"
#include "model/device/pass/pass_input.h"
#include "model/model.h"

namespace aerie {

device::Glu glu_of(kernels::Activation activation);

class DeviceRunner {
 public:
  // `sends_stream`, `extra`: of PassLimits; floats that the layers want (per_layer_floats()) come
  // on top of those.
  static Expected<DeviceRunner> create(const Blueprint& blueprint, const ModelOptions& options,
                                       device::Device& device, bool sends_stream = true,
                                       int extra = 0);

  PassInput& input() { return input_; }
  const DeviceBuffers& buffers() const { return buffers_; }
  const DeviceSizes& sizes() const { return sizes_; }
  DeviceTop& top() { return top_; }
  const DeviceExpertRunner& experts() const { return experts_; }

  // The pass that the input was built and sent for, in a cache with these planes, the first of
  // which is of the first layer that there are weights of. Logits, states, taps and best tokens are
  // in the buffers then.
  void run(const DeviceWeights& weights, const PassShape& shape, const DevicePlanes::Of& planes);

  // What queries, keys and values of a layer are products of: bfloat16 rows as device::Product
  // takes them.
  struct Input {
    const uint16_t* x = nullptr;
    int stride = 0;
    device::InputNorm norm = {};
  };
  // For what is made of layers and is no model: begins such a pass, whose shape must stay until it
  // is over.
  void start(const PassShape& shape) {
    shape_ = &shape;
    ran_experts_ = false;
  }
  // One layer, with queries, keys and values of this input, or of the stream's norm.
  void run_layer(const DeviceLayer& layer, const LayerPlan& plan, uint16_t* plane,
                 const Input& input) {
    run_layer(layer, plan, plane, input, nullptr);
  }
  // Keys and values of this input, and no more.
  void remember(const DeviceLayer& layer, const LayerPlan& plan, uint16_t* plane,
                const Input& input) {
    project(layer.inputs, input);
    place(layer, plan, plane);
  }
  void run_layer(const DeviceLayer& layer, const LayerPlan& plan, uint16_t* plane) {
    begin(layer.attention_norm);
    run_layer(layer, plan, plane, normed_stream(), nullptr);
  }

 private:
  DeviceRunner(const Blueprint& blueprint, const DeviceSizes& sizes, device::Device& device,
               PassInput input, DeviceBuffers buffers, DeviceExpertRunner experts,
               DeviceLatentRunner latent, DeviceLinearRunner linear, DevicePerLayerRunner per_layer)
      : blueprint_(blueprint),
        sizes_(sizes),
        device_(&device),
        input_(std::move(input)),
        buffers_(std::move(buffers)),
        experts_(std::move(experts)),
        latent_(std::move(latent)),
        linear_(std::move(linear)),
        per_layer_(std::move(per_layer)) {}

  void begin(const float* norm);
  Input normed_stream() const {
    return {buffers_.input.as<uint16_t>(), sizes_.hidden, input_norm(buffers_.squares)};
  }
  void run_layer(const DeviceLayer& layer, const LayerPlan& plan, uint16_t* plane,
                 const Input& input, const float* next_norm);
  void run_linear(const DeviceLayer& layer, const StateMemory& states, int plane, int number,
                  const float* next_norm);
  void project(std::span<const device::Matrix> matrices, const Input& input);
  void place(const DeviceLayer& layer, const LayerPlan& plan, uint16_t* plane);
  void attend(const DeviceLayer& layer, const LayerPlan& plan, const uint16_t* plane);
  DeviceLatentRunner::Input latent_input(const LayerPlan& plan) const;
  void gate_attended();
  void feed_forward(const DeviceLayer& layer, const LayerPlan& plan, const float* next_norm);
  DeviceExpertRunner::Input expert_input(const float* next_norm);
  void run_beside(const DeviceLayer& layer, const LayerPlan& plan, const float* next_norm);
  void run_gated(const DeviceLayer& layer, const LayerPlan& plan);
  // What becomes of what a branch gives: its norm, if it has one, a scale of the stream that it was
  // added to (with a norm alone), and the norm of what reads that next.
  struct Behind {
    const float* post_norm = nullptr;
    const float* next_norm = nullptr;
    float scale = 1.0f;
  };
  static float scale_of(const DeviceLayer& layer);
  void add_to_stream(const device::Matrix& matrix, const uint16_t* x, int x_stride,
                     const Behind& behind);
  void start_per_layer(const DevicePerLayerInputs& weights);
  void add_per_layer(const DeviceLayer& layer, int index, const float* next_norm);
  void run_attending(const DeviceWeights& weights, int index, uint16_t* plane,
                     const float* next_norm);
  void tap(int layer);
  void head(const DeviceWeights& weights);
  void find_best(int wanted);
  bool has_layer_norms() const { return blueprint_.norm == NormKind::kLayer; }
  device::LayerNorm layer_norm(device::PassCount rows, int most_rows, const float* norm) const;
  void normalize(const float* norm);
  void norm_states(const float* norm);
  void norm_wanted(const float* norm);
  device::NextInput next_input(const float* norm) const;
  device::InputNorm input_norm(const DeviceMemory& squares) const;
  uint16_t* attended(const LayerPlan& plan) const {
    return buffers_.attended.as<uint16_t>() + sizes_.attended_at(blueprint_.config, plan);
  }
  uint16_t* gated(const LayerPlan& plan) const {
    return buffers_.gated.as<uint16_t>() + sizes_.gated_at(blueprint_.config, plan);
  }
  device::Product product(device::PassCount rows, int most_rows, const uint16_t* x,
                          int x_stride) const;

  Blueprint blueprint_;
  DeviceSizes sizes_;
  device::Device* device_;
  PassInput input_;
  DeviceBuffers buffers_;
  DeviceExpertRunner experts_;
  DeviceLatentRunner latent_;
  DeviceLinearRunner linear_;
  DevicePerLayerRunner per_layer_;
  DeviceTop top_;
  const PassShape* shape_ = nullptr;  // of the pass under way
  bool ran_experts_ = false;          // in a layer of it
};

}  // namespace aerie
