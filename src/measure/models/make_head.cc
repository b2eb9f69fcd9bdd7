#include "measure/models/make_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/errors.h"
#include "format/output_file.h"
#include "format/safetensors/safetensors_write.h"
#include "measure/models/random_weights.h"
#include "measure/report_head.h"

namespace aerie::measure {
namespace {

// Tensors of a head, and what its config.json says.
struct Plan {
  Json config;
  std::vector<SafetensorsEntry> tensors;
  int draft_vocab = 0;  // rows of d2t; 0: there is none

  void matrix(const std::string& name, int64_t outputs, int64_t inputs) {
    tensors.push_back({name, SafetensorsType::kBF16, {outputs, inputs}});
  }
  void vector(const std::string& name, int64_t length) {
    tensors.push_back({name, SafetensorsType::kF32, {length}});
  }
};

void add_llama_shape(Plan& plan, const ModelConfig& c) {
  plan.config = {{"model_type", "llama"},
                 {"hidden_size", c.hidden},
                 {"intermediate_size", c.ffn},
                 {"num_attention_heads", c.heads},
                 {"num_key_value_heads", c.kv_heads},
                 {"head_dim", c.head_dim},
                 {"num_hidden_layers", 1},
                 {"max_position_embeddings", c.context},
                 {"rms_norm_eps", 1e-5},
                 {"rope_theta", 10000.0},
                 {"vocab_size", c.vocab}};
}

void add_layer(Plan& plan, const std::string& prefix, const ModelConfig& c, int64_t input) {
  plan.matrix(prefix + "self_attn.q_proj.weight", c.q_width(), input);
  plan.matrix(prefix + "self_attn.k_proj.weight", c.kv_width(), input);
  plan.matrix(prefix + "self_attn.v_proj.weight", c.kv_width(), input);
  plan.matrix(prefix + "self_attn.o_proj.weight", c.hidden, c.q_width());
  plan.matrix(prefix + "mlp.gate_proj.weight", c.ffn, c.hidden);
  plan.matrix(prefix + "mlp.up_proj.weight", c.ffn, c.hidden);
  plan.matrix(prefix + "mlp.down_proj.weight", c.hidden, c.ffn);
  plan.vector(prefix + "post_attention_layernorm.weight", c.hidden);
}

Plan plan_eagle(const MakeHeadOptions& /*options*/, const ModelConfig& c) {
  Plan plan;
  add_llama_shape(plan, c);
  plan.matrix("fc.weight", c.hidden, 2 * c.hidden);
  plan.vector("fc.bias", c.hidden);
  add_layer(plan, "layers.0.", c, c.hidden);
  return plan;
}

Plan plan_eagle3(const MakeHeadOptions& options, const ModelConfig& c) {
  Plan plan;
  add_llama_shape(plan, c);
  const int vocab = options.draft_vocab > 0 ? std::min(options.draft_vocab, c.vocab) : c.vocab;
  if (vocab < c.vocab) plan.draft_vocab = vocab;
  plan.config["draft_vocab_size"] = vocab;
  plan.config["eagle_aux_hidden_state_layer_ids"] = {std::min(2, c.layers), c.layers / 2,
                                                     std::max(0, c.layers - 3)};
  plan.matrix("fc.weight", c.hidden, 3 * c.hidden);
  add_layer(plan, "midlayer.", c, 2 * c.hidden);
  plan.vector("midlayer.input_layernorm.weight", c.hidden);
  plan.vector("midlayer.hidden_norm.weight", c.hidden);
  plan.vector("norm.weight", c.hidden);
  plan.matrix("lm_head.weight", vocab, c.hidden);
  if (plan.draft_vocab > 0) plan.tensors.push_back({"d2t", SafetensorsType::kI64, {vocab}});
  return plan;
}

Plan plan_peagle(const MakeHeadOptions& options, const ModelConfig& c) {
  Plan plan = plan_eagle3(options, c);
  plan.config["mask_token_id"] = 0;
  plan.tensors.push_back({"mask_hidden", SafetensorsType::kF32, {1, 1, 3 * c.hidden}});
  return plan;
}

Plan plan_dflash(const MakeHeadOptions& options, const ModelConfig& c) {
  Plan plan;
  add_llama_shape(plan, c);
  const int last = std::max(-1, c.layers - 2);
  plan.config["block_size"] = options.depth + 1;
  plan.config["dflash_config"] = {{"mask_token_id", 0},
                                  {"target_layer_ids", {std::min(1, last), last / 2, last}}};
  plan.matrix("fc.weight", c.hidden, 3 * c.hidden);
  plan.vector("hidden_norm.weight", c.hidden);
  plan.vector("layers.0.input_layernorm.weight", c.hidden);
  add_layer(plan, "layers.0.", c, c.hidden);
  plan.vector("norm.weight", c.hidden);
  return plan;
}

Plan plan_medusa(const MakeHeadOptions& options, const ModelConfig& c) {
  Plan plan;
  plan.config = {{"medusa_num_heads", options.depth}, {"medusa_num_layers", 1}};
  for (int i = 0; i < options.depth; ++i) {
    plan.matrix(fmt::format("{}.0.linear.weight", i), c.hidden, c.hidden);
    plan.vector(fmt::format("{}.0.linear.bias", i), c.hidden);
    plan.matrix(fmt::format("{}.1.weight", i), c.vocab, c.hidden);
  }
  return plan;
}

Plan plan_hydra(const MakeHeadOptions& options, const ModelConfig& c) {
  Plan plan;
  plan.config = {{"hydra_num_heads", options.depth},
                 {"hydra_num_layers", 1},
                 {"hydra_head_arch", "mlp"},
                 {"grounded_heads", true}};
  for (int i = 0; i < options.depth; ++i) {
    const int64_t input = int64_t{i + 2} * c.hidden;
    for (const char* part : {"linear", "res_connection"}) {
      plan.matrix(fmt::format("hydra_mlp.{}.0.{}.weight", i, part), c.hidden, input);
      plan.vector(fmt::format("hydra_mlp.{}.0.{}.bias", i, part), c.hidden);
    }
    plan.matrix(fmt::format("hydra_lm_head.{}.weight", i), c.vocab, c.hidden);
    plan.vector(fmt::format("hydra_lm_head.{}.bias", i), c.vocab);
  }
  return plan;
}

Plan plan_mlp_speculator(const MakeHeadOptions& options, const ModelConfig& c) {
  Plan plan;
  plan.config = {{"model_type", "mlp_speculator"},
                 {"vocab_size", c.vocab},
                 {"emb_dim", c.hidden},
                 {"inner_dim", c.hidden},
                 {"n_predict", options.depth},
                 {"tie_weights", false},
                 {"scale_input", false}};
  for (int i = 0; i < options.depth; ++i) {
    plan.matrix(fmt::format("speculator.emb.{}.weight", i), c.vocab, c.hidden);
    plan.matrix(fmt::format("speculator.proj.{}.weight", i), c.hidden, c.hidden);
    plan.vector(fmt::format("speculator.ln.{}.weight", i), c.hidden);
    plan.vector(fmt::format("speculator.ln.{}.bias", i), c.hidden);
    plan.matrix(fmt::format("speculator.head.{}.weight", i), c.vocab, c.hidden);
  }
  return plan;
}

Plan plan_redrafter(const MakeHeadOptions& /*options*/, const ModelConfig& c) {
  Plan plan;
  const int64_t both = int64_t{2} * c.hidden;
  plan.config = {{"model_type", "recurrent_drafting_drafter"},
                 {"vocab_size", c.vocab},
                 {"hidden_size", c.hidden},
                 {"exit_dim", both},
                 {"num_draft_layers", 2},
                 {"rnn", true}};
  plan.matrix("rnn_u.weight", c.hidden, c.hidden);
  plan.vector("rnn_u.bias", c.hidden);
  plan.matrix("rnn_w.weight", c.hidden, c.hidden);
  for (int i = 0; i < 2; ++i) {
    plan.matrix(fmt::format("lm_head.{}.linear.weight", i), both, both);
    plan.vector(fmt::format("lm_head.{}.linear.bias", i), both);
  }
  plan.matrix("lm_head.2.weight", c.vocab, both);
  return plan;
}

Plan plan_mtp(const MakeHeadOptions& /*options*/, const ModelConfig& c) {
  Plan plan;
  add_llama_shape(plan, c);
  plan.config["num_hidden_layers"] = c.layers;
  plan.config["num_nextn_predict_layers"] = 1;
  const std::string prefix = fmt::format("model.layers.{}.", c.layers);
  plan.vector(prefix + "enorm.weight", c.hidden);
  plan.vector(prefix + "hnorm.weight", c.hidden);
  plan.matrix(prefix + "eh_proj.weight", c.hidden, 2 * c.hidden);
  plan.vector(prefix + "shared_head.norm.weight", c.hidden);
  plan.vector(prefix + "input_layernorm.weight", c.hidden);
  add_layer(plan, prefix, c, c.hidden);
  return plan;
}

struct Kind {
  std::string_view name;
  std::string_view method;
  Plan (*plan)(const MakeHeadOptions& options, const ModelConfig& target);
  bool parallel = false;
  bool trees = false;
};
constexpr Kind kKinds[] = {
    {"eagle", "eagle", plan_eagle, false, true},
    {"eagle3", "eagle3", plan_eagle3, false, true},
    {"peagle", "eagle3", plan_peagle, true, true},
    {"dflash", "dflash", plan_dflash},
    {"medusa", "medusa", plan_medusa},
    {"hydra", "hydra", plan_hydra},
    {"mlp_speculator", "mlp_speculator", plan_mlp_speculator},
    {"redrafter", "redrafter", plan_redrafter},
    {"mtp", "mtp", plan_mtp},
};

const Kind* find_kind(std::string_view name) {
  const auto* found = std::ranges::find_if(kKinds, [&](const Kind& k) { return k.name == name; });
  return found == std::end(kKinds) ? nullptr : found;
}

// Row by row, so that no more than a row is in memory.
Status write_values(const Plan& plan, size_t index, uint64_t seed, int vocab,
                    const ByteSink& sink) {
  const SafetensorsEntry& entry = plan.tensors[index];
  const int64_t length = entry.shape.back();
  if (entry.type == SafetensorsType::kI64) {  // d2t: evenly over the vocabulary
    std::vector<int64_t> offsets;
    for (int64_t i = 0; i < length; ++i) offsets.push_back(i * vocab / length - i);
    return sink(std::as_bytes(std::span(offsets)));
  }
  if (entry.type == SafetensorsType::kF32) {
    const bool is_norm = entry.name.find("norm") != std::string::npos;
    const std::vector<float> values(static_cast<size_t>(length), is_norm ? 1.0f : 0.0f);
    return sink(std::as_bytes(std::span(values)));
  }
  static const RandomWeights weights(DType::kBF16);
  std::vector<std::byte> row(static_cast<size_t>(dtype_bytes(DType::kBF16, length)));
  for (int64_t r = 0; r < entry.shape[0]; ++r) {
    weights.fill({seed, index, static_cast<uint64_t>(r)}, length, row.data());
    AERIE_RETURN_IF_ERROR(sink(row));
  }
  return {};
}

constexpr auto kNames = [] {
  std::array<std::string_view, std::size(kKinds)> names;
  for (size_t i = 0; i < names.size(); ++i) names[i] = kKinds[i].name;
  return names;
}();

}  // namespace

std::span<const std::string_view> head_kinds() {
  return kNames;
}

std::string_view method_of_kind(std::string_view kind) {
  const Kind* found = find_kind(kind);
  return found == nullptr ? std::string_view() : found->method;
}

bool is_parallel_kind(std::string_view kind) {
  const Kind* found = find_kind(kind);
  return found != nullptr && found->parallel;
}

bool grows_trees(std::string_view kind) {
  const Kind* found = find_kind(kind);
  return found != nullptr && found->trees;
}

Expected<int64_t> make_head(const MakeHeadOptions& options, const ModelConfig& target) {
  const Kind* kind = find_kind(options.kind);
  if (kind == nullptr) {
    return invalid_argument("there is no kind of head '{}': give one of {}", options.kind,
                            fmt::join(kNames, ", "));
  }
  const Plan plan = kind->plan(options, target);
  std::error_code error;
  std::filesystem::create_directories(options.output, error);
  if (error) {
    return invalid_argument("{}: {}", options.output, error.message());
  }
  const std::string text = plan.config.dump(2) + "\n";
  AERIE_RETURN_IF_ERROR(write_file(options.output + "/config.json", text));
  return write_safetensors(options.output + "/model.safetensors", plan.tensors, {},
                           [&](size_t index, const ByteSink& sink) {
                             return write_values(plan, index, options.seed, target.vocab, sink);
                           });
}

}  // namespace aerie::measure
