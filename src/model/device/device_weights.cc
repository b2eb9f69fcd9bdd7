#include "model/device/device_weights.h"

#include <algorithm>
#include <cstdint>

#include "base/errors.h"
#include "kernels/device/device.h"
#include "kv/state_store.h"
#include "model/device/device_buffers.h"
#include "model/device/device_packer.h"

namespace aerie {
namespace {

constexpr int kMostHeadsPerKv = 32;

class Loader {
 public:
  explicit Loader(DevicePool& pool) : pool_(pool) {}

  Status matrix(const Linear& linear, device::Matrix& out) {
    AERIE_ASSIGN_OR_RETURN(out, device_linear(linear, pool_));
    return {};
  }
  Status vector(const std::vector<float>& values, const float*& out) {
    AERIE_ASSIGN_OR_RETURN(out, pool_.upload(values, "weights"));
    return {};
  }

  Status norm(const Norm& norm, const float*& out) {
    std::vector<float> values = norm.weight;
    values.insert(values.end(), norm.bias.begin(), norm.bias.end());
    return vector(values, out);
  }

  Status layer(const TransformerLayer& from, DeviceLayer& out) {
    if (from.linear.any()) {
      AERIE_ASSIGN_OR_RETURN(out.linear, DeviceLinear::create(from.linear, pool_));
    } else {
      const Linear& latent = from.latent.query_latent;
      for (const Linear* input : {latent.weight.n > 0 ? &latent : &from.q, &from.k, &from.v}) {
        if (input->weight.n == 0) continue;
        AERIE_RETURN_IF_ERROR(matrix(*input, out.inputs.emplace_back()));
      }
      AERIE_ASSIGN_OR_RETURN(out.latent, DeviceLatent::create(from, pool_));
      AERIE_RETURN_IF_ERROR(matrix(from.o, out.o));
    }
    if (from.experts.router.weight.n > 0) {
      AERIE_ASSIGN_OR_RETURN(out.experts, DeviceExperts::create(from.experts, pool_));
    }
    if (from.down.weight.n > 0) {
      AERIE_RETURN_IF_ERROR(matrix(from.gate, out.gate));
      AERIE_RETURN_IF_ERROR(matrix(from.up, out.up));
      AERIE_RETURN_IF_ERROR(matrix(from.down, out.down));
    }
    AERIE_RETURN_IF_ERROR(norm(from.attention_norm, out.attention_norm));
    AERIE_RETURN_IF_ERROR(norm(from.ffn_norm, out.ffn_norm));
    AERIE_RETURN_IF_ERROR(vector(from.attention_post_norm.weight, out.attention_post_norm));
    AERIE_RETURN_IF_ERROR(vector(from.ffn_post_norm.weight, out.ffn_post_norm));
    AERIE_RETURN_IF_ERROR(vector(from.query_norm, out.query_norm));
    AERIE_RETURN_IF_ERROR(vector(from.key_norm, out.key_norm));
    if (from.per_layer.gate.weight.n > 0) {
      AERIE_ASSIGN_OR_RETURN(out.per_layer, DevicePerLayer::create(from.per_layer, pool_));
    }
    out.output_scale = from.output_scale;
    return vector(from.sinks, out.sinks);
  }

