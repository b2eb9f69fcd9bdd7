#include "model/import/metadata_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/errors.h"
#include "kernels/backend.h"

namespace aerie {
namespace {

constexpr int64_t kMaxWidth = 1 << 20;
constexpr int64_t kMaxContext = 1 << 26;
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxVocab = int64_t{1} << 24;
constexpr int64_t kMaxExperts = 1 << 16;

constexpr const char* kExperts = "expert_count";
constexpr const char* kFfn = "feed_forward_length";
constexpr const char* kKvHeads = "attention.head_count_kv";
constexpr const char* kLlamaFactors = "rope_freqs.weight";
constexpr const char* kShortFactors = "rope_factors_short.weight";
constexpr const char* kLongFactors = "rope_factors_long.weight";

}  // namespace

MetadataReader::MetadataReader(const ModelFile& file)
    : file_(file), prefix_(std::string(*file.string("general.architecture")) + ".") {}

Expected<int> MetadataReader::integer(std::string_view key, int64_t low, int64_t high) const {
  AERIE_ASSIGN_OR_RETURN(const int64_t value, file_.integer(full(key)));
  if (value < low || value > high) {
    return refuse(key, fmt::format("{} is not between {} and {}", value, low, high));
  }
  return static_cast<int>(value);
}

Expected<int> MetadataReader::integer_or(std::string_view key, int64_t low, int64_t high,
                                         int fallback) const {
  return has(key) ? integer(key, low, high) : Expected<int>(fallback);
}

Expected<double> MetadataReader::positive_or(std::string_view key, double fallback) const {
  if (!has(key)) return fallback;
  AERIE_ASSIGN_OR_RETURN(const double value, file_.number(full(key)));
  if (!std::isfinite(value) || value <= 0.0) {
    return refuse(key, fmt::format("{} is not a positive number", value));
  }
  return value;
}

Expected<bool> MetadataReader::flag_or(std::string_view key, bool fallback) const {
  return has(key) ? file_.boolean(full(key)) : Expected<bool>(fallback);
}

Expected<std::string_view> MetadataReader::text_or(std::string_view key,
                                                   std::string_view fallback) const {
  return has(key) ? file_.string(full(key)) : Expected<std::string_view>(fallback);
}

Status MetadataReader::refuse(std::string_view key, std::string_view why) const {
  return invalid_data("{}: {}: {}", file_.name(), file_.origin_of_key(full(key)), why);
}

Status MetadataReader::unsupported(std::string_view key, std::string_view why) const {
  return not_supported("{}: {}: {}", file_.name(), file_.origin_of_key(full(key)), why);
}

// Some files have a number for each layer.
Expected<int> MetadataReader::read_kv_heads(bool by_layer, ModelConfig& config) const {
  constexpr int kMost = 4096;
  AERIE_ASSIGN_OR_RETURN(const auto all,
                         integers(kKvHeads, static_cast<size_t>(config.layers), 0, kMost));
  if (!all) return integer_or(kKvHeads, 1, kMost, config.heads);
  int heads = 0;
  for (size_t i = 0; i < all->size(); ++i) {
    const int of_layer = (*all)[i];
    if (by_layer) config.linear_layers.push_back(of_layer == 0);
    if (of_layer == 0 && by_layer) continue;
    if (of_layer == 0 || (heads > 0 && of_layer != heads)) {
      return unsupported(kKvHeads, fmt::format("{} in layer {}; layers that differ in heads of "
                                               "keys are not supported in a model of this family",
                                               of_layer, i));
    }
    heads = of_layer;
  }
  if (heads == 0) return unsupported(kKvHeads, "no layer has attention");
  return heads;
}

Status MetadataReader::read_heads(bool by_layer, ModelConfig& config) const {
  AERIE_ASSIGN_OR_RETURN(config.heads, integer("attention.head_count", 1, 4096));
  AERIE_ASSIGN_OR_RETURN(config.kv_heads, read_kv_heads(by_layer, config));
  if (config.heads % config.kv_heads != 0) {
    return refuse(kKvHeads,
                  fmt::format("{} does not divide the {} heads", config.kv_heads, config.heads));
  }
  return read_lengths(config);
}

// Of keys and values.
Status MetadataReader::read_lengths(ModelConfig& config) const {
  AERIE_ASSIGN_OR_RETURN(config.head_dim, integer_or("attention.key_length", 1, kMaxWidth,
                                                     config.hidden / config.heads));
  AERIE_ASSIGN_OR_RETURN(const int value_dim,
                         integer_or("attention.value_length", 1, kMaxWidth, config.head_dim));
  if (value_dim != config.head_dim) {
    return unsupported("attention.value_length", "keys and values of different lengths");
  }
  return check_head_dim("attention.key_length", config.head_dim);
}

Status MetadataReader::check_head_dim(std::string_view key, int head_dim) const {
  if (head_dim > 0 && head_dim % 16 == 0 && head_dim <= kernels::kMaxHeadDim) return {};
  return unsupported(
      key, fmt::format("heads of {} dimensions; multiples of 16 up to {} are supported", head_dim,
                       kernels::kMaxHeadDim));
}

Status MetadataReader::read_latent_heads(ModelConfig& config) const {
  LatentAttention& latent = config.latent;
  AERIE_ASSIGN_OR_RETURN(config.heads, integer("attention.head_count", 1, 4096));
  AERIE_ASSIGN_OR_RETURN(latent.rank, integer("attention.kv_lora_rank", 1, kMaxWidth));
  AERIE_ASSIGN_OR_RETURN(latent.query_rank, integer_or("attention.q_lora_rank", 0, kMaxWidth, 0));
  AERIE_ASSIGN_OR_RETURN(latent.rope, integer("rope.dimension_count", 2, kMaxWidth));
  // Older files have heads' lengths where newer ones have those of what the cache holds.
  const bool newer = has("attention.key_length_mla");
  const char* query_key = newer ? "attention.key_length_mla" : "attention.key_length";
  AERIE_ASSIGN_OR_RETURN(const int query_dim, integer(query_key, 1, kMaxWidth));
  latent.plain = query_dim - latent.rope;
  if (latent.plain < 1) {
    return refuse(query_key, fmt::format("{}, of which {} turn", query_dim, latent.rope));
  }
  AERIE_ASSIGN_OR_RETURN(
      latent.value_dim,
      integer(newer ? "attention.value_length_mla" : "attention.value_length", 1, kMaxWidth));
  config.kv_heads = 1;
  config.head_dim = latent.rank + latent.rope;
  if (latent.rank % 16 != 0 || latent.rope % 16 != 0 || config.head_dim > kernels::kMaxLongKey) {
    return unsupported("attention.kv_lora_rank",
                       fmt::format("a latent of {} and {} dimensions that turn; multiples of 16 up "
                                   "to {} together are supported",
                                   latent.rank, latent.rope, kernels::kMaxLongKey));
  }
  return {};
}

Expected<Blueprint> MetadataReader::read_sizes() const {
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, read_all_sizes());
  if (blueprint.config.experts != 0) {
    return unsupported(kExperts, "mixtures of experts in a model of this family");
  }
  return blueprint;
}

