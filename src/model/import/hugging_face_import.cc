#include "model/import/hugging_face_import.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numbers>

#include "format/text.h"
#include "model/import/metadata_reader.h"

namespace aerie {
namespace {

// GGUF keeps sizes in 32 bits; every reader checks the value for what it means.
constexpr int64_t kMaxInteger = std::numeric_limits<int32_t>::max();
// What a configuration may ask to be made for each layer and for each pair of a head's dimensions.
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxExperts = 1 << 16;
constexpr int64_t kMaxHeadDim = 4096;

constexpr const char* kWindow = "sliding_window";

bool is_positive(double value) {
  const bool fits = value <= double{std::numeric_limits<float>::max()};
  return fits && static_cast<float>(value) > 0.0f;
}

}  // namespace

Expected<double> positive_number(const JsonObject& object, std::string_view key,
                                 std::optional<double> fallback) {
  AERIE_ASSIGN_OR_RETURN(const double value,
                         fallback ? object.number(key, *fallback) : object.number(key));
  if (!is_positive(value)) {
    return object.error(StatusCode::kInvalidData, key, "is {}, not a positive number of 32 bits",
                        value);
  }
  return value;
}

Expected<HuggingFaceImport> HuggingFaceImport::create(Json config, const std::string& file) {
  auto json = std::make_shared<const Json>(std::move(config));
  AERIE_ASSIGN_OR_RETURN(JsonObject whole, JsonObject::view(*json, file));
  JsonObject text = whole;
  if (whole.has("text_config")) {
    AERIE_ASSIGN_OR_RETURN(text, whole.object("text_config"));
  }
  return HuggingFaceImport(std::move(json), std::move(whole), std::move(text));
}

bool HuggingFaceImport::is_null(std::string_view key) const {
  return config_.json().contains(key) && !config_.has(key);
}

Expected<int64_t> HuggingFaceImport::sliding_window(int64_t usual) const {
  return config_.integer(kWindow, is_null(kWindow) ? 0 : usual);
}

void HuggingFaceImport::set_architecture(std::string_view name) {
  architecture_ = name;
  metadata_.add_string("general.architecture", architecture_);
}

void HuggingFaceImport::add_integer(std::string_view key, int64_t value, std::string_view from) {
  metadata_.add_u32(full(key), static_cast<uint32_t>(value));
  key_origins_[full(key)] = from;
}
void HuggingFaceImport::add_number(std::string_view key, double value) {
  metadata_.add_f32(full(key), static_cast<float>(value));
}
void HuggingFaceImport::add_text(std::string_view key, std::string_view value) {
  metadata_.add_string(full(key), std::string(value));
}
void HuggingFaceImport::add_flag(std::string_view key, bool value) {
  metadata_.add_bool(full(key), value);
}
void HuggingFaceImport::add_flags(std::string_view key, const std::vector<bool>& values) {
  metadata_.add_bools(full(key), values);
}

void HuggingFaceImport::add_integers(std::string_view key, const std::vector<int32_t>& values,
                                     std::string_view from) {
  metadata_.add_i32s(full(key), values);
  key_origins_[full(key)] = from;
}

Status HuggingFaceImport::copy_number(std::string_view from, std::string_view key,
                                      double fallback) {
  AERIE_ASSIGN_OR_RETURN(const double value, positive_number(config_, from, fallback));
  add_number(key, value);
  return {};
}

Status HuggingFaceImport::copy_sizes(const SizeNames& names) {
  AERIE_ASSIGN_OR_RETURN(layers_, config_.integer_in(names.layers, 1, kMaxLayers));
  AERIE_ASSIGN_OR_RETURN(const int64_t hidden, config_.integer_in(names.hidden, 1, kMaxInteger));
  AERIE_ASSIGN_OR_RETURN(heads_, config_.integer_in(names.heads, 1, kMaxInteger));
  kv_heads_ = heads_;
  if (config_.has(names.kv_heads)) {
    AERIE_ASSIGN_OR_RETURN(kv_heads_, config_.integer_in(names.kv_heads, 1, kMaxInteger));
  }
  std::string head_dim_from = "head_dim";
  if (config_.has("head_dim")) {
    AERIE_ASSIGN_OR_RETURN(head_dim_, config_.integer_in("head_dim", 1, kMaxHeadDim));
  } else if (names.head_dim > 0) {
    head_dim_ = names.head_dim;
  } else {
    head_dim_ = hidden / heads_;
    head_dim_from = fmt::format("{} / {}", names.hidden, names.heads);
    if (head_dim_ < 1 || head_dim_ > kMaxHeadDim) {
      return config_.error(StatusCode::kInvalidData, names.heads,
                           "is {}, which makes heads of {} dimensions from a {} of {}", heads_,
                           head_dim_, names.hidden, hidden);
    }
  }
  int64_t ffn = std::min(kMaxInteger, names.ffn_factor * hidden);
  if (names.ffn_factor == 0 || config_.has(names.ffn)) {
    AERIE_ASSIGN_OR_RETURN(ffn, config_.integer_in(names.ffn, 1, kMaxInteger));
  }
  AERIE_ASSIGN_OR_RETURN(context_, config_.integer_in(names.context, 1, kMaxInteger));
  add_integer("block_count", layers_ + predictors_, names.layers);
  if (predictors_ > 0) add_integer("nextn_predict_layers", predictors_, names.layers);
  add_integer("context_length", context_, names.context);
  add_integer("embedding_length", hidden, names.hidden);
  add_integer("feed_forward_length", ffn, names.ffn);
  add_integer("attention.head_count", heads_, names.heads);
  add_integer("attention.head_count_kv", kv_heads_, names.kv_heads);
  add_integer("attention.key_length", head_dim_, head_dim_from);
  add_integer("attention.value_length", head_dim_, head_dim_from);
  rope_dimensions_ = head_dim_;
  return {};
}

Status HuggingFaceImport::copy_llama_shape(const LlamaDefaults& defaults) {
  AERIE_RETURN_IF_ERROR(copy_sizes(defaults.sizes));
  AERIE_RETURN_IF_ERROR(
      copy_number("rms_norm_eps", "attention.layer_norm_rms_epsilon", defaults.norm_eps));
  AERIE_RETURN_IF_ERROR(require_text("hidden_act", "silu", {"silu", "swish"}));
  return add_rope(rope_parameters(), defaults.rope_base, defaults.rope_part);
}

Status HuggingFaceImport::require_text(std::string_view key, std::string_view fallback,
                                       std::initializer_list<std::string_view> accepted) const {
  AERIE_ASSIGN_OR_RETURN(const std::string_view value, config_.string(key, fallback));
  if (std::ranges::find(accepted, value) != accepted.end()) return {};
  return config_.error(StatusCode::kUnsupported, key, "is '{}'; supported: {}",
                       printable(value, 64), fmt::join(accepted, ", "));
}

const Json* HuggingFaceImport::rope_parameters() const {
  const Json* parameters = config_.find("rope_parameters");
  return parameters != nullptr ? parameters : config_.find("rope_scaling");
}

Status HuggingFaceImport::add_rope(const Json* parameters, double base, double part) {
  static const Json kNone = Json::object();
  AERIE_ASSIGN_OR_RETURN(const JsonObject rope,
                         JsonObject::view(parameters != nullptr ? *parameters : kNone,
                                          config_.file() + ": rotary embedding"));
  for (const auto& [key, value] : rope.json().items()) {
    if (value.is_object()) {
      return rope.error(StatusCode::kUnsupported, key,
                        "is an object: rotary embeddings that differ between layers are not "
                        "supported for this model_type");
    }
  }
  AERIE_ASSIGN_OR_RETURN(base, positive_number(config_, "rope_theta", base));
  AERIE_ASSIGN_OR_RETURN(base, positive_number(rope, "rope_theta", base));
  AERIE_ASSIGN_OR_RETURN(part, positive_number(config_, "partial_rotary_factor", part));
  AERIE_ASSIGN_OR_RETURN(part, positive_number(rope, "partial_rotary_factor", part));
  rope_dimensions_ = static_cast<int64_t>(std::min(2.0, part) * static_cast<double>(head_dim_));
  if (rope_dimensions_ < 2 || part > 1.0) {
    return config_.error(StatusCode::kInvalidData, "partial_rotary_factor",
                         "is {}, of heads of {} dimensions", part, head_dim_);
  }
  add_integer("rope.dimension_count", rope_dimensions_, "partial_rotary_factor");

  AERIE_ASSIGN_OR_RETURN(std::string_view type, rope.string("type", "default"));
  AERIE_ASSIGN_OR_RETURN(type, rope.string("rope_type", type));
  Status status;
  if (type == "linear") {
    AERIE_ASSIGN_OR_RETURN(const double factor, positive_number(rope, "factor"));
    add_text("rope.scaling.type", "linear");
    add_number("rope.scaling.factor", factor);
  } else if (type == "ntk") {
    // bloc97 2023, "NTK-Aware Scaled RoPE": the base alone grows.
    AERIE_ASSIGN_OR_RETURN(const double factor, positive_number(rope, "factor"));
    const auto d = static_cast<double>(rope_dimensions_);
    base *= std::pow(factor, d / std::max(1.0, d - 2.0));
    if (!is_positive(base)) {
      return rope.error(StatusCode::kInvalidData, "factor", "of {} is too large", factor);
    }
  } else if (type == "yarn") {
    status = add_yarn(rope);
  } else if (type == "llama3") {
    status = add_llama3(rope, base);
  } else if (type == "longrope" || type == "su") {
    status = add_long_rope(rope);
  } else if (type != "default" && type != "dynamic") {
    // "dynamic" changes nothing within the context that the model was trained for, which is the
    // longest that is served.
    status = rope.error(
        StatusCode::kUnsupported, "rope_type",
        "is '{}'; default, linear, ntk, dynamic, yarn, llama3 and longrope are supported",
        printable(type, 64));
  }
  add_number("rope.freq_base", base);
  return status;
}

Expected<int64_t> HuggingFaceImport::original_context(const JsonObject& rope) const {
  constexpr const char* kKey = "original_max_position_embeddings";
  // Phi-3 has it beside the parameters, where transformers looks first.
  if (config_.has(kKey)) return config_.integer_in(kKey, 2, kMaxInteger);
  if (rope.has(kKey)) return rope.integer_in(kKey, 2, kMaxInteger);
  return context_;
}

Status HuggingFaceImport::add_yarn(const JsonObject& rope) {
  AERIE_ASSIGN_OR_RETURN(const int64_t original, original_context(rope));
  const double implied = static_cast<double>(context_) / static_cast<double>(original);
  AERIE_ASSIGN_OR_RETURN(const double factor, positive_number(rope, "factor", implied));
  if (factor < 1.0) {
    return rope.error(StatusCode::kInvalidData, "factor", "is {}, less than 1", factor);
  }
  AERIE_ASSIGN_OR_RETURN(const bool truncate, rope.boolean("truncate", true));
  AERIE_ASSIGN_OR_RETURN(const double fast, positive_number(rope, "beta_fast", 32.0));
  AERIE_ASSIGN_OR_RETURN(const double slow, positive_number(rope, "beta_slow", 1.0));
  // Peng et al. 2023, 2309.00071, section 3.4, with the weights that DeepSeek-V2 gave the two
  // scales. The reader multiplies by the first form itself.
  const auto magnitude = [factor](double weight) {
    return factor <= 1.0 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0;
  };
  double wanted = magnitude(1.0);
  AERIE_ASSIGN_OR_RETURN(const double scale, rope.number("mscale", 0.0));
  AERIE_ASSIGN_OR_RETURN(const double scale_all, rope.number("mscale_all_dim", 0.0));
  if (scale != 0.0 && scale_all != 0.0) wanted = magnitude(scale) / magnitude(scale_all);
  AERIE_ASSIGN_OR_RETURN(wanted, positive_number(rope, "attention_factor", wanted));

  add_text("rope.scaling.type", "yarn");
  add_number("rope.scaling.factor", factor);
  add_integer("rope.scaling.original_context_length", original, "original_max_position_embeddings");
  add_number("rope.scaling.yarn_beta_fast", fast);
  add_number("rope.scaling.yarn_beta_slow", slow);
  add_flag(kYarnTruncate, truncate);
  add_number("rope.scaling.attn_factor", wanted / (1.0 + 0.1 * std::log(factor)));
  const double stretched = factor * static_cast<double>(original);
  if (stretched > static_cast<double>(context_) && stretched < static_cast<double>(kMaxInteger)) {
    context_ = static_cast<int64_t>(stretched);
    add_integer("context_length", context_, "original_max_position_embeddings times factor");
  }
  return {};
}

// Llama 3.1's: long wavelengths are stretched, short ones stay, those between by degrees.
Status HuggingFaceImport::add_llama3(const JsonObject& rope, double base) {
  AERIE_ASSIGN_OR_RETURN(const int64_t original, original_context(rope));
  AERIE_ASSIGN_OR_RETURN(const double factor, positive_number(rope, "factor", 8.0));
  AERIE_ASSIGN_OR_RETURN(const double low, positive_number(rope, "low_freq_factor", 1.0));
  AERIE_ASSIGN_OR_RETURN(const double high, positive_number(rope, "high_freq_factor", 4.0));
  if (high <= low) {
    return rope.error(StatusCode::kInvalidData, "high_freq_factor",
                      "is not greater than low_freq_factor");
  }
  std::vector<float> factors;
  for (int64_t i = 0; i < rope_dimensions_ / 2; ++i) {
    const double frequency =
        std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(rope_dimensions_));
    const double turns = static_cast<double>(original) * frequency / (2.0 * std::numbers::pi);
    const double share = std::clamp((turns - low) / (high - low), 0.0, 1.0);
    factors.push_back(static_cast<float>(1.0 / ((1.0 - share) / factor + share)));
  }
  add_tensor("rope_freqs.weight", std::move(factors));
  return {};
}

