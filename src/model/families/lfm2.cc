// LFM2, dense and with experts: most layers are a short convolution between two gates in the place
// of attention (Liquid AI 2025, 2511.23404). As their makers' code has it (transformers: lfm2,
// lfm2_moe).
#include <fmt/format.h>

#include <algorithm>

#include "model/import/hugging_face_import.h"
#include "model/import/metadata_reader.h"
#include "model/registry.h"

namespace aerie {
namespace {

constexpr int kMostTaps = 64;
constexpr const char* kTaps = "shortconv.l_cache";
constexpr const char* kRouter = "expert_gating_func";
constexpr int kSigmoid = 2;

Expected<Blueprint> read(const ModelFile& file) {
  const MetadataReader reader(file);
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, reader.read_hybrid_shape());
  ModelConfig& config = blueprint.config;
  config.linear.kind = LinearKind::kShortConv;
  AERIE_ASSIGN_OR_RETURN(config.linear.taps, reader.integer(kTaps, 2, kMostTaps));
  config.linear.plain = config.hidden;
  blueprint.query_key_norm = QueryKeyNorm::kHead;
  blueprint.output_norm = "token_embd_norm";
  return blueprint;
}

Expected<Blueprint> read_dense(const ModelFile& file) {
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, read(file));
  if (blueprint.config.experts == 0) return blueprint;
  return MetadataReader(file).unsupported("expert_count", "experts in a model of this family");
}

Expected<Blueprint> read_experts(const ModelFile& file) {
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, read(file));
  const MetadataReader reader(file);
  ExpertRouter& router = blueprint.router;
  AERIE_ASSIGN_OR_RETURN(const int kind, reader.integer_or(kRouter, 0, 1 << 16, kSigmoid));
  if (kind != kSigmoid) {
    return reader.unsupported(
        kRouter, fmt::format("the router {}; sigmoid ({}) is supported", kind, kSigmoid));
  }
  router.score = ExpertRouter::Score::kSigmoid;
  AERIE_ASSIGN_OR_RETURN(router.normalized, reader.flag_or("expert_weights_norm", true));
  AERIE_ASSIGN_OR_RETURN(router.scale, reader.positive_or("expert_weights_scale", 1.0));
  for (int i = 0; i < blueprint.config.layers; ++i) {
    const std::string name = fmt::format("blk.{}.exp_probs_b.bias", i);
    router.corrected |= file.find_tensor(name) != nullptr;
  }
  return blueprint;
}

// Older configurations count the layers that have attention.
Expected<std::vector<bool>> find_convolutions(const HuggingFaceImport& folder) {
  constexpr const char *kTypes = "layer_types", *kAttention = "full_attn_idxs";
  const JsonObject& config = folder.config();
  if (config.has(kTypes)) return folder.linear_layers(kTypes, {"conv"}, {"full_attention"});
  const auto count = static_cast<size_t>(folder.layers());
  if (!config.has(kAttention)) return std::vector<bool>(count, false);
  AERIE_ASSIGN_OR_RETURN(const std::vector<int64_t> indices, config.integers(kAttention));
  std::vector<bool> layers(count, true);
  for (const int64_t index : indices) {
    if (index < 0 || index >= folder.layers()) {
      return config.error(StatusCode::kInvalidData, kAttention, "has {}, of {} layers", index,
                          folder.layers());
    }
    layers[static_cast<size_t>(index)] = false;
  }
  return layers;
}

// Two thirds of what is asked for, times a factor, in whole blocks.
Status adjust_width(HuggingFaceImport& folder, const char* from) {
  constexpr int64_t kMost = 1 << 24;
  constexpr const char *kFactor = "block_ffn_dim_multiplier", *kBlock = "block_multiple_of";
  const JsonObject& config = folder.config();
  AERIE_ASSIGN_OR_RETURN(const bool adjusted, config.boolean("block_auto_adjust_ff_dim", true));
  if (!adjusted) return {};
  AERIE_ASSIGN_OR_RETURN(int64_t width, config.integer_in(from, 1, kMost));
  width = 2 * width / 3;
  if (!folder.is_null(kFactor)) {
    AERIE_ASSIGN_OR_RETURN(const double factor, positive_number(config, kFactor, 1.0));
    width = static_cast<int64_t>(
        std::min(static_cast<double>(kMost), factor * static_cast<double>(width)));
  }
  AERIE_ASSIGN_OR_RETURN(const int64_t block, config.integer_in(kBlock, 1, kMost, 256));
  folder.add_integer("feed_forward_length", (width + block - 1) / block * block, from);
  return {};
}

Status add_convolutions(HuggingFaceImport& folder) {
  constexpr const char *kWidth = "conv_L_cache", *kBias = "conv_bias";
  const JsonObject& config = folder.config();
  LinearAttention linear;
  linear.kind = LinearKind::kShortConv;
  AERIE_ASSIGN_OR_RETURN(const int64_t taps, config.integer_in(kWidth, 2, kMostTaps, 3));
  AERIE_ASSIGN_OR_RETURN(const int64_t hidden, config.integer_in("hidden_size", 1, 1 << 20));
  linear.taps = static_cast<int>(taps);
  linear.plain = static_cast<int>(hidden);
  folder.add_integer(kTaps, taps, kWidth);
  AERIE_ASSIGN_OR_RETURN(const std::vector<bool> layers, find_convolutions(folder));
  AERIE_RETURN_IF_ERROR(folder.set_linear_attention(linear, layers, "layer_types"));
  AERIE_ASSIGN_OR_RETURN(const bool biases, config.boolean(kBias, false));
  if (!biases) return {};
  folder.require_biases({"model.layers.{}.conv.conv", "model.layers.{}.conv.in_proj",
                         "model.layers.{}.conv.out_proj"});
  return {};
}

