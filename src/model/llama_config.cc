#include <fmt/format.h>

#include <cmath>

#include "kernels/backend.h"
#include "model/llama.h"

namespace aerie {
namespace {

// Reads "llama.<key>" and holds it to a range.
class Keys {
 public:
  explicit Keys(const ModelFile& file) : file_(file) {}

  Expected<int> integer(const char* key, int64_t low, int64_t high) const {
    AERIE_ASSIGN_OR_RETURN(const int64_t value, file_.integer(full(key)));
    if (value < low || value > high) {
      return refuse(key, fmt::format("{} is not between {} and {}", value, low, high));
    }
    return static_cast<int>(value);
  }
  Expected<int> integer_or(const char* key, int64_t low, int64_t high, int fallback) const {
    return has(key) ? integer(key, low, high) : Expected<int>(fallback);
  }
  Expected<double> positive_or(const char* key, double fallback) const {
    if (!has(key)) return fallback;
    AERIE_ASSIGN_OR_RETURN(const double value, file_.number(full(key)));
    if (!std::isfinite(value) || value <= 0.0) {
      return refuse(key, fmt::format("{} is not a positive number", value));
    }
    return value;
  }
  Expected<std::string_view> text_or(const char* key, std::string_view fallback) const {
    return has(key) ? file_.string(full(key)) : Expected<std::string_view>(fallback);
  }
  bool has(const char* key) const { return file_.find(full(key)) != nullptr; }
  Status refuse(const char* key, const std::string& why) const {
    return {StatusCode::kInvalidData, fmt::format("{}: {}: {}", file_.name(), full(key), why)};
  }
  Status unsupported(const char* key, const std::string& why) const {
    return {StatusCode::kUnsupported, fmt::format("{}: {}: {}", file_.name(), full(key), why)};
  }