Expected<Blueprint> MetadataReader::read_all_sizes(Heads heads) const {
  Blueprint blueprint;
  ModelConfig& config = blueprint.config;
  config.family = prefix_.substr(0, prefix_.size() - 1);
  if (const auto name = file_.string("general.name"); name.ok()) config.name = std::string(*name);
  AERIE_ASSIGN_OR_RETURN(config.layers, integer("block_count", 1, kMaxLayers));
  AERIE_ASSIGN_OR_RETURN(config.hidden, integer("embedding_length", 1, kMaxWidth));
  // Where all layers have experts, files may leave it out.
  if (heads == Heads::kVaried) {
    AERIE_RETURN_IF_ERROR(read_varied_sizes(blueprint));
  } else if (has(kFfn) || !has(kExperts)) {
    AERIE_ASSIGN_OR_RETURN(config.ffn, integer(kFfn, 1, kMaxWidth));
  }
  if (heads != Heads::kVaried) {
    AERIE_RETURN_IF_ERROR(heads == Heads::kLatent ? read_latent_heads(config)
                                                  : read_heads(heads == Heads::kByLayer, config));
  }
  AERIE_ASSIGN_OR_RETURN(config.context, integer("context_length", 1, kMaxContext));
  AERIE_ASSIGN_OR_RETURN(blueprint.norm_eps, positive_or(has("attention.layer_norm_epsilon")
                                                             ? "attention.layer_norm_epsilon"
                                                             : "attention.layer_norm_rms_epsilon",
                                                         1e-5));
  AERIE_ASSIGN_OR_RETURN(config.experts, integer_or(kExperts, 0, kMaxExperts, 0));
  blueprint.layers.resize(static_cast<size_t>(config.layers));
  // Draft heads use the embedding of their target.
  if (file_.find_tensor("token_embd.weight") == nullptr && has("vocab_size")) {
    AERIE_ASSIGN_OR_RETURN(config.vocab, integer("vocab_size", 1, kMaxVocab));
    return blueprint;
  }
  // The rows of the head are what logits have; metadata may count otherwise.
  AERIE_ASSIGN_OR_RETURN(const TensorInfo* embedding, file_.tensor_info("token_embd.weight"));
  if (embedding->shape[1] > kMaxVocab) {
    return refuse("vocab_size",
                  fmt::format("token_embd.weight has shape {}", shape_to_string(embedding->shape)));
  }
  config.vocab = static_cast<int>(embedding->shape[1]);
  return blueprint;
}

