#include "draft/heads/heads.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <filesystem>
#include <utility>

#include "base/errors.h"
#include "draft/heads/feature_network.h"
#include "draft/method_settings.h"
#include "draft/network/draft_vocabulary.h"
#include "draft/network/layer_skip.h"
#include "draft/network/vocabulary_map.h"
#include "kv/kv_cache.h"
#include "model/registry.h"
#include "tensor/quantize.h"

namespace aerie {
namespace {

// Rows of a head's pass.
constexpr int kHeadPassRows = 256;

// Most heads come without a tokenizer, since they have their target's.
Status check_tokenizer(const std::string& path, const Tokenizer& target) {
  std::error_code ignored;
  if (!std::filesystem::exists(std::filesystem::path(path) / "tokenizer.json", ignored)) return {};
  AERIE_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> own, Tokenizer::from_folder(path));
  return check_same_vocabulary(target, *own).with_context(path);
}

Expected<HeadSettings> head_settings(const MethodConfig& config, const DraftTarget& target,
                                     const NetworkDrafterOptions& tree) {
  HeadSettings settings;
  settings.depth = draft_depth(tree);
  settings.dtype = draft_type(config);
  AERIE_ASSIGN_OR_RETURN(settings.vocabulary, read_drafted_tokens(config, target.vocab));
  for (const MethodKey& key : config.method->keys) {
    if (key.kind != MethodKey::Kind::kFlag || config.number(key.name) == MethodKey::kUnsaid) {
      continue;
    }
    settings.switches.emplace(key.name, config.number(key.name) != 0);
  }
  if (const std::string& taps = config.text(kTapLayersKey); !taps.empty()) {
    // The stream behind the last layer can be tapped, too.
    AERIE_ASSIGN_OR_RETURN(settings.tap_layers,
                           parse_layers(taps, target.model->config().layers + 1, true));
  }
  return settings;
}

HeadTarget head_target(const DraftTarget& target, const NetworkDrafterOptions& drafter) {
  HeadTarget out;
  out.parts = target.model->parts();
  out.config = &target.model->config();
  out.file = target.file;
  out.backend = target.backend;
  out.pool = target.pool;
  out.max_rows = drafter.max_rows;
  out.max_logits = drafter.max_logits;
  out.max_positions = target.max_positions + kMostHeadDepth;
  return out;
}

}  // namespace

Status check_head(MethodConfig& config) {
  AERIE_RETURN_IF_ERROR(check_tree(config));
  return check_draft_type(config);
}

bool is_head_method(std::string_view method) {
  const Method* found = find_method(method);
  return found != nullptr && found->load_head != nullptr;
}

Expected<std::unique_ptr<FeatureHead>> load_head(std::string_view method, HeadFile& file,
                                                 const HeadTarget& target,
                                                 const HeadSettings& settings) {
  assert(is_head_method(method));
  return find_method(method)->load_head(file, target, settings);
}

Expected<std::unique_ptr<Drafter>> make_head_drafter(const MethodConfig& config, DraftHost& host) {
  return make_head_drafter(config, host, {.path = config.text(kModelKey)});
}

Expected<std::unique_ptr<Drafter>> make_head_drafter(const MethodConfig& config, DraftHost& host,
                                                     const HeadDrafting& drafting) {
  const DraftTarget& target = host.target();
  const std::string& path = drafting.path;
  AERIE_ASSIGN_OR_RETURN(HeadFile* const file, host.open_head(path, draft_type(config)));
  AERIE_RETURN_IF_ERROR(check_tokenizer(file->name(), *target.tokenizer));
  // Until here nothing is asked of the target's model: who only counts memory has none.
  AERIE_RETURN_IF_ERROR(host.check_memory(path, packed_weight_bytes(*file, *target.backend), 0, 0));
  FeatureNetworkOptions options;
  options.drafter = read_network_options(config, target);
  options.drafter.beams = drafting.beams;
  AERIE_ASSIGN_OR_RETURN(const HeadSettings settings,
                         head_settings(config, target, options.drafter));
  options.drafter.max_rows = kHeadPassRows;
  options.drafter.max_logits =
      std::max(most_nodes_in_pass(options.drafter), draft_depth(options.drafter)) *
      shared_draft_sequences(target);
  options.drafter.pairing = fmt::format("{} for {}", path, target.file->name());
  options.max_positions = target.max_positions;
  options.cache_type = target.cache_type;
  const HeadTarget for_head = head_target(target, options.drafter);
  if (for_head.parts.weights == nullptr) {
    return not_supported("{}: {} has no embedding and output that a head can share", path,
                         target.file->name());
  }
  AERIE_ASSIGN_OR_RETURN(std::unique_ptr<FeatureHead> head,
                         config.method->load_head(*file, for_head, settings));
  if (const size_t taps = head->tap_layers().size();
      taps > static_cast<size_t>(ModelOptions().max_taps)) {
    return not_supported("{}: taps {} layers; up to {} can be tapped", path, taps,
                         ModelOptions().max_taps);
  }
  AERIE_RETURN_IF_ERROR(host.check_memory(
      path, 0,
      KvCache::bytes_needed(head->cache_config(), for_head.max_positions, target.cache_type), 0));
  AERIE_ASSIGN_OR_RETURN(std::unique_ptr<DraftNetwork> network,
                         make_feature_network(std::move(head), options));
  return make_network_drafter(std::move(network), options.drafter);
}

}  // namespace aerie
