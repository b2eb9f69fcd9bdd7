#include "model/device/device_buffers.h"

#include <algorithm>

#include "model/device/attention/device_latent.h"
#include "model/device/device_experts.h"
#include "model/device/device_top.h"
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
int projected_width(const Blueprint& blueprint) {
  const ModelConfig& config = blueprint.config;
  const LatentAttention& latent = config.latent;
  const int gated = blueprint.attention_gate ? 2 : 1;
  if (latent.rank == 0) return gated * config.q_width() + 2 * config.kv_width();
  const int queries = latent.query_rank > 0 ? latent.query_rank : config.heads * latent.query_dim();
  return queries + config.head_dim;
}

}  // namespace

device::CacheShape cache_shape(const ModelConfig& config) {
  return {config.kv_heads, config.head_dim, config.latent.rank};
}

DeviceSizes::DeviceSizes(const Blueprint& blueprint, const ModelOptions& options) {
  const ModelConfig& config = blueprint.config;
  rows = rounded_up(options.max_rows, device::kManyRows);
  wanted = rounded_up(options.max_logits, device::kManyRows);
  logit_width =
      options.logit_tokens.empty() ? config.vocab : static_cast<int>(options.logit_tokens.size());
  ranks = std::min(options.ranks, logit_width);
  hidden = rounded_up(config.hidden, device::kStep);
  attended = rounded_up(config.attended_width(), device::kStep);
  ffn = rounded_up(config.ffn, device::kStep);
  panels = config.hidden / device::kPanel;
  projected = std::max(projected_width(blueprint), linear_projected_width(config));
  limits = {options.max_rows, options.max_logits, options.max_positions, config.hidden,
            device::most_tile_rows(config.heads / config.kv_heads)};
  if (config.latent.rank > 0) limits.tile_rows = 1;
  limits.state_planes = config.count_linear();
  limits.taps = config.linear.taps;
  limits.chains = std::ranges::any_of(blueprint.layers, &LayerPlan::sees_chain);
  // Of one tile of rows at least.
  const device::CacheShape shape = cache_shape(config);
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
         DeviceLatentRunner::bytes(blueprint, rows) + DeviceLinearRunner::bytes(blueprint, rows);
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
