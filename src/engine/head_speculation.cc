#include "engine/head_speculation.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>

#include "draft/heads/feature_network.h"
#include "draft/heads/heads.h"
#include "draft/network/draft_vocabulary.h"
#include "draft/network/layer_skip.h"
#include "draft/network/vocabulary_map.h"
#include "engine/memory.h"
#include "kv/kv_cache.h"
#include "model/import/head_file.h"

namespace aerie {
namespace {

namespace fs = std::filesystem;

// Rows of a head's pass.
constexpr int kRows = 256;

// Most heads come without a tokenizer, since they have their target's.
Status check_tokenizer(const std::string& path, const Tokenizer& target) {
  std::error_code ignored;
  if (!fs::exists(fs::path(path) / "tokenizer.json", ignored)) return {};
  AERIE_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> own, Tokenizer::from_folder(path));
  return check_same_vocabulary(target, *own).with_context(path);
}

Expected<HeadSettings> head_settings(const MethodConfig& config, const DraftTarget& target,
                                     const NetworkDrafterOptions& tree) {
  HeadSettings settings;
  settings.depth = draft_depth(tree);
  if (const std::string& type = config.text(kDraftTypeKey); !type.empty()) {
    settings.dtype = dtype_from_name(type);
  }
  if (const std::string& file = config.text("draft_vocab"); !file.empty()) {
    AERIE_ASSIGN_OR_RETURN(
        settings.vocabulary,
        read_draft_vocabulary(file, config.whole("draft_vocab_size"), target.vocab));
  } else if (config.whole("draft_vocab_size") > 0) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("method {}: 'draft_vocab_size' says how many of the tokens in "
                              "'draft_vocab' are kept: give that file too",
                              config.method->name));
  }
  const auto flag = [&](std::string_view key) -> std::optional<bool> {
    if (config.method->find(key) == nullptr || config.number(key) < 0) return std::nullopt;
    return config.number(key) != 0;
  };
  settings.parallel = flag("parallel_drafting");
  settings.norm_before_residual = flag("norm_before_residual");
  settings.mtp.feature_normed = flag("feature_normed");
  settings.mtp.handed_normed = flag("handed_normed");
  settings.mtp.hidden_first = flag("hidden_first");
  settings.mtp.zero_first = flag("zero_first");
  if (config.method->find("tap_layers") != nullptr) {
    if (const std::string& taps = config.text("tap_layers"); !taps.empty()) {
      // The stream behind the last layer can be tapped, too.
      AERIE_ASSIGN_OR_RETURN(settings.tap_layers,
                             parse_layers(taps, target.model->config().layers + 1, true));
    }
  }
  return settings;
}

}  // namespace

void set_tree(const MethodConfig& config, const DraftTarget& target,
              NetworkDrafterOptions& options) {
  options.method = config.method->name;
  options.num_tokens = config.tokens();
  options.num_steps = config.whole("num_steps");
  options.top_k = config.whole("topk");
  options.top_p = config.number("top_p");
  options.min_probability = config.number("min_probability");
  options.shape = find_static_tree(config.text(kTreeKey));
  options.beams = config.method->name == "redrafter";
  options.vocab = target.vocab;
  options.max_sequences = target.max_sequences;
  options.cache_positions = target.cache_positions;
  options.backend = target.backend;
  options.pool = target.pool;
}

Expected<std::unique_ptr<Drafter>> make_head_drafter(const MethodConfig& config,
                                                     const DraftTarget& target,
                                                     std::vector<ModelSource>& sources) {
  // Modules for multi-token prediction come with the model.
  const bool own = config.text("model").empty();
  const std::string& path = own ? target.file->name() : config.text("model");
  if (std::error_code ignored; own && !fs::is_directory(path, ignored)) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("method {}: {} is no Hugging Face folder, which could hold modules "
                              "for it: give model=FOLDER",
                              config.method->name, path));
  }
  const ModelConfig& model = target.model->config();
  FeatureNetworkOptions options;
  set_tree(config, target, options.drafter);
  AERIE_ASSIGN_OR_RETURN(const HeadSettings settings,
                         head_settings(config, target, options.drafter));
  AERIE_RETURN_IF_ERROR(check_tokenizer(path, *target.tokenizer));
  AERIE_ASSIGN_OR_RETURN(std::unique_ptr<HeadFile> file,
                         HeadFile::open(path, {settings.dtype, target.pool}));
  options.drafter.max_rows = kRows;
  options.drafter.max_logits =
      std::max(most_nodes_in_pass(options.drafter), draft_depth(options.drafter)) *
      shared_draft_sequences(target);
  options.drafter.pairing = fmt::format("{} for {}", path, target.file->name());
  options.max_positions = target.max_positions;
  options.cache_type = target.cache_type;
  HeadTarget head_target;
  head_target.parts = target.model->parts();
  head_target.config = &model;
  head_target.file = target.file;
  head_target.backend = target.backend;
  head_target.pool = target.pool;
  head_target.max_rows = options.drafter.max_rows;
  head_target.max_logits = options.drafter.max_logits;
  head_target.max_positions = target.max_positions + kMostHeadDepth;
  AERIE_RETURN_IF_ERROR(
      check_memory(path, packed_weight_bytes(*file, *target.backend), 0, 0, available_memory()));
  AERIE_ASSIGN_OR_RETURN(std::unique_ptr<FeatureHead> head,
                         load_head(config.method->name, *file, head_target, settings));
  if (const size_t taps = head->tap_layers().size();
      taps > static_cast<size_t>(ModelOptions().max_taps)) {
    return Status(StatusCode::kUnsupported,
                  fmt::format("{}: taps {} layers; up to {} can be tapped", path, taps,
                              ModelOptions().max_taps));
  }
  AERIE_RETURN_IF_ERROR(check_memory(
      path, 0,
      KvCache::bytes_needed(head->cache_config(), head_target.max_positions, target.cache_type), 0,
      available_memory()));
  ModelSource source;
  source.file = std::move(file);
  sources.push_back(std::move(source));
  AERIE_ASSIGN_OR_RETURN(std::unique_ptr<DraftNetwork> network,
                         make_feature_network(std::move(head), options));
  return make_network_drafter(std::move(network), options.drafter);
}

}  // namespace aerie
