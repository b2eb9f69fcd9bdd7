#include "engine/speculation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <string_view>
#include <utility>

#include "decode/controller.h"
#include "draft/combined.h"
#include "draft/draft_model.h"
#include "draft/ngram.h"
#include "draft/prediction.h"
#include "draft/recycling.h"
#include "draft/suffix.h"
#include "draft/vocabulary_map.h"
#include "engine/memory.h"

namespace aerie {
namespace {

struct Making {
  const MethodConfig& config;
  const DraftTarget& target;
  std::vector<ModelSource>& sources;  // of models that drafters run
};
using Made = Expected<std::unique_ptr<Drafter>>;

Made make_ngram(const Making& making) {
  NgramOptions options;
  options.max_n = making.config.whole("prompt_lookup_max");
  options.min_n = making.config.whole("prompt_lookup_min");
  options.num_matches = making.config.whole("num_matches");
  options.num_tokens = making.config.tokens();
  return make_ngram_drafter(options);
}

Made make_prediction(const Making& making) {
  PredictionOptions options;
  options.max_n = making.config.whole("prompt_lookup_max");
  options.min_n = making.config.whole("prompt_lookup_min");
  options.num_tokens = making.config.tokens();
  return make_prediction_drafter(options);
}

Made make_suffix(const Making& making) {
  SuffixOptions options;
  options.max_depth = making.config.whole("suffix_decoding_max_tree_depth");
  options.factor = making.config.number("suffix_decoding_max_spec_factor");
  options.offset = making.config.number("suffix_decoding_spec_offset");
  options.min_probability = making.config.number("suffix_decoding_min_token_prob");
  options.cached_tokens = making.config.whole("suffix_decoding_max_cached_tokens");
  options.tree = making.config.whole("suffix_decoding_tree") != 0;
  options.num_tokens = making.config.tokens();
  return make_suffix_drafter(options);
}

Made make_recycling(const Making& making) {
  RecyclingOptions options;
  options.vocab = making.target.vocab;
  options.successors = making.config.whole("num_successors");
  options.num_tokens = making.config.tokens();
  return make_recycling_drafter(options);
}

Made make_draft_model(const Making& making) {
  const DraftTarget& target = making.target;
  const std::string& path = making.config.text("model");
  AERIE_ASSIGN_OR_RETURN(ModelSource source, open_model_source(path, std::nullopt, *target.pool));
  const ModelFile& file = *source.file;
  if (Status same = check_same_vocabulary(*target.tokenizer, *source.tokenizer); !same.ok()) {
    return same.with_context(path);
  }
  AERIE_ASSIGN_OR_RETURN(const ModelConfig model_config, read_model_config(file));
  ModelOptions options;
  options.backend = target.backend;
  options.pool = target.pool;
  options.max_rows = 256;
  DraftModelOptions draft;
  draft.num_tokens = making.config.tokens();
  draft.num_steps = making.config.whole("num_steps");
  draft.top_k = making.config.whole("topk");
  draft.top_p = making.config.number("top_p");
  draft.min_probability = making.config.number("min_probability");
  draft.shape = find_static_tree(making.config.text(kTreeKey));
  draft.max_logits = std::max(4, draft_model_width(draft));
  options.max_logits = draft.max_logits;
  options.max_positions = target.max_positions;
  options.weight_cache = target.weight_cache;
  const int64_t cache_bytes =
      KvCache::bytes_needed(model_config, target.max_positions, target.cache_type);
  AERIE_RETURN_IF_ERROR(check_memory(path, packed_weight_bytes(file, *target.backend), cache_bytes,
                                     working_bytes(model_config, options), available_memory()));
  AERIE_ASSIGN_OR_RETURN(std::unique_ptr<Model> model, load_model(file, options));
  draft.vocab = target.vocab;
  draft.max_positions = target.max_positions;
  draft.max_rows = options.max_rows;
  draft.cache_type = target.cache_type;
  making.sources.push_back(std::move(source));
  return make_draft_model_drafter(std::move(model), draft);
}

struct Maker {
  std::string_view method;
  Made (*make)(const Making& making);
};
// One line for each of methods().
constexpr Maker kMakers[] = {
    {"ngram", make_ngram},         {"prediction", make_prediction},   {"suffix", make_suffix},
    {"recycling", make_recycling}, {"draft_model", make_draft_model},
};

Made make_one(const Making& making) {
  for (const Maker& maker : kMakers) {
    if (maker.method == making.config.method->name) return maker.make(making);
  }
  return Status(StatusCode::kInternal,
                fmt::format("no drafter for method {}", making.config.method->name));
}

}  // namespace

Made make_drafter(const SpeculativeConfig& config, const DraftTarget& target,
                  std::vector<ModelSource>& sources) {
  std::vector<std::unique_ptr<Drafter>> drafters;
  for (const MethodConfig& method : config.methods) {
    AERIE_ASSIGN_OR_RETURN(std::unique_ptr<Drafter> drafter, make_one({method, target, sources}));
    drafters.push_back(std::move(drafter));
  }
  if (drafters.empty()) return std::unique_ptr<Drafter>();
  if (config.combination == Combination::kAuto) {
    assert(target.cost != nullptr);
    ControllerOptions options;
    options.max_rows = target.max_rows;
    options.max_nodes = config.tokens();
    return make_controller(std::move(drafters), *target.cost, options);
  }
  if (drafters.size() == 1) return std::move(drafters.front());
  return combine_drafters(std::move(drafters), config.combination);
}

}  // namespace aerie
