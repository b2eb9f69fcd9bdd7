#include "model/device/inputs/device_per_layer.h"

#include <cmath>
#include <vector>

#include "base/errors.h"
#include "model/device/device_experts.h"

namespace aerie {

Expected<DevicePerLayer> DevicePerLayer::create(const PerLayerWeights& weights, DevicePool& pool) {
  DevicePerLayer out;
  AERIE_ASSIGN_OR_RETURN(out.gate, device_linear(weights.gate, pool));
  AERIE_ASSIGN_OR_RETURN(out.out, device_linear(weights.out, pool));
  AERIE_ASSIGN_OR_RETURN(out.post_norm, pool.upload(weights.post_norm.weight, "weights"));
  return out;
}

Expected<DevicePerLayerInputs> DevicePerLayerInputs::create(const TransformerWeights& weights,
                                                            DevicePool& pool) {
  DevicePerLayerInputs out;
  AERIE_ASSIGN_OR_RETURN(out.project, device_linear(weights.per_layer_project, pool));
  AERIE_ASSIGN_OR_RETURN(out.norm, pool.upload(weights.per_layer_norm, "weights"));
  return out;
}

int per_layer_floats(const Blueprint& blueprint, bool begins_later) {
  if (blueprint.per_layer_width == 0) return 0;
  const ModelConfig& config = blueprint.config;
  return config.layers * blueprint.per_layer_width + (begins_later ? config.hidden : 0);
}

DevicePerLayerRunner::DevicePerLayerRunner(const Blueprint& blueprint, device::Device& device)
    : hidden_(blueprint.config.hidden),
      width_(blueprint.per_layer_width),
      layers_(blueprint.config.layers),
      eps_(static_cast<float>(blueprint.norm_eps)),
      device_(&device) {}

int64_t DevicePerLayerRunner::bytes(const Blueprint& blueprint, int rows) {
  const int64_t width = blueprint.per_layer_width;
  if (width == 0) return 0;
  const int64_t row = blueprint.config.layers * width * 4 + width * 4 +
                      rounded_up(blueprint.per_layer_width, device::kStep) * 2;
  return int64_t{rounded_up(rows, device::kManyRows)} * row + blueprint.config.hidden * 4;
}

Expected<DevicePerLayerRunner> DevicePerLayerRunner::create(const Blueprint& blueprint, int rows,
                                                            device::Device& device) {
  DevicePerLayerRunner runner(blueprint, device);
  if (runner.width_ == 0) return runner;
  // Products of all rows write whole tiles of them.
  const auto all = static_cast<size_t>(rounded_up(rows, device::kManyRows));
  const auto make = [&](DeviceMemory& memory, size_t bytes) -> Status {
    AERIE_ASSIGN_OR_RETURN(memory,
                           DeviceMemory::allocate(device, bytes, "the work of layers' inputs"));
    return {};
  };
  const auto width = static_cast<size_t>(runner.width_);
  AERIE_RETURN_IF_ERROR(
      make(runner.values_, all * static_cast<size_t>(runner.layers_) * width * 4));
  AERIE_RETURN_IF_ERROR(make(runner.gate_, all * width * 4));
  AERIE_RETURN_IF_ERROR(make(runner.gated_, all * static_cast<size_t>(runner.gated_stride()) * 2));
  const std::vector<float> ones(static_cast<size_t>(runner.hidden_), 1.0f);
  AERIE_RETURN_IF_ERROR(make(runner.ones_, ones.size() * 4));
  device.copy_in(runner.ones_.as<void>(), ones.data(), ones.size() * 4);
  if (!device.wait()) return internal_error("{}", device.error());
  return runner;
}

void DevicePerLayerRunner::start(const DevicePerLayerInputs& weights, const Rows& rows) {
  device::Begin begin;
  begin.rows = rows.product.rows;
  begin.most_rows = rows.product.most_rows;
  begin.x = rows.embedded;
  begin.x_stride = rows.embedded_stride;
  begin.width = hidden_;
  begin.next.weight = ones();
  begin.next.out = rows.x;
  begin.next.stride = rows.product.x_stride;
  device_->begin(begin);

  device::Product p = rows.product;
  p.x = rows.x;
  p.w[0] = weights.project;
  p.y = values_.as<float>();
  p.y_stride = layers_ * width_;
  p.factor = 1.0f / std::sqrt(static_cast<float>(hidden_));
  device_->product(p);

  device::JoinInputs join;
  join.rows = p.rows;
  join.most_rows = p.most_rows;
  join.x = p.y;
  join.x_stride = p.y_stride;
  join.parts = layers_;
  join.width = width_;
  join.weight = weights.norm;
  join.eps = eps_;
  join.added = rows.tokens;
  join.added_stride = rows.tokens_stride;
  join.added_scale = std::sqrt(static_cast<float>(width_));
  join.factor = std::sqrt(0.5f);
  device_->join_inputs(join);
}

void DevicePerLayerRunner::gate(const DevicePerLayer& layer, int index,
                                const device::Product& product) {
  device::Product p = product;
  p.w[0] = layer.gate;
  p.y = gate_.as<float>();
  p.y_stride = width_;
  device_->product(p);

  device::GateRows gate;
  gate.rows = p.rows;
  gate.most_rows = p.most_rows;
  gate.x = p.y;
  gate.x_stride = p.y_stride;
  gate.by = values_.as<float>() + static_cast<int64_t>(index) * width_;
  gate.by_stride = layers_ * width_;
  gate.width = width_;
  gate.glu = p.glu;
  gate.out = gated_.as<uint16_t>();
  gate.out_stride = gated_stride();
  device_->gate_rows(gate);
}

}  // namespace aerie
