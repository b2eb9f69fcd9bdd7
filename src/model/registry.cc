#include "model/registry.h"

#include <algorithm>

#include "base/errors.h"
#include "model/import/predictor_file.h"
#include "model/transformer.h"
#include "model/transformer_weights.h"

// The families, one line each: the name of what the family's file defines.
#define AERIE_MODEL_FAMILIES(FAMILY) \
  FAMILY(kLlama)                     \
  FAMILY(kMixtral)                   \
  FAMILY(kSmolLm3)                   \
  FAMILY(kQwen2)                     \
  FAMILY(kQwen3)                     \
  FAMILY(kQwen2Moe)                  \
  FAMILY(kQwen3Moe)                  \
  FAMILY(kQwen3Next)                 \
  FAMILY(kQwen35)                    \
  FAMILY(kQwen35Moe)                 \
  FAMILY(kOlmoe)                     \
  FAMILY(kGptOss)                    \
  FAMILY(kDeepseek2)                 \
  FAMILY(kDeepseek3)                 \
  FAMILY(kGlm4MoeLite)               \
  FAMILY(kGemma1)                    \
  FAMILY(kGemma2)                    \
  FAMILY(kGemma3)                    \
  FAMILY(kGemma4)                    \
  FAMILY(kPhi3)                      \
  FAMILY(kGpt2)                      \
  FAMILY(kGraniteMoe)                \
  FAMILY(kGranite)                   \
  FAMILY(kGraniteHybrid)             \
  FAMILY(kLfm2)                      \
  FAMILY(kLfm2Moe)

namespace aerie {

#define AERIE_DECLARE(family) extern const ModelFamily family;
AERIE_MODEL_FAMILIES(AERIE_DECLARE)
#undef AERIE_DECLARE

namespace {

#define AERIE_ADDRESS(family) &(family),
constexpr const ModelFamily* kFamilies[] = {AERIE_MODEL_FAMILIES(AERIE_ADDRESS)};
#undef AERIE_ADDRESS

// What a cache must know of layers that differ in their keys and values.
void list_keys(Blueprint& blueprint) {
  ModelConfig& config = blueprint.config;
  std::vector<KvHeads> heads;
  std::vector<int> sources;
  for (const LayerPlan& layer : blueprint.layers) {
    heads.push_back({layer.kv_heads > 0 ? layer.kv_heads : config.kv_heads,
                     layer.head_dim > 0 ? layer.head_dim : config.head_dim});
    const auto index = static_cast<int>(sources.size());
    sources.push_back(layer.kv_source >= 0 ? layer.kv_source : index);
  }
  const KvHeads all = {config.kv_heads, config.head_dim};
  if (std::ranges::any_of(heads, [&](const KvHeads& one) { return one != all; })) {
    config.kv_by_layer = std::move(heads);
  }
  if (std::ranges::any_of(blueprint.layers,
                          [](const LayerPlan& layer) { return layer.kv_source >= 0; })) {
    config.kv_sources = std::move(sources);
  }
}

}  // namespace

Expected<Blueprint> read_blueprint(const ModelFile& file) {
  AERIE_ASSIGN_OR_RETURN(const ModelFamily* family, find_family(file));
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, family->read(file));
  if (std::ranges::any_of(blueprint.layers, [](const LayerPlan& l) { return l.window > 0; })) {
    for (const LayerPlan& layer : blueprint.layers) {
      blueprint.config.windows.push_back(layer.window);
    }
  }
  list_keys(blueprint);
  return blueprint;
}

std::span<const ModelFamily* const> model_families() {
  return kFamilies;
}

Expected<const ModelFamily*> find_family(const ModelFile& file) {
  AERIE_ASSIGN_OR_RETURN(const std::string_view architecture, file.string("general.architecture"));
  std::string known;
  for (const ModelFamily* family : kFamilies) {
    if (family->architecture == architecture) return family;
    if (known.find(family->architecture) != std::string::npos) continue;
    if (!known.empty()) known += ", ";
    known += family->architecture;
  }
  return not_supported("{}: the model family '{}' is not supported; these are: {}", file.name(),
                       architecture, known);
}