Expected<Blueprint> MetadataReader::read_llama_shape() const {
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, read_sizes());
  return add_llama_shape(std::move(blueprint));
}

Expected<Blueprint> MetadataReader::read_expert_shape(bool normalized) const {
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, read_all_sizes());
  AERIE_RETURN_IF_ERROR(read_expert_sizes(blueprint));
  AERIE_RETURN_IF_ERROR(read_softmax_router(normalized, blueprint));
  return add_llama_shape(std::move(blueprint));
}

Expected<Blueprint> MetadataReader::read_hybrid_shape() const {
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, read_all_sizes(Heads::kByLayer));
  if (blueprint.config.experts > 0) AERIE_RETURN_IF_ERROR(read_expert_sizes(blueprint));
  return add_llama_shape(std::move(blueprint));
}

Status MetadataReader::read_varied_sizes(Blueprint& blueprint) const {
  ModelConfig& config = blueprint.config;
  const auto layers = static_cast<size_t>(config.layers);
  blueprint.layers.resize(layers);
  AERIE_ASSIGN_OR_RETURN(const std::vector<int> widths, by_layer(kFfn, layers, 1, kMaxWidth));
  AERIE_ASSIGN_OR_RETURN(config.heads, integer("attention.head_count", 1, 4096));
  AERIE_ASSIGN_OR_RETURN(const std::vector<int> heads, by_layer(kKvHeads, layers, 1, config.heads));
  for (size_t i = 0; i < layers; ++i) {
    if (config.heads % heads[i] != 0) {
      return refuse(kKvHeads,
                    fmt::format("{} does not divide the {} heads", heads[i], config.heads));
    }
    blueprint.layers[i].ffn = widths[i];
    blueprint.layers[i].kv_heads = heads[i];
  }
  config.ffn = *std::ranges::max_element(widths);
  config.kv_heads = *std::ranges::max_element(heads);
  return read_lengths(config);
}

Expected<Blueprint> MetadataReader::read_varied_shape() const {
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, read_all_sizes(Heads::kVaried));
  if (blueprint.config.experts > 0) AERIE_RETURN_IF_ERROR(read_expert_sizes(blueprint));
  return blueprint;
}

Expected<Blueprint> MetadataReader::read_latent_shape() const {
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, read_all_sizes(Heads::kLatent));
  if (blueprint.config.experts > 0) AERIE_RETURN_IF_ERROR(read_expert_sizes(blueprint));
  return add_llama_shape(std::move(blueprint));
}