void add_rules(HuggingFaceImport& folder) {
  const auto add = [&folder](const char* from, const char* to,
                             TensorChange change = TensorChange::kNone) {
    folder.add_rule("model.layers.{}." + std::string(from), "blk.{}." + std::string(to), change);
  };
  folder.add_rule("model.embed_tokens", "token_embd");
  folder.add_rule("model.embedding_norm", "token_embd_norm");
  folder.add_rule("lm_head", "output");
  add("operator_norm", "attn_norm");
  add("ffn_norm", "ffn_norm");
  add("self_attn.q_proj", "attn_q");
  add("self_attn.k_proj", "attn_k");
  add("self_attn.v_proj", "attn_v");
  add("self_attn.out_proj", "attn_output");
  add("self_attn.q_layernorm", "attn_q_norm");
  add("self_attn.k_layernorm", "attn_k_norm");
  add("conv.in_proj", "shortconv.in_proj");
  add("conv.conv", "shortconv.conv", TensorChange::kHeadChannels);
  add("conv.out_proj", "shortconv.out_proj");
  add("feed_forward.w1", "ffn_gate");
  add("feed_forward.w2", "ffn_down");
  add("feed_forward.w3", "ffn_up");
}

// One of the two keys decides, and tied is the usual.
Status drop_tied_output(HuggingFaceImport& folder) {
  const JsonObject& config = folder.config();
  AERIE_ASSIGN_OR_RETURN(bool tied, config.boolean("tie_word_embeddings", true));
  AERIE_ASSIGN_OR_RETURN(tied, config.boolean("tie_embedding", tied));
  if (tied) folder.pass_over_prefix("lm_head.");
  return {};
}

Status import_layers(HuggingFaceImport& folder, const char* width) {
  AERIE_RETURN_IF_ERROR(folder.copy_sizes({.ffn = width}));
  AERIE_RETURN_IF_ERROR(folder.copy_number("norm_eps", "attention.layer_norm_rms_epsilon", 1e-5));
  AERIE_RETURN_IF_ERROR(folder.add_rope(folder.rope_parameters(), 1000000.0));
  AERIE_RETURN_IF_ERROR(add_convolutions(folder));
  AERIE_RETURN_IF_ERROR(drop_tied_output(folder));
  add_rules(folder);
  return {};
}

Status import_dense(HuggingFaceImport& folder) {
  folder.set_architecture("lfm2");
  const char* width = folder.config().has("block_ff_dim") ? "block_ff_dim" : "intermediate_size";
  AERIE_RETURN_IF_ERROR(import_layers(folder, width));
  for (const char* key : {"block_use_swiglu", "use_pos_enc"}) {
    AERIE_ASSIGN_OR_RETURN(const bool usual, folder.config().boolean(key, true));
    if (!usual) return folder.config().error(StatusCode::kUnsupported, key, "is false");
  }
  return adjust_width(folder, width);
}

Status import_experts(HuggingFaceImport& folder) {
  folder.set_architecture("lfm2moe");
  AERIE_RETURN_IF_ERROR(import_layers(folder, "intermediate_size"));
  AERIE_RETURN_IF_ERROR(folder.add_experts({.usually_normalized = true,
                                            .router = "feed_forward.gate",
                                            .gate = "feed_forward.experts.{}.w1",
                                            .up = "feed_forward.experts.{}.w3",
                                            .down = "feed_forward.experts.{}.w2"}));
  const JsonObject& config = folder.config();
  constexpr const char* kDense = "num_dense_layers";
  AERIE_ASSIGN_OR_RETURN(const int64_t dense, config.integer_in(kDense, 0, folder.layers(), 2));
  folder.add_integer("leading_dense_block_count", dense, kDense);
  folder.add_integer(kRouter, kSigmoid, "model_type");
  AERIE_RETURN_IF_ERROR(folder.copy_number("routed_scaling_factor", "expert_weights_scale", 1.0));
  AERIE_ASSIGN_OR_RETURN(const bool corrected, config.boolean("use_expert_bias", true));
  if (corrected) {
    folder.add_rule("model.layers.{}.feed_forward.expert_bias", "blk.{}.exp_probs_b.bias");
  }
  return {};
}

constexpr std::string_view kTypes[] = {"lfm2"};
constexpr std::string_view kExpertTypes[] = {"lfm2_moe"};

}  // namespace

extern const ModelFamily kLfm2;
extern const ModelFamily kLfm2Moe;
const ModelFamily kLfm2 = {"lfm2", read_dense, kTypes, import_dense};
const ModelFamily kLfm2Moe = {"lfm2moe", read_experts, kExpertTypes, import_experts};

}  // namespace aerie