Status HuggingFaceImport::add_long_rope(const JsonObject& rope) {
  AERIE_ASSIGN_OR_RETURN(const int64_t original, original_context(rope));
  for (const auto& [key, tensor] : {std::pair("short_factor", "rope_factors_short.weight"),
                                    std::pair("long_factor", "rope_factors_long.weight")}) {
    AERIE_ASSIGN_OR_RETURN(const std::vector<double> factors, rope.numbers(key));
    if (std::cmp_not_equal(factors.size(), rope_dimensions_ / 2)) {
      return rope.error(StatusCode::kInvalidData, key, "has {} entries for {} pairs of dimensions",
                        factors.size(), rope_dimensions_ / 2);
    }
    if (!std::ranges::all_of(factors, is_positive)) {
      return rope.error(StatusCode::kInvalidData, key,
                        "holds something else than positive numbers");
    }
    add_tensor(tensor, std::vector<float>(factors.begin(), factors.end()));
  }
  // Ding et al. 2024, 2402.13753, as Phi-3 uses it.
  const double implied = static_cast<double>(context_) / static_cast<double>(original);
  AERIE_ASSIGN_OR_RETURN(const double factor, positive_number(rope, "factor", implied));
  const double usual =
      factor <= 1.0 ? 1.0
                    : std::sqrt(1.0 + std::log(factor) / std::log(static_cast<double>(original)));
  AERIE_ASSIGN_OR_RETURN(const double wanted, positive_number(rope, "attention_factor", usual));
  add_text("rope.scaling.type", "longrope");
  add_integer("rope.scaling.original_context_length", original, "original_max_position_embeddings");
  add_number("rope.scaling.attn_factor", wanted);
  return {};
}

