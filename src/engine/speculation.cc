#include "engine/speculation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "draft/auto/combined.h"
#include "draft/auto/controller.h"
#include "draft/heads/heads.h"
#include "draft/lookup/lookahead.h"
#include "draft/lookup/ngram.h"
#include "draft/lookup/prediction.h"
#include "draft/lookup/recycling.h"
#include "draft/lookup/suffix.h"
#include "draft/network/draft_model.h"
#include "draft/network/draft_vocabulary.h"
#include "draft/network/early_exit.h"
#include "draft/network/layer_skip.h"
#include "draft/network/text_draft_model.h"
#include "draft/network/vocabulary_map.h"
#include "engine/head_speculation.h"
#include "engine/memory.h"

namespace aerie {

int shared_draft_sequences(const DraftTarget& target) {
  constexpr int kMost = 16;
  return std::min(target.max_sequences, kMost);
}

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
  options.refresh = making.config.whole("refresh");
  options.num_tokens = making.config.tokens();
  return make_recycling_drafter(options);
}

Made make_lookahead(const Making& making) {
  LookaheadOptions options;
  options.window = making.config.whole("window");
  options.ngram = making.config.whole("ngram");
  options.guesses = making.config.whole("guesses");
  options.num_tokens = making.config.tokens();
  for (int32_t id = 0; id < making.target.tokenizer->vocab_size(); ++id) {
    if (making.target.tokenizer->is_end(id)) options.end_tokens.push_back(id);
  }
  return make_lookahead_drafter(options);
}

Made make_early_exit(const Making& making) {
  EarlyExitOptions options;
  const int layers = making.target.model->config().layers;
  options.exit_layer = making.config.whole("exit_layer");
  options.num_tokens = making.config.tokens();
  if (options.exit_layer >= layers || layers < 2) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("method early_exit: 'exit_layer' is {}, and the model has {} layers",
                              options.exit_layer, layers));
  }
  if (options.exit_layer == 0) options.exit_layer = std::max(1, layers / 4);
  return make_early_exit_drafter(options);
}

Made make_layer_skip(const Making& making) {
  const DraftTarget& target = making.target;
  const int layers = target.model->config().layers;
  std::vector<int32_t> skipped =
      evenly_skipped_layers(layers, making.config.number("skip_fraction"));
  if (const std::string& list = making.config.text("skip_layers"); !list.empty()) {
    AERIE_ASSIGN_OR_RETURN(skipped, parse_layers(list, layers));
  }
  ModelConfig kept = target.model->config();
  kept.layers -= static_cast<int>(skipped.size());
  AERIE_RETURN_IF_ERROR(check_memory(
      "method layer_skip", 0, KvCache::bytes_needed(kept, target.max_positions, target.cache_type),
      0, available_memory()));
  DraftModelOptions draft;
  draft.num_tokens = making.config.tokens();
  draft.vocab = target.vocab;
  draft.max_positions = target.max_positions;
  draft.max_rows = target.model_rows;
  draft.max_sequences = target.max_sequences;
  draft.cache_positions = target.cache_positions;
  draft.backend = target.backend;
  draft.pool = target.pool;
  draft.cache_type = target.cache_type;
  return make_layer_skip_drafter(*target.model, std::move(skipped), draft);
}

DraftModelOptions draft_model_options(const Making& making) {
  DraftModelOptions options;
  set_tree(making.config, making.target, options);
  options.max_positions = making.target.max_positions;
  options.max_rows = 256;
  options.max_logits =
      std::max(4, most_nodes_in_pass(options) * shared_draft_sequences(making.target));
  options.cache_type = making.target.cache_type;
  return options;
}

// For a draft model whose file says which of the target's tokens its rows stand for.
Status take_own_ids(const Making& making, const ModelFile& file, int draft_vocab,
                    DraftModelOptions& options) {
  if (const std::string& wanted = making.config.text(kVocabularyKey); !wanted.empty()) {
    return {StatusCode::kInvalidArgument,
            fmt::format("{}: says itself which of the target's tokens it drafts; leave {}={} away",
                        file.name(), kVocabularyKey, wanted)};
  }
  AERIE_ASSIGN_OR_RETURN(std::vector<int32_t> ids,
                         read_draft_ids(file, draft_vocab, making.target.vocab));
  log(LogLevel::kInfo, fmt::format("{}: drafts {} of the target's {} tokens", file.name(),
                                   ids.size(), making.target.vocab));
  options.vocabulary = std::make_shared<const VocabularyMap>(
      VocabularyMap::of_ids(std::move(ids), making.target.vocab, draft_vocab));
  return {};
}

