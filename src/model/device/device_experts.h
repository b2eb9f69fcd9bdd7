// Layers with experts on a device: their weights, the memory that they work in, and what is put on
// the stream in the place of a feed-forward.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "kernels/device/device.h"
#include "model/blueprint.h"
#include "model/device/device_memory.h"
#include "model/transformer_weights.h"

namespace aerie {

// The same matrix of each expert, all of one kind.
struct DeviceStack {
  device::Matrix first;                 // the first expert's
  const device::Matrix* all = nullptr;  // by expert, in device memory
};

struct DeviceExperts {
  device::Matrix router;
  const float* corrections = nullptr;  // ExpertRouter::corrected; in device memory, or null
  DeviceStack gate, up, down;
  // What every row uses besides, and the gate of that; without outputs if there is none.
  device::Matrix shared_gate, shared_up, shared_down, shared_router;

  // Blueprint::experts_beside, in device memory: what a row is normed by to choose, and for the
  // experts; norms behind the feed-forward and behind the experts.
  const float *router_norm = nullptr, *norm = nullptr, *beside_post_norm = nullptr,
              *post_norm = nullptr;

  bool any() const { return router.n > 0; }

  // Of a layer that a DevicePacker packed. kUnsupported for matrices of several types.
  static Expected<DeviceExperts> create(const ExpertWeights& weights, DevicePool& pool);
};

// A matrix that a DevicePacker packed, with its bias copied to memory of the pool; without outputs
// if there is none.
Expected<device::Matrix> device_linear(const Linear& linear, DevicePool& pool);

// A matrix for each expert or head. kUnsupported for matrices of several types.
Expected<DeviceStack> device_stack(const std::vector<Linear>& matrices, DevicePool& pool);

bool has_experts(const Blueprint& blueprint);

// Puts them on a device's stream. Nothing is allocated for a blueprint without experts.
class DeviceExpertRunner {
 public:
  // At most so many rows a pass.
  static Expected<DeviceExpertRunner> create(const Blueprint& blueprint, int rows,
                                             device::Device& device);
  // Device memory of it.
  static int64_t bytes(const Blueprint& blueprint, int rows);

  struct Input {
    device::Product product;  // of its rows, x, norm, glu and room
    float* stream = nullptr;  // to which it is added
    int stream_stride = 0;
    device::NextInput next;
    bool is_first = true;  // of the pass's layers with experts
  };
  void run(const DeviceExperts& layer, const Input& input);

  // The same, step by step, of experts beside a feed-forward: the input of choose() is normed for
  // the router, that of give() for the experts, and what they give is left where add_beside() takes
  // it from, all of which is in `add` but for that and the norms behind either.
  void choose(const DeviceExperts& layer, const Input& input);
  void give(const DeviceExperts& layer, const Input& input);
  void add_beside(const DeviceExperts& layer, const device::AddBeside& add);

  // In device memory: how many experts the last pass read, each once a layer.
  const int32_t* reads() const { return reads_.as<int32_t>(); }

 private:
  DeviceExpertRunner(const Blueprint& blueprint, device::Device& device);
  struct Part {
    DeviceMemory DeviceExpertRunner::*memory;
    int64_t bytes;
  };
  static std::vector<Part> parts(const ModelConfig& config, int most_rows);
  void run_shared(const DeviceExperts& layer, const Input& input);
  void add(const DeviceExperts& layer, const Input& input);

  ModelConfig config_;
  ExpertRouter router_;
  float scale_;  // on what is added to the stream
  device::Device* device_;
  DeviceMemory logits_;              // float [row][logit_width()]
  DeviceMemory weights_;             // float [row][used]
  DeviceMemory chosen_, places_;     // int32 [row][used]
  DeviceMemory pairs_;               // int32 [pair]
  DeviceMemory tiles_;               // device::ExpertTile
  DeviceMemory tile_count_, reads_;  // int32
  DeviceMemory arrived_;             // unsigned
  DeviceMemory gated_;               // bfloat16 [pair][gated_width()]
  DeviceMemory given_;               // float [pair][hidden]
  DeviceMemory shared_gated_;        // bfloat16 [row][shared_width()]
  DeviceMemory shared_;              // float [row][hidden]
};

}  // namespace aerie