Status HuggingFaceImport::add_qwen_windows() {
  AERIE_ASSIGN_OR_RETURN(const bool used, config_.boolean("use_sliding_window", false));
  if (!used) return {};
  AERIE_ASSIGN_OR_RETURN(const int64_t window, sliding_window(4096));
  AERIE_ASSIGN_OR_RETURN(const int64_t full, config_.integer("max_window_layers", 28));
  return add_windows(window, [full](int64_t i) { return i >= full; });
}

Status HuggingFaceImport::add_windows(int64_t window, std::vector<bool> layers) {
  constexpr const char* kTypes = "layer_types";
  if (config_.has(kTypes)) {
    AERIE_ASSIGN_OR_RETURN(const std::vector<std::string_view> types, config_.strings(kTypes));
    if (types.size() != layers.size()) {
      return config_.error(StatusCode::kInvalidData, kTypes, "has {} entries for {} layers",
                           types.size(), layers.size());
    }
    for (size_t i = 0; i < types.size(); ++i) {
      layers[i] = types[i] == "sliding_attention";
      if (!layers[i] && types[i] != "full_attention") {
        return config_.error(StatusCode::kUnsupported, kTypes,
                             "has '{}'; full_attention and sliding_attention are supported",
                             printable(types[i], 64));
      }
    }
  }
  if (window < 0 || window > kMaxInteger) {
    return config_.error(StatusCode::kInvalidData, kWindow, "is {}, not between 0 and {}", window,
                         kMaxInteger);
  }
  if (window == 0 || std::ranges::find(layers, true) == layers.end()) return {};
  add_integer("attention.sliding_window", window, kWindow);
  add_flags("attention.sliding_window_pattern", layers);
  return {};
}

