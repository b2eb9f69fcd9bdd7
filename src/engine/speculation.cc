#include "engine/speculation.h"

#include "draft/draft_model.h"
#include "draft/ngram.h"
#include "engine/memory.h"

namespace aerie {
namespace {

Expected<std::unique_ptr<Drafter>> open_draft_model(const SpeculativeConfig& config,
                                                    const DraftTarget& target,
                                                    ModelSource& source) {
  AERIE_ASSIGN_OR_RETURN(source, open_model_source(config.model, std::nullopt, *target.pool));
  const ModelFile& file = *source.file;
  if (Status same = check_same_vocabulary(*target.tokenizer, *source.tokenizer); !same.ok()) {
    return same.with_context(config.model);
  }
  AERIE_ASSIGN_OR_RETURN(const ModelConfig model_config, read_model_config(file));
  ModelOptions options;
  options.backend = target.backend;
  options.pool = target.pool;
  options.max_rows = 256;
  options.max_logits = 4;
  options.max_positions = target.max_positions;
  options.weight_cache = target.weight_cache;
  const int64_t cache_bytes =
      KvCache::bytes_needed(model_config, target.max_positions, target.cache_type);
  AERIE_RETURN_IF_ERROR(check_memory(config.model, packed_weight_bytes(file, *target.backend),
                                     cache_bytes, working_bytes(model_config, options),
                                     available_memory()));
  AERIE_ASSIGN_OR_RETURN(std::unique_ptr<Model> model, load_model(file, options));
  DraftModelOptions draft;
  draft.num_tokens = config.tokens();
  draft.vocab = target.vocab;
  draft.max_positions = target.max_positions;
  draft.max_rows = options.max_rows;
  draft.cache_type = target.cache_type;
  return make_draft_model_drafter(std::move(model), draft);
}

}  // namespace

Expected<std::unique_ptr<Drafter>> make_drafter(const SpeculativeConfig& config,
                                                const DraftTarget& target, ModelSource& source) {
  switch (config.method) {
    case DraftMethod::kNone:
      return std::unique_ptr<Drafter>();
    case DraftMethod::kNgram: {
      NgramOptions options;
      if (config.prompt_lookup_max > 0) options.max_n = config.prompt_lookup_max;
      if (config.prompt_lookup_min > 0) options.min_n = config.prompt_lookup_min;
      options.num_tokens = config.tokens();
      return make_ngram_drafter(options);
    }
    case DraftMethod::kDraftModel:
      return open_draft_model(config, target, source);
  }
  return Status(StatusCode::kInternal, "an unknown drafting method");
}

}  // namespace aerie
