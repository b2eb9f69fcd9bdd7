#include "model/device/attention/device_latent.h"

#include <algorithm>

#include "base/errors.h"

namespace aerie {
namespace {

constexpr int kFewPairs = 8;
constexpr int64_t kMostTiles = 65535;  // blocks side by side in a launch

int stepped(int width) {
  return rounded_up(width, device::kStep);
}

// Products write whole tiles of rows.
int64_t padded(int rows) {
  return rounded_up(rows, device::kManyRows);
}

Status send(device::Device& device, DeviceMemory& to, const void* from, size_t bytes) {
  AERIE_ASSIGN_OR_RETURN(to, DeviceMemory::allocate(device, bytes, "the work of attention"));
  device.copy_in(to.as<void>(), from, bytes);
  if (!device.wait()) return internal_error("{}", device.error());
  return {};
}

}  // namespace

Expected<DeviceLatent> DeviceLatent::create(const TransformerLayer& layer, DevicePool& pool) {
  DeviceLatent out;
  const LatentAttentionWeights& latent = layer.latent;
  if (!latent.any()) return out;
  if (latent.query_latent.weight.n > 0) {
    AERIE_ASSIGN_OR_RETURN(out.queries, device_linear(layer.q, pool));
    AERIE_ASSIGN_OR_RETURN(out.query_norm, pool.upload(latent.query_norm, "weights"));
  }
  AERIE_ASSIGN_OR_RETURN(out.norm, pool.upload(latent.norm, "weights"));
  AERIE_ASSIGN_OR_RETURN(out.to_keys, device_stack(latent.to_keys, pool));
  AERIE_ASSIGN_OR_RETURN(out.to_values, device_stack(latent.to_values, pool));
  return out;
}

DeviceLatentRunner::DeviceLatentRunner(const Blueprint& blueprint, int rows, device::Device& device)
    : shape_(blueprint.config.latent),
      heads_(blueprint.config.heads),
      eps_(static_cast<float>(blueprint.norm_eps)),
      halves_(blueprint.rope_style == kernels::RopeStyle::kHalves),
      apart_(padded(rows)),
      device_(&device) {}

std::vector<DeviceLatentRunner::Part> DeviceLatentRunner::parts(const ModelConfig& config,
                                                                int most_rows) {
  const LatentAttention& shape = config.latent;
  if (shape.rank == 0) return {};
  const int64_t rows = padded(most_rows), pairs = config.heads * rows;
  const bool two = shape.query_rank > 0;
  return {
      {&DeviceLatentRunner::query_input_, two ? rows * stepped(shape.query_rank) * 2 : 0},
      {&DeviceLatentRunner::queries_, two ? pairs * shape.query_dim() * 4 : 0},
      {&DeviceLatentRunner::plain_, pairs * stepped(shape.plain) * 2},
      {&DeviceLatentRunner::given_, pairs * std::max(shape.rank, shape.value_dim) * 4},
      {&DeviceLatentRunner::attended_, pairs * stepped(shape.rank) * 2},
  };
}

int64_t DeviceLatentRunner::bytes(const Blueprint& blueprint, int rows) {
  int64_t bytes = 0;
  const std::vector<Part> all = parts(blueprint.config, rows);
  if (all.empty()) return bytes;
  for (const Part& part : all) bytes += part.bytes;
  constexpr int64_t kTables = 8;  // about, of a pair
  return bytes + blueprint.config.heads * padded(rows) * kTables;
}

Status DeviceLatentRunner::make_tiles(Tiles& out, int rows) const {
  out.rows = rows;
  std::vector<device::ExpertTile> tiles;
  std::vector<int32_t> counts = {0};
  for (int64_t first = 0; first < apart_; first += rows) {
    for (int head = 0; head < heads_; ++head) {
      tiles.push_back({head, static_cast<int32_t>(head * apart_ + first), rows});
    }
    counts.push_back(static_cast<int32_t>(tiles.size()));
  }
  AERIE_RETURN_IF_ERROR(
      send(*device_, out.tiles, tiles.data(), tiles.size() * sizeof(device::ExpertTile)));
  return send(*device_, out.counts, counts.data(), counts.size() * sizeof(int32_t));
}

Status DeviceLatentRunner::make_tables() {
  static_assert(device::kManyRows % device::kMostExpertRows == 0);
  if (heads_ * apart_ > kMostTiles * device::kMostExpertRows) {
    return not_supported(
        "a device takes at most {} tokens a pass with {} heads of latent attention",
        kMostTiles * device::kMostExpertRows / heads_, heads_);
  }
  AERIE_RETURN_IF_ERROR(make_tiles(few_, kFewPairs));
  AERIE_RETURN_IF_ERROR(make_tiles(many_, device::kMostExpertRows));
  std::vector<int32_t> from;
  for (int head = 0; head < heads_; ++head) {
    for (int64_t row = 0; row < apart_; ++row) {
      from.push_back(static_cast<int32_t>(row * heads_ + head));
    }
  }
  return send(*device_, from_, from.data(), from.size() * sizeof(int32_t));
}

Expected<DeviceLatentRunner> DeviceLatentRunner::create(const Blueprint& blueprint, int rows,
                                                        device::Device& device) {
  DeviceLatentRunner runner(blueprint, rows, device);
  if (runner.shape_.rank == 0) return runner;
  for (const Part& part : parts(blueprint.config, rows)) {
    AERIE_ASSIGN_OR_RETURN(
        runner.*part.memory,
        DeviceMemory::allocate(device, static_cast<size_t>(part.bytes), "the work of attention"));
  }
  AERIE_RETURN_IF_ERROR(runner.make_tables());
  return runner;
}

// Of each pair with its head's matrix, to given_.
void DeviceLatentRunner::multiply(const DeviceStack& stack, const Input& input, const uint16_t* x,
                                  int x_stride, const int32_t* from) const {
  const Tiles& tiles = input.most_rows <= kFewPairs ? few_ : many_;
  const int deep = (input.most_rows + tiles.rows - 1) / tiles.rows;
  device::ExpertProduct args;
  args.product.w[0] = stack.first;
  args.product.x = x;
  args.product.x_stride = x_stride;
  args.product.y = given_.as<float>();
  args.product.y_stride = stack.first.n;
  args.experts[0] = stack.all;
  args.expert_count = heads_;
  args.tiles = tiles.tiles.as<device::ExpertTile>();
  args.tile_count = tiles.counts.as<int32_t>() + deep;
  args.most_tiles = deep * heads_;
  args.tile_rows = tiles.rows;
  args.from = from;
  args.is_fixed = true;
  device_->expert_product(args);
}

// Queries of all heads, from their latent.
void DeviceLatentRunner::make_queries(const DeviceLatent& layer, const Input& input) const {
  device::NarrowRows norm;
  norm.rows = input.pass.counts + device::kRowCount;
  norm.most_rows = input.most_rows;
  norm.x = input.projected;
  norm.x_stride = input.stride;
  norm.width = shape_.query_rank;
  norm.weight = layer.query_norm;
  norm.eps = eps_;
  norm.out = query_input_.as<uint16_t>();
  norm.out_stride = stepped(shape_.query_rank);
  device_->narrow_rows(norm);
  device::Product product;
  product.w[0] = layer.queries;
  product.rows = norm.rows;
  product.most_rows = norm.most_rows;
  product.x = norm.out;
  product.x_stride = norm.out_stride;
  product.ordered = input.ordered;
  product.y = queries_.as<float>();
  product.y_stride = heads_ * shape_.query_dim();
  device_->product(product);
}

void DeviceLatentRunner::place(const DeviceLatent& layer, const Input& input, uint16_t* queries,
                               uint16_t* plane) const {
  const int width = heads_ * shape_.query_dim();
  const bool two = layer.query_norm != nullptr;
  if (two) make_queries(layer, input);
  device::NarrowHeads narrow;
  narrow.rows = input.pass.counts + device::kRowCount;
  narrow.most_rows = input.most_rows;
  narrow.heads = heads_;
  narrow.width = shape_.plain;
  narrow.x = two ? queries_.as<float>() : input.projected;
  narrow.x_row = two ? width : input.stride;
  narrow.x_head = shape_.query_dim();
  narrow.out = plain_.as<uint16_t>();
  narrow.out_row = stepped(shape_.plain);
  narrow.out_head = apart_ * narrow.out_row;
  device_->narrow_heads(narrow);
  multiply(layer.to_keys, input, narrow.out, stepped(shape_.plain), nullptr);

  device::PlaceLatent args;
  args.pass = input.pass;
  args.most_rows = input.most_rows;
  args.heads = heads_;
  args.rank = shape_.rank;
  args.rope = shape_.rope;
  args.taken = given_.as<float>();
  args.taken_apart = apart_;
  args.turning = narrow.x + shape_.plain;
  args.turning_row = narrow.x_row;
  args.turning_head = narrow.x_head;
  args.latent = input.projected + (two ? shape_.query_rank : width);
  args.latent_row = input.stride;
  args.norm = layer.norm;
  args.eps = eps_;
  args.turns = input.turns;
  args.turns_stride = input.turns_stride;
  args.halves = halves_;
  args.q = queries;
  args.plane = plane;
  device_->place_latent(args);
}

void DeviceLatentRunner::receive(device::Attend& attend) const {
  attend.out = attended_.as<uint16_t>();
  attend.out_head = stepped(shape_.rank);
  attend.out_stride = heads_ * attend.out_head;
}

void DeviceLatentRunner::finish(const DeviceLatent& layer, const Input& input, uint16_t* out,
                                int stride) const {
  multiply(layer.to_values, input, attended_.as<uint16_t>(), stepped(shape_.rank),
           from_.as<int32_t>());
  device::NarrowHeads narrow;
  narrow.rows = input.pass.counts + device::kRowCount;
  narrow.most_rows = input.most_rows;
  narrow.heads = heads_;
  narrow.width = shape_.value_dim;
  narrow.x = given_.as<float>();
  narrow.x_row = shape_.value_dim;
  narrow.x_head = apart_ * shape_.value_dim;
  narrow.out = out;
  narrow.out_row = stride;
  narrow.out_head = shape_.value_dim;
  device_->narrow_heads(narrow);
}

}  // namespace aerie