Status HuggingFaceImport::add_experts(const ExpertNames& names) {
  // transformers 5 has one name for all families.
  constexpr const char* kCount = "num_local_experts";
  const char* count = config_.has(names.count) ? names.count : kCount;
  AERIE_ASSIGN_OR_RETURN(experts_, config_.integer_in(count, 1, kMaxExperts));
  AERIE_ASSIGN_OR_RETURN(const int64_t used, config_.integer_in(names.used, 1, experts_));
  add_integer("expert_count", experts_, count);
  add_integer("expert_used_count", used, names.used);
  if (names.ffn != nullptr) {
    AERIE_ASSIGN_OR_RETURN(const int64_t ffn, config_.integer_in(names.ffn, 1, kMaxInteger));
    add_integer("expert_feed_forward_length", ffn, names.ffn);
  }
  if (names.normalized != nullptr) {
    AERIE_ASSIGN_OR_RETURN(const bool normalized,
                           config_.boolean(names.normalized, names.usually_normalized));
    add_flag("expert_weights_norm", normalized);
  }
  const auto add = [this](const char* from, const char* to) {
    add_rule("model.layers.{}." + std::string(from), "blk.{}." + std::string(to));
  };
  add(names.router, "ffn_gate_inp");
  if (names.gate == nullptr) return {};
  add(names.gate, "ffn_gate_exps");
  add(names.up, "ffn_up_exps");
  add(names.down, "ffn_down_exps");
  return {};
}

