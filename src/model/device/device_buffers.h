// The memory that a transformer's passes work in on a device.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "kernels/device/device.h"
#include "model/blueprint.h"
#include "model/device/device_memory.h"
#include "model/device/pass/pass_input.h"
#include "model/model.h"

namespace aerie {

// Of a layer's keys and values; of another's whose it reads.
device::CacheShape cache_shape(const ModelConfig& config, const LayerPlan& plan);
// Of its feed-forward.
int ffn_width(const ModelConfig& config, const LayerPlan& plan);

struct DeviceSizes {
  int rows = 0;    // rounded up to whole tiles of products
  int wanted = 0;  // the same
  int logit_width = 0;
  int ranks = 0;                            // device::Top's k, instead of device::Best
  int hidden = 0, attended = 0, ffn = 0;    // bfloat16 rows, rounded up to steps of products
  int widest_attended = 0, widest_ffn = 0;  // of all layers
  int panels = 0;                           // of the stream
  int projected = 0;                        // what the inputs of a layer give
  int64_t partials = 0, arrived = 0;        // device::Attend
  int64_t ordered = 0;                      // device::Product, of the largest
  PassLimits limits;

  DeviceSizes(const Blueprint& blueprint, const ModelOptions& options);
  // Where in a row of `attended` and `ffn` elements those of a layer begin. Those of all layers end
  // at the same place, so that what is behind them stays zeros.
  int attended_at(const ModelConfig& config, const LayerPlan& plan) const;
  int gated_at(const ModelConfig& config, const LayerPlan& plan) const {
    return widest_ffn - ffn_width(config, plan);
  }
  int64_t bytes(const Blueprint& blueprint, const ModelOptions& options) const;

 private:
  void add_layers(const Blueprint& blueprint);
};

struct DeviceBuffers {
  DeviceMemory input;             // bfloat16 [rows][hidden]: the next products' input
  DeviceMemory squares;           // float [rows][panels]
  DeviceMemory projected;         // float [rows][projected]
  DeviceMemory queries;           // binary16 [rows][heads][head_dim]
  DeviceMemory attended;          // bfloat16 [rows][attended]
  DeviceMemory gated;             // bfloat16 [rows][ffn]
  DeviceMemory branch;            // float [rows][hidden]; with norms behind branches alone
  DeviceMemory partials;          // device::Attend
  DeviceMemory arrived;           // unsigned
  DeviceMemory ordered;           // device::Product
  DeviceMemory head_input;        // bfloat16 [wanted][hidden]
  DeviceMemory head_squares;      // float [wanted][panels]
  DeviceMemory logits;            // float [wanted][logit_width]
  DeviceMemory states;            // float [wanted][hidden]
  DeviceMemory taps;              // float [rows][max_taps][hidden]
  DeviceMemory best_parts, best;  // device::Best
  DeviceMemory top;               // device::Top

  static Expected<DeviceBuffers> create(device::Device& device, const DeviceSizes& sizes,
                                        const Blueprint& blueprint, const ModelOptions& options);
};

}  // namespace aerie
