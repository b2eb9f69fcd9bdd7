// Granite 3, dense and with experts: Llama's shape, with a factor on the embedding, on the scores
// of attention and on what each branch adds, and a divisor of the logits (Granite Team 2024,
// "Granite 3.0 Language Models"; maximal update parametrisation, 2203.03466).
#include "model/import/hugging_face_import.h"
#include "model/import/metadata_reader.h"
#include "model/registry.h"

namespace aerie {
namespace {

struct Scale {
  const char* config;  // in config.json; absent: 1
  const char* key;     // in GGUF
};
constexpr Scale kScales[] = {
    {"embedding_multiplier", "embedding_scale"},
    {"residual_multiplier", "residual_scale"},
    {"attention_multiplier", "attention.scale"},
    {"logits_scaling", "logit_scale"},
};
// False in files of the family whose queries and keys do not turn.
constexpr const char* kTurns = "rope.scaling.finetuned";

Expected<Blueprint> read_scales(const MetadataReader& reader, Blueprint blueprint) {
  blueprint.rope_style = kernels::RopeStyle::kPairs;
  AERIE_ASSIGN_OR_RETURN(blueprint.embedding_scale, reader.positive_or("embedding_scale", 1.0));
  AERIE_ASSIGN_OR_RETURN(blueprint.residual_scale, reader.positive_or("residual_scale", 1.0));
  AERIE_ASSIGN_OR_RETURN(blueprint.attention_scale, reader.positive_or("attention.scale", 0.0));
  AERIE_ASSIGN_OR_RETURN(blueprint.logit_divisor, reader.positive_or("logit_scale", 1.0));
  if (reader.has(kTurns)) {
    AERIE_ASSIGN_OR_RETURN(const bool turns,
                           reader.file().boolean(blueprint.config.family + "." + kTurns));
    if (!turns) return reader.unsupported(kTurns, "is false: queries and keys would not turn");
  }
  return blueprint;
}

Expected<Blueprint> read(const ModelFile& file) {
  const MetadataReader reader(file);
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, reader.read_llama_shape());
  return read_scales(reader, std::move(blueprint));
}

Expected<Blueprint> read_experts(const ModelFile& file) {
  const MetadataReader reader(file);
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, reader.read_expert_shape(true));
  return read_scales(reader, std::move(blueprint));
}

Status import_layers(HuggingFaceImport& folder) {
  AERIE_RETURN_IF_ERROR(folder.copy_llama_shape({}));
  for (const Scale& scale : kScales) {
    AERIE_RETURN_IF_ERROR(folder.copy_number(scale.config, scale.key, 1.0));
  }
  folder.add_llama_rules(true);
  return folder.require_announced_biases();
}

Status import(HuggingFaceImport& folder) {
  folder.set_architecture("granite");
  return import_layers(folder);
}

Status import_experts(HuggingFaceImport& folder) {
  folder.set_architecture("granitemoe");
  AERIE_RETURN_IF_ERROR(import_layers(folder));
  AERIE_RETURN_IF_ERROR(folder.add_experts({.count = "num_local_experts",
                                            .ffn = nullptr,
                                            .normalized = nullptr,
                                            .router = "block_sparse_moe.router.layer",
                                            .gate = nullptr,
                                            .up = nullptr,
                                            .down = nullptr}));
  folder.add_stack_rules("block_sparse_moe.input_linear", "block_sparse_moe.output_linear");
  return {};
}

constexpr std::string_view kModelTypes[] = {"granite"};
constexpr std::string_view kExpertTypes[] = {"granitemoe"};

}  // namespace

extern const ModelFamily kGranite;
extern const ModelFamily kGraniteMoe;
const ModelFamily kGranite = {"granite", read, kModelTypes, import};
const ModelFamily kGraniteMoe = {"granitemoe", read_experts, kExpertTypes, import_experts};

}  // namespace aerie
