#include "draft/heads/heads.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <filesystem>
#include <functional>
#include <utility>

#include "base/errors.h"
#include "base/log.h"
#include "draft/heads/feature_network.h"
#include "draft/heads/head_machine.h"
#include "draft/method_settings.h"
#include "draft/network/draft_vocabulary.h"
#include "draft/network/layer_skip.h"
#include "draft/network/vocabulary_map.h"
#include "kernels/device/pack.h"
#include "kv/kv_cache.h"
#include "model/registry.h"
#include "tensor/quantize.h"

namespace aerie {
namespace {

using CheckMemory = std::function<Status(int64_t cache_bytes, int64_t work_bytes)>;

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
  out.config = &target.model->config();
  out.file = target.file;
  out.backend = target.backend;
  out.pool = target.pool;
  out.max_rows = drafter.max_rows;
  out.max_logits = drafter.max_logits;
  out.max_positions = target.max_positions + kMostHeadDepth;
  out.ranks = drafter.shape != nullptr ? drafter.shape->most_ranks() : drafter.top_k;
  return out;
}

// What its weights take of a device's memory, about; embeddings stay with the host.
int64_t device_head_bytes(const HeadFile& file) {
  int64_t bytes = 0;
  for (const TensorInfo& tensor : file.tensors()) {
    if (!tensor.dtype || tensor.name.find("emb") != std::string::npos) continue;
    const TensorView view = {*tensor.dtype, Device::kCpu, tensor.shape, nullptr};
    if (view.rows() == 1) continue;
    bytes += device::panels_of(view.rows()) *
             device::panel_bytes(device::kind_of(view.dtype), view.row_length()).all();
  }
  return bytes;
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

namespace {

// A head's making, once it is known how it drafts.
struct Making {
  const MethodConfig& config;
  DraftHost& host;
  const std::string& path;
  FeatureNetworkOptions options;
  HeadSettings settings;
};

// The cache, and beside it what chains ahead of the host take, as far as there is room. Nothing is
// taken of the device before all of it is known.
Status fit_ahead(const Making& making, const FeatureHead& head, const CheckMemory& check_memory,
                 FeatureNetworkOptions& options) {
  const int64_t cache = KvCache::bytes_needed(head.cache_config(), feature_cache(head, options));
  const NetworkDrafterOptions& drafter = options.drafter;
  const int levels = levels_behind(drafter);
  const int64_t for_levels = levels > 0 ? head.level_bytes(levels) : 0;
  const bool are_chains = drafts_chains(drafter) && (levels == 0 || for_levels > 0);
  const Model* target = making.host.target().model;
  const bool is_verified = making.config.is_alone && target != nullptr && target->can_begin();
  const int64_t for_found = are_chains && is_verified ? head.found_bytes() : 0;
  options.tells = for_found > 0 && check_memory(cache, for_levels + for_found).ok();
  options.ahead = for_levels > 0 && (options.tells || check_memory(cache, for_levels).ok());
  return options.tells || options.ahead ? Status() : check_memory(cache, 0);
}

Expected<std::unique_ptr<DraftNetwork>> make_network(const Making& making, HeadFile& file,
                                                     const HeadTarget& target,
                                                     const CheckMemory& check_memory) {
  AERIE_ASSIGN_OR_RETURN(std::unique_ptr<FeatureHead> head,
                         making.config.method->load_head(file, target, making.settings));
  if (const size_t taps = head->tap_layers().size();
      taps > static_cast<size_t>(ModelOptions().max_taps)) {
    return not_supported("{}: taps {} layers; up to {} can be tapped", making.path, taps,
                         ModelOptions().max_taps);
  }
  if (target.device != nullptr) {
    const Status packed = target.device->packer->status();
    target.device->packer.reset();
    AERIE_RETURN_IF_ERROR(packed);
  }
  FeatureNetworkOptions options = making.options;
  AERIE_RETURN_IF_ERROR(fit_ahead(making, *head, check_memory, options));
  return make_feature_network(std::move(head), options);
}

// On the device that computes the target.
Expected<std::unique_ptr<DraftNetwork>> make_on_device(const Making& making, HeadFile& file) {
  DraftHost& host = making.host;
  HeadTarget for_head = head_target(host.target(), making.options.drafter);
  put_on_device(host.target().model->device_parts(), for_head);
  if (levels_behind(making.options.drafter) > 0) {
    // A graph's levels have rows for a power of two of sequences each.
    const auto sequences = static_cast<unsigned>(shared_draft_sequences(host.target()));
    for_head.max_logits =
        std::max(for_head.max_logits,
                 draft_depth(making.options.drafter) * static_cast<int>(std::bit_ceil(sequences)));
  }
  const int64_t weights = device_head_bytes(file);
  const int64_t work = int64_t{for_head.max_logits} * for_head.config->vocab * 4;
  AERIE_RETURN_IF_ERROR(host.check_device_memory(making.path, weights, 0, work));
  int64_t taken = weights + work;
  auto network = make_network(making, file, for_head, [&](int64_t cache, int64_t more_work) {
    const Status status = host.check_device_memory(making.path, 0, cache, more_work);
    if (status.ok()) taken += cache + more_work;
    return status;
  });
  if (!network.ok()) host.return_device_memory(taken);
  return network;
}

Expected<std::unique_ptr<DraftNetwork>> make_on_host(const Making& making, HeadFile& file) {
  const DraftTarget& target = making.host.target();
  HeadTarget for_head = head_target(target, making.options.drafter);
  for_head.parts = target.model->parts();
  if (for_head.parts.weights == nullptr) {
    return not_supported("{}: {} has no embedding and output that a head can share", making.path,
                         target.file->name());
  }
  return make_network(making, file, for_head, [&](int64_t cache, int64_t work) {
    return making.host.check_memory(making.path, 0, cache, work);
  });
}

}  // namespace

void put_on_device(const DeviceParts& on, HeadTarget& target) {
  target.parts = on.parts;
  target.device = std::make_shared<HeadDevice>(*target.backend, *on.device);
  target.backend = &*target.device->packer;
}

Expected<std::unique_ptr<Drafter>> make_head_drafter(const MethodConfig& config, DraftHost& host,
                                                     const HeadDrafting& drafting) {
  const DraftTarget& target = host.target();
  const std::string& path = drafting.path;
  AERIE_ASSIGN_OR_RETURN(HeadFile * file, host.open_head(path, draft_type(config)));
  AERIE_RETURN_IF_ERROR(check_tokenizer(file->name(), *target.tokenizer));
  Making making{config, host, path, {}, {}};
  NetworkDrafterOptions& drafter = making.options.drafter;
  drafter = read_network_options(config, target);
  drafter.beams = drafting.beams;
  const auto check_host_memory = [&] {
    return host.check_memory(path, packed_weight_bytes(*file, *target.backend), 0, 0);
  };
  // Who only counts memory has no model.
  if (target.model == nullptr) {
    AERIE_RETURN_IF_ERROR(check_host_memory());
    return internal_error("{}: there is no target", path);
  }
  AERIE_ASSIGN_OR_RETURN(making.settings, head_settings(config, target, drafter));
  drafter.max_rows = kHeadPassRows;
  drafter.max_logits =
      std::max(most_nodes_in_pass(drafter), draft_depth(drafter)) * shared_draft_sequences(target);
  drafter.pairing = fmt::format("{} for {}", path, target.file->name());
  making.options.max_positions = target.max_positions;
  making.options.cache_type = target.cache_type;
  if (target.model->device_parts().device != nullptr) {
    auto network = make_on_device(making, *file);
    if (network.ok()) return make_network_drafter(std::move(network).value(), drafter);
    const StatusCode code = network.status().code();
    if (code != StatusCode::kUnsupported && code != StatusCode::kResourceExhausted) {
      return network.status();
    }
    log(LogLevel::kWarning,
        fmt::format("{}: the processor computes its drafts: {}", path, network.status().message()));
    // Reading it may have changed it.
    AERIE_ASSIGN_OR_RETURN(file, host.open_head(path, draft_type(config)));
  }
  AERIE_RETURN_IF_ERROR(check_host_memory());
  AERIE_ASSIGN_OR_RETURN(std::unique_ptr<DraftNetwork> network, make_on_host(making, *file));
  return make_network_drafter(std::move(network), drafter);
}

}  // namespace aerie
