#include "model/device/device_buffers.h"

#include <algorithm>

#include "model/device/attention/device_latent.h"
#include "model/device/device_experts.h"
#include "model/device/device_top.h"
#include "model/device/inputs/device_per_layer.h"
#include "model/device/linear/device_linear.h"

namespace aerie {
namespace {

constexpr int64_t kPartialBytes = int64_t{64} << 20;

int most_chunks(const ModelOptions& options) {
  int chunks = 1;
  while (chunks * device::kChunk < options.max_positions) chunks *= 2;
  return chunks;
}

// Of what products with a layer's input give of a row.
int projected_width(const Blueprint& blueprint, const LayerPlan& plan) {
  const ModelConfig& config = blueprint.config;
  const LatentAttention& latent = config.latent;
  const int gated = blueprint.attention_gate ? 2 : 1;
  if (latent.rank == 0) {
    const device::CacheShape shape = cache_shape(config, plan);
    return (gated * config.heads + 2 * shape.kv_heads) * shape.head_dim;
  }
  const int queries = latent.query_rank > 0 ? latent.query_rank : config.heads * latent.query_dim();
  return queries + config.head_dim;
}

// Of what attention gives of a row.
int attended_width(const ModelConfig& config, const LayerPlan& plan) {
  return config.latent.rank > 0 ? config.attended_width()
                                : config.heads * cache_shape(config, plan).head_dim;
}

// Elements of a row that all layers' widths have room in, each up to the end of the widest and with
// zeros behind it up to a step of products.
int row_stride(int widest, int width) {
  return widest - width + rounded_up(width, device::kStep);
}

}  // namespace

device::CacheShape cache_shape(const ModelConfig& config, const LayerPlan& plan) {
  return {plan.kv_heads > 0 ? plan.kv_heads : config.kv_heads,
          plan.head_dim > 0 ? plan.head_dim : config.head_dim, config.latent.rank};
}

int ffn_width(const ModelConfig& config, const LayerPlan& plan) {
  return plan.ffn > 0 ? plan.ffn : config.ffn;
}

int DeviceSizes::attended_at(const ModelConfig& config, const LayerPlan& plan) const {
  return widest_attended - attended_width(config, plan);
}

DeviceSizes::DeviceSizes(const Blueprint& blueprint, const ModelOptions& options) {
  const ModelConfig& config = blueprint.config;
  rows = rounded_up(options.max_rows, device::kManyRows);
  wanted = rounded_up(options.max_logits, device::kManyRows);
  logit_width =
      options.logit_tokens.empty() ? config.vocab : static_cast<int>(options.logit_tokens.size());
  ranks = std::min(options.ranks, logit_width);
  hidden = rounded_up(config.hidden, device::kStep);
  panels = config.hidden / device::kPanel;
  limits = {options.max_rows, options.max_logits, options.max_positions, config.hidden};
  add_layers(blueprint);
  if (config.latent.rank > 0) limits.tile_rows = 1;
  limits.state_planes = config.count_linear();
  limits.taps = config.linear.taps;
  limits.extra = per_layer_floats(blueprint, true);
  limits.chains = std::ranges::any_of(blueprint.layers, &LayerPlan::sees_chain);
  // Of one tile of rows at least.
  const device::CacheShape shape = {config.kv_heads, config.head_dim, config.latent.rank};
  const auto of = [&](int count) {
    return device::partial_floats(shape, config.heads, count, most_chunks(options));
  };
  const int rows_of_parts = std::max(options.max_rows, device::kFewRows);
  partials = std::max(of(limits.tile_rows), std::min(of(rows_of_parts), kPartialBytes / 4));
  arrived = device::arrival_counters(shape, rows, most_chunks(options));
  if (config.latent.rank > 0) arrived *= device::latent_parts(config.heads);
  const int shared = has_experts(blueprint) ? rounded_up(config.shared_ffn, device::kStep) : 0;
  const int widest = std::max(
      {hidden, attended, linear_gated_width(config), ffn, shared, config.latent.query_rank});
  ordered = std::max(device::ordered_bytes(rows, widest), device::ordered_bytes(wanted, hidden));
}

// What the widest needs.
void DeviceSizes::add_layers(const Blueprint& blueprint) {
  const ModelConfig& config = blueprint.config;
  widest_attended = config.attended_width();
  widest_ffn = config.ffn;
  attended = rounded_up(widest_attended, device::kStep);
  ffn = rounded_up(widest_ffn, device::kStep);
  projected = linear_projected_width(config);
  int per_kv = 1;
  for (const LayerPlan& plan : blueprint.layers) {
    attended = std::max(attended, row_stride(widest_attended, attended_width(config, plan)));
    ffn = std::max(ffn, row_stride(widest_ffn, ffn_width(config, plan)));
    projected = std::max(projected, projected_width(blueprint, plan));
    per_kv = std::max(per_kv, config.heads / cache_shape(config, plan).kv_heads);
  }
  limits.tile_rows = device::most_tile_rows(per_kv);
}

int64_t DeviceSizes::bytes(const Blueprint& blueprint, const ModelOptions& options) const {
  const ModelConfig& config = blueprint.config;
  const int64_t row = int64_t{2} * (hidden + attended + ffn + config.q_width()) +
                      int64_t{4} * (panels + projected) +
                      (blueprint.post_norms ? int64_t{4} * config.hidden : 0) +
                      int64_t{4} * options.max_taps * config.hidden;
  const int64_t head = int64_t{2} * hidden + int64_t{4} * (panels + logit_width + config.hidden);
  const int64_t top = DeviceTop::bytes(wanted, 1, ranks) + wanted * (2 * ranks + 1) * 4;
  return rows * row + wanted * head + (ranks > 0 ? top : 0) + (partials + arrived) * 4 + ordered +
         PassInput::bytes(limits, blueprint.ropes) + DeviceExpertRunner::bytes(blueprint, rows) +
         DeviceLatentRunner::bytes(blueprint, rows) + DeviceLinearRunner::bytes(blueprint, rows) +
         DevicePerLayerRunner::bytes(blueprint, rows);
}

Expected<DeviceBuffers> DeviceBuffers::create(device::Device& device, const DeviceSizes& sizes,
                                              const Blueprint& blueprint,
                                              const ModelOptions& options) {
  const ModelConfig& config = blueprint.config;
  DeviceBuffers b;
  const auto make = [&](DeviceMemory& memory, int64_t rows, int64_t width,
                        int64_t element) -> Status {
    AERIE_ASSIGN_OR_RETURN(
        memory, DeviceMemory::allocate(device, static_cast<size_t>(rows * width * element),
                                       "the work of passes"));
    return {};
  };
  const int64_t rows = sizes.rows, wanted = sizes.wanted;
  AERIE_RETURN_IF_ERROR(make(b.input, rows, sizes.hidden, 2));
  AERIE_RETURN_IF_ERROR(make(b.squares, rows, sizes.panels, 4));
  AERIE_RETURN_IF_ERROR(make(b.projected, rows, sizes.projected, 4));
  AERIE_RETURN_IF_ERROR(make(b.queries, rows, config.q_width(), 2));
  AERIE_RETURN_IF_ERROR(make(b.attended, rows, sizes.attended, 2));
  AERIE_RETURN_IF_ERROR(make(b.gated, rows, sizes.ffn, 2));
  if (blueprint.post_norms) AERIE_RETURN_IF_ERROR(make(b.branch, rows, config.hidden, 4));
  AERIE_RETURN_IF_ERROR(make(b.partials, sizes.partials, 1, 4));
  AERIE_RETURN_IF_ERROR(make(b.arrived, sizes.arrived, 1, 4));
  AERIE_RETURN_IF_ERROR(make(b.ordered, sizes.ordered, 1, 1));
  AERIE_RETURN_IF_ERROR(make(b.head_input, wanted, sizes.hidden, 2));
  AERIE_RETURN_IF_ERROR(make(b.head_squares, wanted, sizes.panels, 4));
  AERIE_RETURN_IF_ERROR(make(b.logits, wanted, sizes.logit_width, 4));
  AERIE_RETURN_IF_ERROR(make(b.states, wanted, config.hidden, 4));
  AERIE_RETURN_IF_ERROR(make(b.taps, rows * options.max_taps, config.hidden, 4));
  // Values and numbers of parts, and how many have come; of rows, values and numbers.
  AERIE_RETURN_IF_ERROR(make(b.best_parts, wanted, 2 * device::kBestParts + 1, 4));
  AERIE_RETURN_IF_ERROR(make(b.best, wanted, 2, 4));
  if (sizes.ranks > 0) AERIE_RETURN_IF_ERROR(make(b.top, wanted, 2 * sizes.ranks + 1, 4));
  return b;
}

}  // namespace aerie