 private:
  DevicePool& pool_;
};

// What is wrong with one layer's plan; null: nothing.
const char* what_of_layer(const Blueprint& b, const LayerPlan& plan) {
  const device::CacheShape shape = cache_shape(b.config, plan);
  if (shape.head_dim % device::kPanel != 0) return "heads of this size";
  if (plan.ffn % device::kPanel != 0) return "widths of layers that 16 does not divide";
  if (plan.head_dim > 0 && b.attention_gate) return "gated attention of several widths";
  if (shape.value_prefix > 0) return nullptr;
  if (shape.head_dim > device::kMostHeadDim && shape.head_dim != device::kWideHeadDim) {
    return "heads of this size";
  }
  if (b.config.heads / std::max(1, shape.kv_heads) > kMostHeadsPerKv) {
    return "so many queries to a key";
  }
  return nullptr;
}

const char* what_of_experts(const Blueprint& b) {
  if (!has_experts(b)) return nullptr;
  if (b.router.groups > device::kMostExpertGroups) return "so many groups of experts";
  if (b.config.experts > device::kMostExperts) return "so many experts";
  if (b.config.used_experts > device::kMostUsedExperts) return "so many experts of a token";
  if (!b.gated) return "experts without gates";
  if (b.post_norms != b.experts_beside) return "norms behind experts";
  if (b.experts_beside && (b.config.shared_ffn > 0 || b.router.corrected)) {
    return "experts of this kind beside a feed-forward";
  }
  return nullptr;
}

const char* what_of_latent(const Blueprint& b) {
  if (b.config.head_dim > device::kMostLatentDim) return "latents of this size";
  if (b.attention_sinks || b.attention_soft_cap != 0.0)
    return "latent attention with sinks or caps";
  return nullptr;
}

const char* what_of_linear(const Blueprint& b) {
  const LinearAttention& linear = b.config.linear;
  if (b.config.count_linear() == 0) return nullptr;
  if (linear.key_dim > device::kMostStateDim || linear.value_dim > device::kMostStateDim) {
    return "linear attention with heads of this size";
  }
  if (state_layout(b.config).state() > INT32_MAX) return "states of this size";
  if (b.post_norms) return "norms behind linear attention";
  if (std::ranges::any_of(b.layers, [](const LayerPlan& plan) { return plan.ffn > 0; })) {
    return "linear attention in layers of several widths";
  }
  return nullptr;
}

const char* what_is_missing(const Blueprint& b) {
  const ModelConfig& c = b.config;
  if (const char* what = what_of_experts(b); what != nullptr) return what;
  for (const LayerPlan& plan : b.layers) {
    if (const char* what = what_of_layer(b, plan); what != nullptr) return what;
  }
  if (const char* what = what_of_linear(b); what != nullptr) return what;
  if (b.norm != NormKind::kRms &&
      (has_experts(b) || c.count_linear() > 0 || c.latent.rank > 0 || b.post_norms)) {
    return "layer norms in layers of this kind";
  }
  if (b.attention_gate && b.query_key_norm == QueryKeyNorm::kRow) return "gated attention";
  if (b.per_layer_width > 0 && !b.post_norms) {
    return "inputs of each layer without norms behind branches";
  }
  if (b.layer_scales && !b.post_norms) return "scales of layers without norms behind branches";
  if (b.post_norms && b.residual_scale != 1.0) return "scaled branches with norms";
  if (b.logit_soft_cap != 0.0 && b.logit_divisor != 1.0) return "logits both capped and scaled";
  if (c.hidden % device::kPanel != 0) return "a hidden size that 16 does not divide";
  return c.latent.rank > 0 ? what_of_latent(b) : nullptr;
}

}  // namespace

Status check_device_code(const Blueprint& blueprint) {
  const char* what = what_is_missing(blueprint);
  if (what == nullptr) return {};
  return not_supported("there is no device code for {} yet ({}); it runs on the processor", what,
                       blueprint.config.family);
}

Expected<DeviceLayer> device_layer(const TransformerLayer& layer, DevicePool& pool) {
  DeviceLayer out;
  AERIE_RETURN_IF_ERROR(Loader(pool).layer(layer, out));
  return out;
}

Expected<DeviceWeights> DeviceWeights::load(const ModelFile& file, const Blueprint& blueprint,
                                            const ModelOptions& options, device::Device& device) {
  DeviceWeights weights{{}, options.layers.first, {}, nullptr, {}, {}, DevicePool(device)};
  {
    const DevicePacker packer(*options.backend, device, weights.pool);
    ModelOptions packing = options;
    packing.backend = &packer;
    packing.weight_cache.clear();
    auto loaded = TransformerWeights::load(file, blueprint, packing);
    AERIE_RETURN_IF_ERROR(packer.status());
    AERIE_RETURN_IF_ERROR(loaded.status());
    weights.host = std::move(loaded).value();
  }
  Loader loader(weights.pool);
  weights.layers.resize(weights.host.layers.size());
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    if (!options.layers.has(static_cast<int>(i))) continue;
    AERIE_RETURN_IF_ERROR(loader.layer(weights.host.layers[i], weights.layers[i]));
  }
  AERIE_RETURN_IF_ERROR(loader.matrix(weights.host.output, weights.output));
  AERIE_RETURN_IF_ERROR(loader.norm(weights.host.output_norm, weights.output_norm));
  if (blueprint.per_layer_width > 0) {
    AERIE_ASSIGN_OR_RETURN(weights.per_layer,
                           DevicePerLayerInputs::create(weights.host, weights.pool));
  }
  return weights;
}

}  // namespace aerie