Status MetadataReader::drop_predictors(Blueprint& blueprint) const {
  AERIE_ASSIGN_OR_RETURN(blueprint.predictors,
                         integer_or("nextn_predict_layers", 0, blueprint.config.layers - 1, 0));
  blueprint.config.layers -= blueprint.predictors;
  blueprint.layers.resize(static_cast<size_t>(blueprint.config.layers));
  return {};
}

Status MetadataReader::read_expert_sizes(Blueprint& blueprint) const {
  ModelConfig& config = blueprint.config;
  if (config.experts == 0) return refuse(kExperts, "0, of a family with experts");
  AERIE_ASSIGN_OR_RETURN(config.used_experts, integer("expert_used_count", 1, config.experts));
  AERIE_ASSIGN_OR_RETURN(config.expert_ffn,
                         integer_or("expert_feed_forward_length", 1, kMaxWidth, config.ffn));
  AERIE_ASSIGN_OR_RETURN(config.shared_ffn,
                         integer_or("expert_shared_feed_forward_length", 0, kMaxWidth, 0));
  for (size_t i = 0; i < blueprint.layers.size(); ++i) {
    const std::string name = fmt::format("blk.{}.ffn_gate_inp.weight", i);
    blueprint.layers[i].experts = file_.find_tensor(name) != nullptr;
  }
  return {};
}

Status MetadataReader::read_softmax_router(bool normalized, Blueprint& blueprint) const {
  AERIE_ASSIGN_OR_RETURN(blueprint.router.normalized, flag_or("expert_weights_norm", normalized));
  constexpr const char* kScale = "expert_weights_scale";
  AERIE_ASSIGN_OR_RETURN(const double scale, positive_or(kScale, 1.0));
  if (scale != 1.0) return unsupported(kScale, fmt::format("experts' weights times {}", scale));
  constexpr const char* kRouter = "expert_gating_func";
  constexpr int kSoftmax = 1, kSoftmaxOfChosen = 3;
  AERIE_ASSIGN_OR_RETURN(const int router, integer_or(kRouter, 0, 1 << 16, kSoftmax));
  if (router == kSoftmaxOfChosen) {
    blueprint.router.normalized = true;
  } else if (router != kSoftmax) {
    return unsupported(kRouter, fmt::format("the router {}; softmax ({}) and softmax of the chosen "
                                            "({}) are supported",
                                            router, kSoftmax, kSoftmaxOfChosen));
  }
  return {};
}

Expected<LinearAttention> MetadataReader::read_linear_attention(bool tiled) const {
  constexpr int64_t kMostHeads = 4096, kMostTaps = 64;
  LinearAttention linear;
  linear.tiled = tiled;
  AERIE_ASSIGN_OR_RETURN(linear.heads, integer("ssm.time_step_rank", 1, kMostHeads));
  AERIE_ASSIGN_OR_RETURN(linear.key_heads, integer("ssm.group_count", 1, kMostHeads));
  AERIE_ASSIGN_OR_RETURN(linear.key_dim, integer("ssm.state_size", 1, kMaxWidth));
  AERIE_ASSIGN_OR_RETURN(const int values, integer("ssm.inner_size", 1, kMaxWidth));
  AERIE_ASSIGN_OR_RETURN(linear.taps, integer("ssm.conv_kernel", 2, kMostTaps));
  if (linear.heads % linear.key_heads != 0) {
    return refuse("ssm.group_count",
                  fmt::format("{} does not divide the {} heads", linear.key_heads, linear.heads));
  }
  linear.value_dim = values / linear.heads;
  if (linear.value_dim * linear.heads != values) {
    return refuse("ssm.inner_size",
                  fmt::format("{} is not a multiple of the {} heads", values, linear.heads));
  }
  constexpr int kLanes = kernels::kStateLanes, kMost = 256;
  for (const int width : {linear.key_dim, linear.value_dim}) {
    if (width % kLanes == 0 && width <= kMost) continue;
    return unsupported("ssm.state_size",
                       fmt::format("heads of {} dimensions; multiples of {} up to {} are supported",
                                   width, kLanes, kMost));
  }
  return linear;
}