 private:
  static std::string full(const char* key) { return std::string("llama.") + key; }
  const ModelFile& file_;
};

constexpr int64_t kMaxWidth = 1 << 20;
constexpr int64_t kMaxContext = 1 << 26;

Status read_shape(const ModelFile& file, const Keys& keys, ModelConfig& config) {
  AERIE_ASSIGN_OR_RETURN(config.layers, keys.integer("block_count", 1, 4096));
  AERIE_ASSIGN_OR_RETURN(config.hidden, keys.integer("embedding_length", 1, kMaxWidth));
  AERIE_ASSIGN_OR_RETURN(config.ffn, keys.integer("feed_forward_length", 1, kMaxWidth));
  AERIE_ASSIGN_OR_RETURN(config.heads, keys.integer("attention.head_count", 1, 4096));
  AERIE_ASSIGN_OR_RETURN(config.kv_heads,
                         keys.integer_or("attention.head_count_kv", 1, 4096, config.heads));
  if (config.heads % config.kv_heads != 0) {
    return keys.refuse("attention.head_count_kv", fmt::format("{} does not divide the {} heads",
                                                              config.kv_heads, config.heads));
  }
  AERIE_ASSIGN_OR_RETURN(config.head_dim, keys.integer_or("attention.key_length", 1, kMaxWidth,
                                                          config.hidden / config.heads));
  AERIE_ASSIGN_OR_RETURN(const int value_dim,
                         keys.integer_or("attention.value_length", 1, kMaxWidth, config.head_dim));
  if (value_dim != config.head_dim) {
    return keys.unsupported("attention.value_length", "keys and values of different lengths");
  }
  if (config.head_dim % 16 != 0 || config.head_dim > kernels::kMaxHeadDim) {
    return keys.unsupported("attention.key_length",
                            fmt::format("heads of {} dimensions; multiples of 16 up to {} are "
                                        "supported",
                                        config.head_dim, kernels::kMaxHeadDim));
  }
  AERIE_ASSIGN_OR_RETURN(config.context, keys.integer("context_length", 1, kMaxContext));
  AERIE_ASSIGN_OR_RETURN(config.norm_eps,
                         keys.positive_or("attention.layer_norm_rms_epsilon", 1e-5));
  AERIE_ASSIGN_OR_RETURN(const int experts, keys.integer_or("expert_count", 0, 1 << 16, 0));
  if (experts != 0) return keys.unsupported("expert_count", "mixtures of experts");
  // The rows of the head are what logits have; metadata may count otherwise.
  AERIE_ASSIGN_OR_RETURN(const TensorInfo* embedding, file.tensor_info("token_embd.weight"));
  if (embedding->shape[1] > (int64_t{1} << 24)) {
    return keys.refuse("vocab_size", fmt::format("token_embd.weight has shape {}",
                                                 shape_to_string(embedding->shape)));
  }
  config.vocab = static_cast<int>(embedding->shape[1]);
  return {};
}

Status read_frequency_factors(const ModelFile& file, RopeConfig& rope) {
  AERIE_ASSIGN_OR_RETURN(const TensorData data, file.read("rope_freqs.weight"));
  const TensorView& factors = data.view;
  if (factors.shape != Shape{rope.dimensions / 2, 1, 1, 1}) {
    return {StatusCode::kInvalidData,
            fmt::format("{}: tensor 'rope_freqs.weight' has shape {} for {} pairs", file.name(),
                        shape_to_string(factors.shape), rope.dimensions / 2)};
  }
  rope.scaling = RopeScaling::kFactors;
  rope.factors.resize(static_cast<size_t>(rope.dimensions / 2));
  dequantize(factors.dtype, factors.data, factors.elements(), rope.factors.data());
  for (const float factor : rope.factors) {
    if (!std::isfinite(factor) || factor <= 0.0f) {
      return {StatusCode::kInvalidData,
              fmt::format("{}: tensor 'rope_freqs.weight' holds {}", file.name(), factor)};
    }
  }
  return {};
}

Status read_rope(const ModelFile& file, const Keys& keys, ModelConfig& config) {
  RopeConfig& rope = config.rope;
  AERIE_ASSIGN_OR_RETURN(rope.dimensions, keys.integer_or("rope.dimension_count", 2,
                                                          config.head_dim, config.head_dim));
  if (rope.dimensions % 2 != 0) {
    return keys.refuse("rope.dimension_count", fmt::format("{} is odd", rope.dimensions));
  }
  AERIE_ASSIGN_OR_RETURN(rope.base, keys.positive_or("rope.freq_base", 10000.0));
  AERIE_ASSIGN_OR_RETURN(const double legacy, keys.positive_or("rope.scale_linear", 1.0));
  AERIE_ASSIGN_OR_RETURN(rope.factor, keys.positive_or("rope.scaling.factor", legacy));
  AERIE_ASSIGN_OR_RETURN(rope.attention_factor, keys.positive_or("rope.scaling.attn_factor", 1.0));
  AERIE_ASSIGN_OR_RETURN(
      rope.original_context,
      keys.integer_or("rope.scaling.original_context_length", 1, kMaxContext, config.context));
  AERIE_ASSIGN_OR_RETURN(const std::string_view type,
                         keys.text_or("rope.scaling.type", rope.factor != 1.0 ? "linear" : "none"));
  if (type == "linear") {
    rope.scaling = RopeScaling::kLinear;
  } else if (type == "yarn") {
    rope.scaling = RopeScaling::kYarn;
    AERIE_ASSIGN_OR_RETURN(rope.yarn_beta_fast,
                           keys.positive_or("rope.scaling.yarn_beta_fast", 32.0));
    AERIE_ASSIGN_OR_RETURN(rope.yarn_beta_slow,
                           keys.positive_or("rope.scaling.yarn_beta_slow", 1.0));
    AERIE_ASSIGN_OR_RETURN(rope.yarn_extrapolation,
                           keys.positive_or("rope.scaling.yarn_ext_factor", 1.0));
  } else if (type != "none") {
    return keys.unsupported("rope.scaling.type",
                            fmt::format("'{}'; none, linear and yarn are supported", type));
  }
  if (file.find_tensor("rope_freqs.weight") == nullptr) return {};
  if (rope.scaling != RopeScaling::kNone && rope.factor != 1.0) {
    return keys.unsupported("rope.scaling.type",
                            fmt::format("'{}' together with the tensor 'rope_freqs.weight'", type));
  }
  return read_frequency_factors(file, rope);
}

}  // namespace

Expected<ModelConfig> read_llama_config(const ModelFile& file) {
  const Keys keys(file);
  ModelConfig config;
  config.family = "llama";
  if (const auto name = file.string("general.name"); name.ok()) config.name = std::string(*name);
  AERIE_RETURN_IF_ERROR(read_shape(file, keys, config));
  AERIE_RETURN_IF_ERROR(read_rope(file, keys, config));
  return config;
}

}  // namespace aerie
