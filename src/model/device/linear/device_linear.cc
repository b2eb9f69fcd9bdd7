#include "model/device/linear/device_linear.h"

#include <algorithm>
#include <cmath>

#include "kernels/device/linear/state_shape.h"
#include "kv/state_store.h"
#include "model/device/device_experts.h"
#include "model/device/linear/state_memory.h"

namespace aerie {
namespace {

constexpr float kLengthEps = 1e-6f;  // of the lengths of queries and keys, for every model

// Where rows of products have the gate behind the convolution, and what comes after it.
int gate_at(const LinearAttention& linear) {
  return linear.channels();
}
int rest_at(const LinearAttention& linear) {
  return gate_at(linear) + linear.out_width();
}

// The widest part of rows of so many elements that a warp takes as a head.
int part_of(int width) {
  int part = device::kMostHeadDim;
  while (width % part != 0) part -= device::kPanel;
  return part;
}

}  // namespace

int linear_projected_width(const ModelConfig& config) {
  const LinearAttention& linear = config.linear;
  if (config.count_linear() == 0) return 0;
  const int rest = linear.kind == LinearKind::kShortConv ? linear.channels() : 2 * linear.heads;
  return rounded_up(rest_at(linear) + rest, device::kPanel);
}

int linear_gated_width(const ModelConfig& config) {
  return config.count_linear() > 0 ? rounded_up(config.linear.out_width(), device::kStep) : 0;
}

Expected<DeviceLinear> DeviceLinear::create(const LinearAttentionWeights& weights,
                                            DevicePool& pool) {
  DeviceLinear out;
  for (const Linear* input : {&weights.qkv, &weights.z, &weights.gate_before, &weights.beta,
                              &weights.alpha, &weights.beta_alpha}) {
    if (input->weight.n == 0) continue;
    AERIE_ASSIGN_OR_RETURN(out.inputs.emplace_back(), device_linear(*input, pool));
  }
  AERIE_ASSIGN_OR_RETURN(out.out, device_linear(weights.out, pool));
  const auto upload = [&](const std::vector<float>& values, const float*& to) -> Status {
    AERIE_ASSIGN_OR_RETURN(to, pool.upload(values, "weights"));
    return {};
  };
  AERIE_RETURN_IF_ERROR(upload(weights.conv, out.conv));
  AERIE_RETURN_IF_ERROR(upload(weights.conv_bias, out.conv_bias));
  AERIE_RETURN_IF_ERROR(upload(weights.rate, out.rate));
  AERIE_RETURN_IF_ERROR(upload(weights.step, out.step));
  AERIE_RETURN_IF_ERROR(upload(weights.skip, out.skip));
  AERIE_RETURN_IF_ERROR(upload(weights.head_norm, out.head_norm));
  return out;
}

DeviceLinearRunner::DeviceLinearRunner(const Blueprint& blueprint, device::Device& device)
    : config_(blueprint.config.linear),
      gated_width_(linear_gated_width(blueprint.config)),
      shape_(device::state_shape(state_layout(blueprint.config))),
      norm_eps_(static_cast<float>(blueprint.norm_eps)),
      device_(&device) {}

int64_t DeviceLinearRunner::bytes(const Blueprint& blueprint, int rows) {
  const LinearAttention& linear = blueprint.config.linear;
  if (blueprint.config.count_linear() == 0) return 0;
  const int64_t row = int64_t{4} * (linear.channels() + 2 * linear.heads + linear.v_width()) +
                      int64_t{2} * linear_gated_width(blueprint.config);
  return rounded_up(rows, device::kManyRows) * row;
}

Expected<DeviceLinearRunner> DeviceLinearRunner::create(const Blueprint& blueprint, int rows,
                                                        device::Device& device) {
  DeviceLinearRunner runner(blueprint, device);
  if (blueprint.config.count_linear() == 0) return runner;
  const LinearAttention& linear = blueprint.config.linear;
  const auto make = [&](DeviceMemory& memory, int width, int64_t element) -> Status {
    const int64_t bytes = int64_t{rounded_up(rows, device::kManyRows)} * width * element;
    AERIE_ASSIGN_OR_RETURN(memory, DeviceMemory::allocate(device, static_cast<size_t>(bytes),
                                                          "the work of linear attention"));
    return {};
  };
  AERIE_RETURN_IF_ERROR(make(runner.mixed_, linear.channels(), 4));
  AERIE_RETURN_IF_ERROR(make(runner.gates_, 2 * linear.heads, 4));
  AERIE_RETURN_IF_ERROR(make(runner.given_, linear.v_width(), 4));
  AERIE_RETURN_IF_ERROR(make(runner.gated_, runner.gated_width_, 2));
  return runner;
}

device::LinearLayer DeviceLinearRunner::layer_of(const Input& input) const {
  device::LinearLayer of;
  of.pass = input.pass;
  of.most_rows = input.most_rows;
  of.most_sequences = input.most_sequences;
  of.shape = shape_;
  of.x = input.projected;
  of.x_stride = input.stride;
  if (config_.kind == LinearKind::kShortConv) of.input_gates = input.projected + rest_at(config_);
  of.values = config_.out_width();
  // The channels of a state space are its values, keys and queries, in this order.
  const bool is_space = config_.kind == LinearKind::kStateSpace;
  of.values_at = is_space ? 0 : 2 * config_.k_width();
  of.keys_at = is_space ? of.values : config_.k_width();
  of.queries_at = is_space ? of.values + config_.k_width() : 0;
  of.mixed = mixed_.as<float>();
  of.gates = gates_.as<float>();
  of.states = input.states;
  of.records = input.records;
  return of;
}

void DeviceLinearRunner::convolve(const DeviceLinear& layer, const device::LinearLayer& of) const {
  device::Convolve convolve;
  convolve.layer = of;
  convolve.weights = layer.conv;
  convolve.bias = layer.conv_bias;
  convolve.silu = config_.kind != LinearKind::kShortConv;
  convolve.rate = layer.rate;
  convolve.step = layer.step;
  convolve.together = std::max(1, config_.heads);
  convolve.alpha = of.x + rest_at(config_);
  if (config_.kind == LinearKind::kDeltaRule) {
    // Heads of length 1, queries divided by the root of their dimension besides.
    const auto dim = static_cast<float>(config_.key_dim);
    convolve.query_factor = 1.0f / dim;
    convolve.key_factor = 1.0f / std::sqrt(dim);
    convolve.eps = kLengthEps / dim;
    // All for beta before all for the decay, of a key head or of all.
    const bool joint = layer.inputs.size() == 3;
    if (joint) convolve.together = config_.heads / config_.key_heads;
    convolve.beta = convolve.alpha;
    convolve.alpha += convolve.together;
  }
  convolve.apart = 2 * convolve.together;
  device_->convolve(convolve);
}

// The gate is behind the norm of what a head gives, or alone.
void DeviceLinearRunner::gate(const DeviceLinear& layer, const device::LinearLayer& of) const {
  const bool plain = config_.kind == LinearKind::kShortConv;
  device::GateHeads gate;
  gate.rows = of.pass.row_count;
  gate.most_rows = of.most_rows;
  gate.dim = plain ? part_of(config_.plain) : config_.value_dim;
  gate.heads = config_.out_width() / gate.dim;
  gate.x = plain ? of.mixed : given_.as<float>();
  gate.x_stride = config_.out_width();
  if (!plain) gate.norm = layer.head_norm;
  gate.eps = norm_eps_;
  gate.by = plain ? device::GateHeads::By::kItself : device::GateHeads::By::kSilu;
  gate.gates = of.x + gate_at(config_);
  gate.gates_stride = of.x_stride;
  gate.gates_apart = gate.dim;
  gate.out = gated_.as<uint16_t>();
  gate.out_stride = gated_width_;
  device_->gate_heads(gate);
}

void DeviceLinearRunner::gate_groups(const DeviceLinear& layer,
                                     const device::LinearLayer& of) const {
  device::GateGroups gate;
  gate.rows = of.pass.row_count;
  gate.most_rows = of.most_rows;
  gate.groups = config_.key_heads;
  gate.width = config_.v_width() / config_.key_heads;
  gate.dim = config_.value_dim;
  gate.x = given_.as<float>();
  gate.x_stride = config_.v_width();
  gate.values = of.mixed + of.values_at;
  gate.values_stride = shape_.channels;
  gate.skip = layer.skip;
  gate.gates = of.x + gate_at(config_);
  gate.gates_stride = of.x_stride;
  gate.norm = layer.head_norm;
  gate.eps = norm_eps_;
  gate.out = gated_.as<uint16_t>();
  gate.out_stride = gated_width_;
  device_->gate_groups(gate);
}

void DeviceLinearRunner::run(const DeviceLinear& layer, const Input& input) {
  const device::LinearLayer of = layer_of(input);
  convolve(layer, of);
  device::ScanStates scan;
  scan.layer = of;
  scan.subtract = config_.kind == LinearKind::kDeltaRule;
  scan.out = given_.as<float>();
  device_->scan_states(scan);
  if (config_.kind == LinearKind::kStateSpace) return gate_groups(layer, of);
  gate(layer, of);
}

}  // namespace aerie