Expected<Blueprint> MetadataReader::add_llama_shape(Blueprint blueprint) const {
  AERIE_ASSIGN_OR_RETURN(RopeConfig rope, read_rope(blueprint.config));
  blueprint.ropes.push_back(std::move(rope));
  AERIE_RETURN_IF_ERROR(read_windows(1, blueprint));
  return blueprint;
}

Status MetadataReader::read_factors(const char* tensor, std::vector<float>& factors,
                                    int pairs) const {
  AERIE_ASSIGN_OR_RETURN(const TensorData data, file_.read(tensor));
  if (data.view.shape != Shape{pairs, 1, 1, 1}) {
    return invalid_data("{}: tensor '{}' has shape {} for {} pairs", file_.name(), tensor,
                        shape_to_string(data.view.shape), pairs);
  }
  if (dtype_info(data.view.dtype).block_elements != 1) {
    return not_supported("{}: tensor '{}' is of type {}, not of floats", file_.name(), tensor,
                         dtype_info(data.view.dtype).name);
  }
  factors.resize(static_cast<size_t>(pairs));
  dequantize(data.view.dtype, data.view.data, pairs, factors.data());
  for (const float factor : factors) {
    if (!std::isfinite(factor) || factor <= 0.0f) {
      return invalid_data("{}: tensor '{}' holds {}", file_.name(), tensor, factor);
    }
  }
  return {};
}

Status MetadataReader::read_scaling(RopeConfig& rope) const {
  const char* key = "rope.scaling.type";
  const bool has_long_factors =
      file_.find_tensor(kLongFactors) != nullptr || file_.find_tensor(kShortFactors) != nullptr;
  AERIE_ASSIGN_OR_RETURN(const double legacy, positive_or("rope.scale_linear", 1.0));
  AERIE_ASSIGN_OR_RETURN(rope.factor, positive_or("rope.scaling.factor", legacy));
  AERIE_ASSIGN_OR_RETURN(rope.attention_factor, positive_or("rope.scaling.attn_factor", 1.0));
  const char* implied = has_long_factors ? "longrope" : rope.factor != 1.0 ? "linear" : "none";
  AERIE_ASSIGN_OR_RETURN(const std::string_view type, text_or(key, implied));
  if (type == "linear") {
    rope.scaling = RopeScaling::kLinear;
  } else if (type == "yarn") {
    rope.scaling = RopeScaling::kYarn;
    AERIE_ASSIGN_OR_RETURN(rope.yarn_beta_fast, positive_or("rope.scaling.yarn_beta_fast", 32.0));
    AERIE_ASSIGN_OR_RETURN(rope.yarn_beta_slow, positive_or("rope.scaling.yarn_beta_slow", 1.0));
    AERIE_ASSIGN_OR_RETURN(rope.yarn_extrapolation,
                           positive_or("rope.scaling.yarn_ext_factor", 1.0));
    if (has(kYarnTruncate)) {
      AERIE_ASSIGN_OR_RETURN(rope.yarn_truncate, file_.boolean(full(kYarnTruncate)));
    }
  } else if (type == "longrope") {
    rope.scaling = RopeScaling::kLongRope;
  } else if (type != "none") {
    return unsupported(key,
                       fmt::format("'{}'; none, linear, yarn and longrope are supported", type));
  }
  const int pairs = rope.dimensions / 2;
  if (rope.scaling == RopeScaling::kLongRope) {
    AERIE_RETURN_IF_ERROR(read_factors(kShortFactors, rope.factors, pairs));
    return read_factors(kLongFactors, rope.long_factors, pairs);
  }
  if (file_.find_tensor(kLlamaFactors) == nullptr) return {};
  if (rope.scaling != RopeScaling::kNone && rope.factor != 1.0) {
    return unsupported(key, fmt::format("'{}' together with the tensor '{}'", type, kLlamaFactors));
  }
  rope.scaling = RopeScaling::kFactors;
  return read_factors(kLlamaFactors, rope.factors, pairs);
}