Status HuggingFaceImport::add_shared_expert() {
  constexpr const char* kShared = "shared_expert_intermediate_size";
  AERIE_ASSIGN_OR_RETURN(const int64_t shared, config_.integer_in(kShared, 1, kMaxInteger));
  add_integer("expert_shared_feed_forward_length", shared, kShared);
  add_rule("model.layers.{}.mlp.shared_expert.gate_proj", "blk.{}.ffn_gate_shexp");
  add_rule("model.layers.{}.mlp.shared_expert.up_proj", "blk.{}.ffn_up_shexp");
  add_rule("model.layers.{}.mlp.shared_expert.down_proj", "blk.{}.ffn_down_shexp");
  add_rule("model.layers.{}.mlp.shared_expert_gate", "blk.{}.ffn_gate_inp_shexp");
  return {};
}

Status HuggingFaceImport::add_linear_attention(bool tiled) {
  constexpr int64_t kMostHeads = 4096;
  const auto read = [this](const char* from, int64_t most, int& into) {
    AERIE_ASSIGN_OR_RETURN(const int64_t value, config_.integer_in(from, 1, most));
    into = static_cast<int>(value);
    return Status();
  };
  constexpr const char *kKeyHeads = "linear_num_key_heads", *kHeads = "linear_num_value_heads";
  AERIE_RETURN_IF_ERROR(read(kKeyHeads, kMostHeads, linear_.key_heads));
  AERIE_RETURN_IF_ERROR(read(kHeads, kMostHeads, linear_.heads));
  AERIE_RETURN_IF_ERROR(read("linear_key_head_dim", kMaxHeadDim, linear_.key_dim));
  AERIE_RETURN_IF_ERROR(read("linear_value_head_dim", kMaxHeadDim, linear_.value_dim));
  AERIE_RETURN_IF_ERROR(read("linear_conv_kernel_dim", 64, linear_.taps));
  if (linear_.heads % linear_.key_heads != 0) {
    return config_.error(StatusCode::kInvalidData, kKeyHeads, "of {} does not divide the {} heads",
                         linear_.key_heads, linear_.heads);
  }
  linear_.tiled = tiled;
  add_integer("ssm.conv_kernel", linear_.taps, "linear_conv_kernel_dim");
  add_integer("ssm.state_size", linear_.key_dim, "linear_key_head_dim");
  add_integer("ssm.group_count", linear_.key_heads, kKeyHeads);
  add_integer("ssm.time_step_rank", linear_.heads, kHeads);
  add_integer("ssm.inner_size", linear_.v_width(), "linear_value_head_dim");
  return {};
}