int64_t packed_weight_bytes(const ModelFile& file, const kernels::Backend& backend,
                            const LayerRange& layers) {
  int64_t bytes = 0;
  for (const TensorInfo& tensor : file.tensors()) {
    if (!tensor.dtype || is_of_predictor(file, tensor.name)) continue;
    if (!is_of_layers(tensor.name, layers)) continue;
    bytes += backend.packed_bytes({*tensor.dtype, Device::kCpu, tensor.shape, nullptr});
  }
  return bytes;
}

int64_t loaded_weight_bytes(const ModelFile& file, const kernels::Backend& backend,
                            const LayerRange& layers) {
  const int64_t packed = packed_weight_bytes(file, backend, layers);
  // One that is the output, too, is there packed and as a table.
  const TensorInfo* embedding = file.find_tensor("token_embd.weight");
  const bool twice = layers.end == LayerRange::kAll && embedding != nullptr &&
                     file.find_tensor("output.weight") == nullptr;
  return twice ? packed + embedding->bytes : packed;
}

int64_t working_bytes(const ModelConfig& config, const ModelOptions& options) {
  const int64_t widths = int64_t{5} * config.hidden + 4 * config.q_width() + 2 * config.kv_width() +
                         int64_t{4} * config.ffn;
  const int64_t chunks = options.max_positions / kernels::kAttentionChunk + 1;
  const int64_t partials =
      std::min<int64_t>(options.max_rows, kernels::AttentionWorkspace::kSplitRows) * config.heads *
      chunks * (config.head_dim + 16);
  const int64_t logits =
      int64_t{options.max_logits} *
      (options.logit_tokens.empty() ? config.vocab : std::ssize(options.logit_tokens));
  const int64_t pairs = int64_t{options.max_rows} * config.used_experts;
  const int64_t experts = pairs * (int64_t{4} * config.hidden + int64_t{5} * config.expert_ffn) +
                          int64_t{options.max_rows} * (config.experts + 5 * config.shared_ffn);
  int64_t latent = 0;
  if (const LatentAttention& shape = config.latent; shape.rank > 0) {
    const int64_t head = int64_t{2} * shape.query_dim() + 3 * shape.plain + 4 * shape.rank;
    latent = options.max_rows * (config.heads * head + 4 * shape.query_rank);
  }
  int64_t linear = 0;
  if (config.count_linear() > 0) {
    const LinearAttention& shape = config.linear;
    // State spaces have rows before their norm besides.
    const int64_t wide = shape.kind == LinearKind::kStateSpace ? 8 : 5;
    linear = options.max_rows * (int64_t{2} * shape.channels() + wide * shape.out_width()) +
             options.pool->threads() * (options.max_rows + int64_t{1}) * shape.key_dim *
                 kernels::kStateLanes;
  }
  return (widths * options.max_rows + partials + logits + experts + latent + linear) *
         int64_t{sizeof(float)};
}

Expected<ModelCache> make_cache(Model& model, KvCache::Creation creation) {
  creation.planes = model.cache_planes();
  // Planes elsewhere hold all positions.
  if (creation.planes == KvCache::Planes::kElsewhere) creation.windows = {0, 0, 0};
  creation.here = model.layers_here();
  AERIE_ASSIGN_OR_RETURN(KvCache made, KvCache::create(model.cache_config(), creation));
  auto cache = std::make_unique<KvCache>(std::move(made));
  AERIE_RETURN_IF_ERROR(model.attach(*cache, {}));
  return ModelCache(cache.release(), DetachCache{&model});
}

Expected<ModelConfig> read_model_config(const ModelFile& file) {
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, read_blueprint(file));
  return std::move(blueprint.config);
}

Expected<std::unique_ptr<Model>> load_model(const ModelFile& file, const ModelOptions& options) {
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, read_blueprint(file));
  return load_transformer(file, std::move(blueprint), options);
}

}  // namespace aerie
