#include "model/device/device_experts.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "model/device/device_packer.h"

namespace aerie {
namespace {

constexpr int kFewTileRows = 8;

// The most pairs of a tile: about twice as many as an expert has on average.
int tile_rows_of(const ModelConfig& config, int rows) {
  return rows * config.used_experts <= 4 * config.experts ? kFewTileRows : device::kMostExpertRows;
}

// Where a row's logits have that of what all rows use, and how wide rows are.
int gate_at(const ModelConfig& config) {
  return config.experts;
}
int logit_width(const ModelConfig& config) {
  return gate_at(config) + (config.shared_ffn > 0 ? 1 : 0);
}
int gated_width(const ModelConfig& config) {
  return rounded_up(config.expert_ffn, device::kStep);
}
int shared_width(const ModelConfig& config) {
  return rounded_up(config.shared_ffn, device::kStep);
}

}  // namespace

Expected<device::Matrix> device_linear(const Linear& linear, DevicePool& pool) {
  if (linear.weight.n == 0) return device::Matrix{};
  device::Matrix matrix = device_matrix(linear.weight);
  AERIE_ASSIGN_OR_RETURN(matrix.bias, pool.upload(linear.bias, "weights"));
  return matrix;
}

Expected<DeviceStack> device_stack(const std::vector<Linear>& matrices, DevicePool& pool) {
  std::vector<device::Matrix> all;
  for (const Linear& matrix : matrices) {
    AERIE_ASSIGN_OR_RETURN(all.emplace_back(), device_linear(matrix, pool));
    if (all.back().kind != all.front().kind) {
      return not_supported("experts of one layer are of several types, which devices do not take");
    }
  }
  DeviceStack stack = {all.front()};
  AERIE_ASSIGN_OR_RETURN(const void* table,
                         pool.upload_bytes(std::as_bytes(std::span(all)), "weights"));
  stack.all = static_cast<const device::Matrix*>(table);
  return stack;
}

bool has_experts(const Blueprint& blueprint) {
  return std::ranges::any_of(blueprint.layers, &LayerPlan::experts);
}

Expected<DeviceExperts> DeviceExperts::create(const ExpertWeights& weights, DevicePool& pool) {
  DeviceExperts out;
  AERIE_ASSIGN_OR_RETURN(out.router, device_linear(weights.router, pool));
  const auto vector = [&](const std::vector<float>& values, const float*& to) -> Status {
    AERIE_ASSIGN_OR_RETURN(to, pool.upload(values, "weights"));
    return {};
  };
  AERIE_RETURN_IF_ERROR(vector(weights.corrections, out.corrections));
  AERIE_RETURN_IF_ERROR(vector(weights.router_norm.weight, out.router_norm));
  AERIE_RETURN_IF_ERROR(vector(weights.norm.weight, out.norm));
  AERIE_RETURN_IF_ERROR(vector(weights.beside_post_norm.weight, out.beside_post_norm));
  AERIE_RETURN_IF_ERROR(vector(weights.post_norm.weight, out.post_norm));
  AERIE_ASSIGN_OR_RETURN(out.gate, device_stack(weights.gate, pool));
  AERIE_ASSIGN_OR_RETURN(out.up, device_stack(weights.up, pool));
  AERIE_ASSIGN_OR_RETURN(out.down, device_stack(weights.down, pool));
  if (out.gate.first.kind != out.up.first.kind) {
    return not_supported("the gates of experts are of another type than what they multiply");
  }
  AERIE_ASSIGN_OR_RETURN(out.shared_gate, device_linear(weights.shared_gate, pool));
  AERIE_ASSIGN_OR_RETURN(out.shared_up, device_linear(weights.shared_up, pool));
  AERIE_ASSIGN_OR_RETURN(out.shared_down, device_linear(weights.shared_down, pool));
  AERIE_ASSIGN_OR_RETURN(out.shared_router, device_linear(weights.shared_router, pool));
  return out;
}

DeviceExpertRunner::DeviceExpertRunner(const Blueprint& blueprint, device::Device& device)
    : config_(blueprint.config),
      router_(blueprint.router),
      scale_(static_cast<float>(blueprint.residual_scale)),
      device_(&device) {}

std::vector<DeviceExpertRunner::Part> DeviceExpertRunner::parts(const ModelConfig& config,
                                                                int most_rows) {
  const int64_t rows = most_rows, pairs = rows * config.used_experts;
  const int64_t tiles =
      device::most_expert_tiles(static_cast<int>(pairs), config.experts, kFewTileRows);
  std::vector<Part> parts = {
      {&DeviceExpertRunner::logits_, rows * logit_width(config) * 4},
      {&DeviceExpertRunner::weights_, pairs * 4},
      {&DeviceExpertRunner::chosen_, pairs * 4},
      {&DeviceExpertRunner::places_, pairs * 4},
      {&DeviceExpertRunner::pairs_, pairs * 4},
      {&DeviceExpertRunner::tiles_, tiles * static_cast<int64_t>(sizeof(device::ExpertTile))},
      {&DeviceExpertRunner::tile_count_, 4},
      {&DeviceExpertRunner::reads_, 4},
      {&DeviceExpertRunner::arrived_, 4},
      {&DeviceExpertRunner::gated_, pairs * gated_width(config) * 2},
      {&DeviceExpertRunner::given_, pairs * config.hidden * 4},
  };
  if (config.shared_ffn > 0) {
    parts.push_back({&DeviceExpertRunner::shared_gated_, rows * shared_width(config) * 2});
    parts.push_back({&DeviceExpertRunner::shared_, rows * config.hidden * 4});
  }
  return parts;
}

int64_t DeviceExpertRunner::bytes(const Blueprint& blueprint, int rows) {
  int64_t bytes = 0;
  if (!has_experts(blueprint)) return bytes;
  for (const Part& part : parts(blueprint.config, rounded_up(rows, device::kManyRows))) {
    bytes += part.bytes;
  }
  return bytes;
}

Expected<DeviceExpertRunner> DeviceExpertRunner::create(const Blueprint& blueprint, int rows,
                                                        device::Device& device) {
  DeviceExpertRunner runner(blueprint, device);
  if (!has_experts(blueprint)) return runner;
  // Products of all rows write whole tiles of them.
  for (const Part& part : parts(blueprint.config, rounded_up(rows, device::kManyRows))) {
    AERIE_ASSIGN_OR_RETURN(
        runner.*part.memory,
        DeviceMemory::allocate(device, static_cast<size_t>(part.bytes), "the work of experts"));
  }
  return runner;
}

// Logits of rows, and the order in which their experts are taken.
void DeviceExpertRunner::choose(const DeviceExperts& layer, const Input& input) {
  device::Product p = input.product;
  p.w[0] = layer.router;
  p.y = logits_.as<float>();
  p.y_stride = logit_width(config_);
  device_->product(p);
  if (layer.shared_router.n > 0) {
    p.w[0] = layer.shared_router;
    p.y += gate_at(config_);
    device_->product(p);
  }

  device::Route route;
  route.rows = input.product.rows;
  route.most_rows = input.product.most_rows;
  route.logits = logits_.as<float>();
  route.stride = logit_width(config_);
  route.experts = config_.experts;
  route.used = config_.used_experts;
  route.sigmoid = router_.score == ExpertRouter::Score::kSigmoid;
  route.corrections = layer.corrections;
  route.groups = router_.groups;
  route.used_groups = router_.used_groups;
  route.by_best_two = router_.by_best_two;
  route.normalized = router_.normalized;
  route.scale = static_cast<float>(router_.scale) * scale_;
  route.tile_rows = tile_rows_of(config_, input.product.most_rows);
  route.weights = weights_.as<float>();
  route.chosen = chosen_.as<int32_t>();
  route.places = places_.as<int32_t>();
  route.pairs = pairs_.as<int32_t>();
  route.tiles = tiles_.as<device::ExpertTile>();
  route.tile_count = tile_count_.as<int32_t>();
  route.used_experts = reads_.as<int32_t>();
  route.adds = !input.is_first;
  route.arrived = arrived_.as<unsigned>();
  device_->route(route);
}

// What pairs give.
void DeviceExpertRunner::give(const DeviceExperts& layer, const Input& input) {
  const int tile_rows = tile_rows_of(config_, input.product.most_rows);
  device::ExpertProduct gated;
  gated.product = input.product;
  gated.product.w[0] = layer.gate.first;
  gated.product.w[1] = layer.up.first;
  gated.product.matrices = 2;
  gated.product.output = device::Output::kGated;
  gated.product.out = gated_.as<uint16_t>();
  gated.product.out_stride = gated_width(config_);
  gated.experts[0] = layer.gate.all;
  gated.experts[1] = layer.up.all;
  gated.expert_count = config_.experts;
  gated.tiles = tiles_.as<device::ExpertTile>();
  gated.tile_count = tile_count_.as<int32_t>();
  gated.most_tiles = device::most_expert_tiles(input.product.most_rows * config_.used_experts,
                                               config_.experts, tile_rows);
  gated.tile_rows = tile_rows;
  gated.from = pairs_.as<int32_t>();
  device_->expert_product(gated);

  device::ExpertProduct down = gated;
  down.product = {};
  down.product.w[0] = layer.down.first;
  down.product.x = gated_.as<uint16_t>();
  down.product.x_stride = gated_width(config_);
  down.product.y = given_.as<float>();
  down.product.y_stride = config_.hidden;
  down.experts[0] = layer.down.all;
  down.experts[1] = nullptr;
  down.from = nullptr;
  device_->expert_product(down);
}

void DeviceExpertRunner::run_shared(const DeviceExperts& layer, const Input& input) {
  device::Product p = input.product;
  p.w[0] = layer.shared_gate;
  p.w[1] = layer.shared_up;
  p.matrices = 2;
  p.output = device::Output::kGated;
  p.out = shared_gated_.as<uint16_t>();
  p.out_stride = shared_width(config_);
  device_->product(p);
  device::Product down = input.product;
  down.w[0] = layer.shared_down;
  down.x = shared_gated_.as<uint16_t>();
  down.x_stride = shared_width(config_);
  down.norm = {};
  down.y = shared_.as<float>();
  down.y_stride = config_.hidden;
  device_->product(down);
}

void DeviceExpertRunner::add(const DeviceExperts& layer, const Input& input) {
  device::AddExperts add;
  add.rows = input.product.rows;
  add.most_rows = input.product.most_rows;
  add.used = config_.used_experts;
  add.weights = weights_.as<float>();
  add.places = places_.as<int32_t>();
  add.y = given_.as<float>();
  add.y_stride = config_.hidden;
  if (layer.shared_down.n > 0) {
    add.shared = shared_.as<float>();
    add.shared_stride = config_.hidden;
    add.shared_scale = scale_;
  }
  if (layer.shared_router.n > 0) {
    add.shared_gates = logits_.as<float>() + gate_at(config_);
    add.gates_stride = logit_width(config_);
  }
  add.x = input.stream;
  add.x_stride = input.stream_stride;
  add.width = config_.hidden;
  add.next = input.next;
  device_->add_experts(add);
}

void DeviceExpertRunner::add_beside(const DeviceExperts& layer, const device::AddBeside& add) {
  device::AddBeside all = add;
  all.used = config_.used_experts;
  all.weights = weights_.as<float>();
  all.places = places_.as<int32_t>();
  all.y = given_.as<float>();
  all.y_stride = config_.hidden;
  all.beside_norm = layer.beside_post_norm;
  all.expert_norm = layer.post_norm;
  device_->add_beside(all);
}

void DeviceExpertRunner::run(const DeviceExperts& layer, const Input& input) {
  choose(layer, input);
  give(layer, input);
  if (layer.shared_down.n > 0) run_shared(layer, input);
  add(layer, input);
}

}  // namespace aerie