Expected<RopeConfig> MetadataReader::read_rope(const ModelConfig& config) const {
  RopeConfig rope;
  AERIE_ASSIGN_OR_RETURN(rope.dimensions,
                         integer_or("rope.dimension_count", 2, config.head_dim, config.head_dim));
  if (rope.dimensions % 2 != 0) {
    return refuse("rope.dimension_count", fmt::format("{} is odd", rope.dimensions));
  }
  AERIE_ASSIGN_OR_RETURN(rope.base, positive_or("rope.freq_base", 10000.0));
  AERIE_ASSIGN_OR_RETURN(rope.original_context, integer_or("rope.scaling.original_context_length",
                                                           1, kMaxContext, config.context));
  AERIE_RETURN_IF_ERROR(read_scaling(rope));
  return rope;
}

Expected<std::optional<std::vector<bool>>> MetadataReader::flags(std::string_view key,
                                                                 size_t count) const {
  const MetadataValue* value = file_.find(full(key));
  if (value == nullptr) return std::optional<std::vector<bool>>();
  const auto* array = std::get_if<MetadataArray>(&value->value);
  const auto* flags = array == nullptr ? nullptr : std::get_if<std::vector<bool>>(array);
  if (flags == nullptr) {
    return refuse(key,
                  fmt::format("is of type {}; an array of booleans is wanted", value->type_name));
  }
  if (flags->size() != count) {
    return refuse(key, fmt::format("has {} entries for {} layers", flags->size(), count));
  }
  return std::optional(*flags);
}

Expected<std::optional<std::vector<int>>> MetadataReader::integers(std::string_view key,
                                                                   size_t count, int64_t low,
                                                                   int64_t high) const {
  const MetadataValue* value = file_.find(full(key));
  const auto* array = value == nullptr ? nullptr : std::get_if<MetadataArray>(&value->value);
  if (array == nullptr) return std::optional<std::vector<int>>();
  std::vector<int> out;
  const auto copy = [&](const auto& values) {
    if (values.size() != count) {
      return refuse(key, fmt::format("has {} entries for {} layers", values.size(), count));
    }
    for (const auto one : values) {
      if (std::cmp_less(one, low) || std::cmp_greater(one, high)) {
        return refuse(key, fmt::format("{} is not between {} and {}", one, low, high));
      }
      out.push_back(static_cast<int>(one));
    }
    return Status();
  };
  if (const auto* whole = std::get_if<std::vector<int64_t>>(array)) {
    AERIE_RETURN_IF_ERROR(copy(*whole));
  } else if (const auto* natural = std::get_if<std::vector<uint64_t>>(array)) {
    AERIE_RETURN_IF_ERROR(copy(*natural));
  } else {
    return refuse(key, fmt::format("is of type {}; integers are wanted", value->type_name));
  }
  return std::optional(std::move(out));
}

Expected<std::vector<int>> MetadataReader::by_layer(std::string_view key, size_t count, int64_t low,
                                                    int64_t high) const {
  AERIE_ASSIGN_OR_RETURN(auto all, integers(key, count, low, high));
  if (all) return *std::move(all);
  AERIE_ASSIGN_OR_RETURN(const int one, integer(key, low, high));
  return std::vector<int>(count, one);
}

Status MetadataReader::read_windows(int period, Blueprint& blueprint) const {
  AERIE_ASSIGN_OR_RETURN(const int window,
                         integer_or("attention.sliding_window", 0, kMaxContext, 0));
  AERIE_ASSIGN_OR_RETURN(const auto pattern,
                         flags("attention.sliding_window_pattern", blueprint.layers.size()));
  for (size_t i = 0; i < blueprint.layers.size(); ++i) {
    const bool by_period = period == 1 || (i + 1) % static_cast<size_t>(period) != 0;
    if (pattern ? (*pattern)[i] : by_period) blueprint.layers[i].window = window;
  }
  return {};
}

}  // namespace aerie