// Sets options.vocabulary if the two have to be matched token by token. Whether they meet as text.
Expected<bool> match_vocabularies(const Making& making, const std::string& path,
                                  const Tokenizer& draft, int draft_vocab,
                                  DraftModelOptions& options) {
  // Of the smaller vocabulary; below it, too many tokens are none of the draft model's.
  constexpr double kEnough = 0.5;
  const Tokenizer& target = *making.target.tokenizer;
  const std::string& wanted = making.config.text(kVocabularyKey);
  const Status same = check_same_vocabulary(target, draft);
  if (wanted == "same" && !same.ok()) return Status(same).with_context(path);
  if (wanted.empty() || wanted == "same") {
    if (same.ok()) return false;
  }
  AERIE_ASSIGN_OR_RETURN(VocabularyMap map,
                         VocabularyMap::make(target, making.target.vocab, draft, draft_vocab));
  const double coverage =
      static_cast<double>(map.pairs()) /
      std::max(1, std::min({target.vocab_size(), draft.vocab_size(), making.target.vocab}));
  if (wanted == "intersection" && map.pairs() == 0) {
    return Status(StatusCode::kInvalidArgument,
                  path + ": no token of it is one of the target's; try vocabulary=text");
  }
  const bool as_text = wanted == "text" || (wanted.empty() && coverage < kEnough);
  log(LogLevel::kInfo,
      fmt::format(
          "{}: another vocabulary than the target's; {} tokens are in both ({:.0f} % of the "
          "smaller), matched by {}",
          path, map.pairs(), 100.0 * coverage, as_text ? "text" : "intersection"));
  if (!as_text) options.vocabulary = std::make_shared<const VocabularyMap>(std::move(map));
  return as_text;
}

Made make_draft_model(const Making& making) {
  const DraftTarget& target = making.target;
  const std::string& path = making.config.text("model");
  AERIE_ASSIGN_OR_RETURN(ModelSource source, open_draft_source(path, *target.pool));
  const ModelFile& file = *source.file;
  AERIE_ASSIGN_OR_RETURN(const ModelConfig model_config, read_model_config(file));
  DraftModelOptions draft = draft_model_options(making);
  bool as_text = false;
  if (source.tokenizer == nullptr) {
    AERIE_RETURN_IF_ERROR(take_own_ids(making, file, model_config.vocab, draft));
  } else {
    AERIE_ASSIGN_OR_RETURN(
        as_text, match_vocabularies(making, path, *source.tokenizer, model_config.vocab, draft));
  }
  ModelOptions options;
  options.backend = target.backend;
  options.pool = target.pool;
  options.max_rows = draft.max_rows;
  options.max_logits = draft.max_logits;
  options.max_positions = target.max_positions;
  options.weight_cache = target.weight_cache;
  const int64_t cache_bytes =
      KvCache::bytes_needed(model_config, target.max_positions, target.cache_type);
  AERIE_RETURN_IF_ERROR(check_memory(path, packed_weight_bytes(file, *target.backend), cache_bytes,
                                     working_bytes(model_config, options), available_memory()));
  AERIE_ASSIGN_OR_RETURN(std::unique_ptr<Model> model, load_model(file, options));
  const Tokenizer* tokenizer = source.tokenizer.get();
  making.sources.push_back(std::move(source));
  if (!as_text) return make_draft_model_drafter(std::move(model), draft);
  return make_text_draft_model_drafter(std::move(model), *target.tokenizer, *tokenizer, draft);
}

struct Maker {
  std::string_view method;
  Made (*make)(const Making& making);
};
// One line for each of methods() that is no head's (draft/heads/heads.h).
constexpr Maker kMakers[] = {
    {"ngram", make_ngram},           {"prediction", make_prediction},
    {"suffix", make_suffix},         {"recycling", make_recycling},
    {"lookahead", make_lookahead},   {"early_exit", make_early_exit},
    {"layer_skip", make_layer_skip}, {"draft_model", make_draft_model},
};

Made make_one(const Making& making) {
  if (is_head_method(making.config.method->name)) {
    return make_head_drafter(making.config, making.target, making.sources);
  }
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