Status HuggingFaceImport::set_linear_attention(const LinearAttention& linear,
                                               const std::vector<bool>& layers,
                                               std::string_view from) {
  if (std::ranges::find(layers, false) == layers.end()) {
    return config_.error(StatusCode::kUnsupported, from,
                         "has no layer with attention, which is not supported");
  }
  linear_ = linear;
  std::vector<int32_t> heads;
  for (const bool is_linear : layers) {
    heads.push_back(is_linear ? 0 : static_cast<int32_t>(kv_heads_));
  }
  add_integers("attention.head_count_kv", heads, from);
  return {};
}

Expected<std::vector<bool>> HuggingFaceImport::linear_layers(
    std::string_view key, std::initializer_list<std::string_view> linear,
    std::initializer_list<std::string_view> attention) const {
  AERIE_ASSIGN_OR_RETURN(const std::vector<std::string_view> types, config_.strings(key));
  if (std::ssize(types) != layers_) {
    return config_.error(StatusCode::kInvalidData, key, "has {} entries for {} layers",
                         types.size(), layers_);
  }
  std::vector<bool> layers;
  for (const std::string_view type : types) {
    layers.push_back(std::ranges::find(linear, type) != linear.end());
    if (layers.back() || std::ranges::find(attention, type) != attention.end()) continue;
    return config_.error(StatusCode::kUnsupported, key, "has '{}'; {} and {} are supported",
                         printable(type, 64), fmt::join(linear, ", "), fmt::join(attention, ", "));
  }
  return layers;
}

Status HuggingFaceImport::add_rope_sections() {
  const Json* parameters = rope_parameters();
  if (parameters == nullptr) return {};
  AERIE_ASSIGN_OR_RETURN(const JsonObject rope, JsonObject::view(*parameters, config_.file()));
  const Json* sections = rope.find("mrope_section");
  if (sections == nullptr || !sections->is_array() || sections->size() > 4) return {};
  std::vector<int32_t> values;
  for (const Json& section : *sections) {
    values.push_back(section.is_number_integer() ? section.get<int32_t>() : 0);
  }
  values.resize(4);
  metadata_.add_i32s(full("rope.dimension_sections"), values);
  return {};
}

void HuggingFaceImport::add_rule(std::string_view from, std::string_view to, TensorChange change,
                                 std::string_view to_second) {
  rules_.push_back({std::string(from), std::string(to), change, std::string(to_second)});
}

void HuggingFaceImport::add_stack_rules(std::string_view gate_up, std::string_view down) {
  const std::string layer = "model.layers.{}.";
  rules_.push_back({layer + std::string(gate_up), "blk.{}.ffn_gate_exps",
                    TensorChange::kFirstHalves, "blk.{}.ffn_up_exps"});
  rules_.push_back({layer + std::string(down), "blk.{}.ffn_down_exps", TensorChange::kStack});
}

void HuggingFaceImport::add_side_stack_rules(std::string_view gate_up, std::string_view down) {
  const std::string layer = "model.layers.{}.";
  rules_.push_back({layer + std::string(gate_up), "blk.{}.ffn_gate_exps",
                    TensorChange::kEvenOutputs, "blk.{}.ffn_up_exps"});
  rules_.push_back({layer + std::string(down), "blk.{}.ffn_down_exps", TensorChange::kSideStack});
}

void HuggingFaceImport::add_llama_rules(bool turned) {
  add_rule("model.embed_tokens", "token_embd");
  add_rule("model.norm", "output_norm");
  add_rule("lm_head", "output");
  add_rule("model.layers.{}.input_layernorm", "blk.{}.attn_norm");
  add_rule("model.layers.{}.post_attention_layernorm", "blk.{}.ffn_norm");
  add_rule("model.layers.{}.self_attn.q_proj", "blk.{}.attn_q",
           turned ? TensorChange::kTurnQueries : TensorChange::kNone);
  add_rule("model.layers.{}.self_attn.k_proj", "blk.{}.attn_k",
           turned ? TensorChange::kTurnKeys : TensorChange::kNone);
  add_rule("model.layers.{}.self_attn.v_proj", "blk.{}.attn_v");
  add_rule("model.layers.{}.self_attn.o_proj", "blk.{}.attn_output");
  add_rule("model.layers.{}.mlp.gate_proj", "blk.{}.ffn_gate");
  add_rule("model.layers.{}.mlp.up_proj", "blk.{}.ffn_up");
  add_rule("model.layers.{}.mlp.down_proj", "blk.{}.ffn_down");
  pass_over_suffix("rotary_emb.inv_freq");  // of old files; the configuration says it too
  pass_over_predictors();
}

