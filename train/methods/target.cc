#include "train/methods/target.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>

#include "model/registry.h"
#include "tensor/dtype.h"
#include "train/nn/ops.h"

namespace aerie::train {
namespace {

// GGUF files of models whose pairs are neighbours keep the rows of each head's queries and keys as
// (0, half, 1, half + 1, ...) of Hugging Face's order.
at::Tensor halves_from_neighbours(const at::Tensor& rows, int64_t head_dim) {
  const int64_t heads = rows.size(0) / head_dim, width = rows.size(1);
  return rows.view({heads, head_dim / 2, 2, width})
      .transpose(1, 2)
      .reshape({heads * head_dim, width});
}

at::Tensor neighbours_from_halves(const at::Tensor& rows, int64_t head_dim) {
  const int64_t heads = rows.size(0) / head_dim, width = rows.size(1);
  return rows.view({heads, 2, head_dim / 2, width})
      .transpose(1, 2)
      .reshape({heads * head_dim, width});
}

// Not here: deepseek2, which is DeepSeek-V2, V3 and GLM-4.7-Flash.
constexpr std::pair<std::string_view, std::string_view> kTransformersClasses[] = {
    {"gemma", "GemmaForCausalLM"},
    {"gemma2", "Gemma2ForCausalLM"},
    {"gemma3", "Gemma3ForCausalLM"},
    {"gemma4", "Gemma4ForCausalLM"},
    {"gpt-oss", "GptOssForCausalLM"},
    {"granite", "GraniteForCausalLM"},
    {"granitemoe", "GraniteMoeForCausalLM"},
    {"granitehybrid", "GraniteMoeHybridForCausalLM"},
    {"lfm2", "Lfm2ForCausalLM"},
    {"lfm2moe", "Lfm2MoeForCausalLM"},
    {"llama", "LlamaForCausalLM"},
    {"olmoe", "OlmoeForCausalLM"},
    {"phi3", "Phi3ForCausalLM"},
    {"qwen2", "Qwen2ForCausalLM"},
    {"qwen2moe", "Qwen2MoeForCausalLM"},
    {"qwen3", "Qwen3ForCausalLM"},
    {"qwen3moe", "Qwen3MoeForCausalLM"},
    {"qwen3next", "Qwen3NextForCausalLM"},
    {"qwen35", "Qwen3_5ForCausalLM"},
    {"qwen35moe", "Qwen3_5MoeForCausalLM"},
    {"smollm3", "SmolLM3ForCausalLM"},
};

bool is_query_or_key(const std::string& name) {
  return name.ends_with(".attn_q.weight") || name.ends_with(".attn_k.weight");
}

}  // namespace

std::string_view transformers_class(const ModelFile& file, const ModelConfig& config) {
  const auto architecture = file.string("general.architecture");
  if (!architecture.ok()) return {};
  if (*architecture == "llama" && config.experts > 0) return "MixtralForCausalLM";
  for (const auto& [name, class_name] : kTransformersClasses) {
    if (name == *architecture) return class_name;
  }
  return {};
}

Expected<std::unique_ptr<Target>> Target::open(const std::string& path, ThreadPool& pool) {
  std::unique_ptr<Target> target(new Target());
  target->path_ = path;
  AERIE_ASSIGN_OR_RETURN(target->source_, open_model_source(path, std::nullopt, pool));
  AERIE_ASSIGN_OR_RETURN(const ModelFamily* family, find_family(*target->source_.file));
  AERIE_ASSIGN_OR_RETURN(target->blueprint_, family->read(*target->source_.file));
  if (target->blueprint_.norm != NormKind::kRms) {
    return Status(StatusCode::kUnsupported,
                  path +
                      ": the model's final norm is a layer norm; drafters are trained here for "
                      "models with RMS norms (Llama, Qwen, Gemma, Phi-3 and their like)");
  }
  return target;
}

Expected<at::Tensor> Target::tensor(const std::string& name) const {
  AERIE_ASSIGN_OR_RETURN(const TensorData data, source_.file->read(name));
  const TensorView& view = data.view;
  const int64_t inputs = view.shape[0], outputs = view.shape[1];
  at::Tensor values = outputs > 1 ? at::empty({outputs, inputs}) : at::empty({inputs});
  dequantize(view.dtype, view.data, values.numel(), values.data_ptr<float>());
  source_.file->release(view);
  AERIE_RETURN_IF_ERROR(source_.file->check_intact());
  if (is_query_or_key(name) && blueprint_.rope_style == kernels::RopeStyle::kPairs) {
    values = halves_from_neighbours(values, config().head_dim);
  }
  return values.to(device_);
}

at::Tensor Target::in_file_order(const std::string& name, const at::Tensor& values) const {
  const bool turned = is_query_or_key(name) && blueprint_.rope_style == kernels::RopeStyle::kPairs;
  return turned ? neighbours_from_halves(values, config().head_dim) : values;
}

Expected<at::Tensor> Target::keep(at::Tensor& slot, const std::string& name) {
  if (!slot.defined()) {
    AERIE_ASSIGN_OR_RETURN(slot, tensor(name));
  }
  return slot;
}

Expected<at::Tensor> Target::embedding() {
  if (!embedding_.defined()) {
    AERIE_ASSIGN_OR_RETURN(embedding_, tensor("token_embd.weight"));
    if (blueprint_.embedding_scale != 1.0) {
      embedding_ = embedding_ * blueprint_.embedding_scale;
    }
  }
  return embedding_;
}

Expected<at::Tensor> Target::output() {
  const bool own = source_.file->find_tensor("output.weight") != nullptr;
  if (!own && blueprint_.embedding_scale == 1.0) {
    return embedding();
  }
  return keep(output_, own ? "output.weight" : "token_embd.weight");
}

Expected<at::Tensor> Target::final_norm() {
  return keep(final_norm_, "output_norm.weight");
}

Expected<at::Tensor> Target::draft_ids(const std::vector<int32_t>& vocabulary) const {
  const auto longs = at::TensorOptions(at::kLong).device(device_);
  if (vocabulary.empty()) return at::arange(config().vocab, longs);
  const bool rising =
      std::ranges::adjacent_find(vocabulary, std::greater_equal<>()) == vocabulary.end();
  if (!rising || vocabulary.front() < 0 || vocabulary.back() >= config().vocab) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("the draft vocabulary is not ascending ids of the target's {} tokens",
                              config().vocab));
  }
  return at::tensor(at::ArrayRef<int32_t>(vocabulary), at::kLong).to(device_);
}

at::Tensor target_logits(const Target& target, const at::Tensor& x, const at::Tensor& norm,
                         const at::Tensor& output) {
  at::Tensor logits = at::linear(rms_norm(x, norm, target.norm_eps()), output);
  const double cap = target.blueprint().logit_soft_cap;
  if (cap != 0.0) logits = (logits / cap).tanh() * cap;
  const double divisor = target.blueprint().logit_divisor;
  return divisor == 1.0 ? logits : logits / divisor;
}

}  // namespace aerie::train