void HuggingFaceImport::require_biases(std::initializer_list<std::string_view> from) {
  required_biases_.insert(required_biases_.end(), from.begin(), from.end());
}

void HuggingFaceImport::let_layers_lack(std::string_view from, std::vector<bool> lacks) {
  lacking_.insert_or_assign(std::string(from), std::move(lacks));
}

bool HuggingFaceImport::may_lack(std::string_view from, int64_t layer) const {
  const auto found = lacking_.find(from);
  return found != lacking_.end() && found->second[static_cast<size_t>(layer)];
}

Status HuggingFaceImport::require_announced_biases() {
  AERIE_ASSIGN_OR_RETURN(const bool attention, config_.boolean("attention_bias", false));
  AERIE_ASSIGN_OR_RETURN(const bool feed_forward, config_.boolean("mlp_bias", false));
  if (attention) {
    require_biases({"model.layers.{}.self_attn.q_proj", "model.layers.{}.self_attn.k_proj",
                    "model.layers.{}.self_attn.v_proj", "model.layers.{}.self_attn.o_proj"});
  }
  if (feed_forward) {
    require_biases({"model.layers.{}.mlp.gate_proj", "model.layers.{}.mlp.up_proj",
                    "model.layers.{}.mlp.down_proj"});
  }
  return {};
}

void HuggingFaceImport::rename_prefix(std::string_view from, std::string_view to) {
  prefixes_.emplace_back(from, to);
}
void HuggingFaceImport::rename_suffix(std::string_view from, std::string_view to) {
  suffixes_.emplace_back(from, to);
}
void HuggingFaceImport::pass_over_prefix(std::string_view prefix) {
  passed_prefixes_.emplace_back(prefix);
}
void HuggingFaceImport::pass_over_predictors() {
  constexpr int64_t kMost = 64;
  pass_over_prefix("mtp.");
  pass_over_prefix("model.mtp_layers.");
  const Expected<int64_t> modules = config_.integer("num_nextn_predict_layers", 0);
  const int64_t count = modules.ok() ? std::min(*modules, kMost) : 0;
  for (int64_t i = predictors_; i < count; ++i) {
    pass_over_prefix(fmt::format("model.layers.{}.", layers_ + i));
  }
}

void HuggingFaceImport::pass_over_suffix(std::string_view suffix) {
  passed_suffixes_.emplace_back(suffix);
}
void HuggingFaceImport::add_tensor(std::string name, std::vector<float> values) {
  made_.emplace_back(std::move(name), std::move(values));
}

std::string HuggingFaceImport::origin_of_key(std::string_view key) const {
  const auto origin = key_origins_.find(key);
  return origin == key_origins_.end() ? std::string(key) : origin->second + " of config.json";
}

std::string HuggingFaceImport::renamed(std::string_view name) const {
  for (const std::string& prefix : passed_prefixes_) {
    if (name.starts_with(prefix)) return {};
  }
  for (const std::string& suffix : passed_suffixes_) {
    if (name.ends_with(suffix)) return {};
  }
  std::string result(name);
  for (const auto& [from, to] : prefixes_) {
    if (!name.starts_with(from)) continue;
    result = to + std::string(name.substr(from.size()));
    break;
  }
  for (const auto& [from, to] : suffixes_) {
    if (!result.ends_with(from)) continue;
    return result.replace(result.size() - from.size(), from.size(), to);
  }
  return result;
}

std::string HuggingFaceImport::before_suffix(std::string name) const {
  for (const auto& [from, to] : suffixes_) {
    if (name.ends_with(to)) return name.replace(name.size() - to.size(), to.size(), from);
  }
  return name;
}

}  // namespace aerie
