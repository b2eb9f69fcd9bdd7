#include "engine/opened_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "base/errors.h"
#include "base/log.h"
#include "base/system/topology.h"
#include "draft/lookup/forced_text.h"
#include "draft/make_drafter.h"
#include "engine/engine_draft_host.h"
#include "engine/placement/memory.h"
#include "engine/profile.h"
#include "engine/rank_setup.h"
#include "hub/hub_cache.h"
#include "hub/hub_name.h"
#include "hub/locate.h"
#include "model/device/divided_model.h"
#include "model/device/load_device_model.h"
#include "model/import/suggested_sampling.h"
#include "parallel/leading_model.h"
#include "parallel/split_backend.h"

namespace aerie {
namespace {

// Rows of a pass of several sequences that drafts may take up, beside their roots.
constexpr int kSharedDraftRows = 64;

// All that have to be there, whatever memory is free.
int64_t least_positions(const EngineOptions& options, const Concurrency& concurrency) {
  // A sequence that shares its last page needs one more to go on in.
  const auto context = int64_t{options.context} + kernels::kPagePositions;
  if (concurrency.cache_positions == Concurrency::kAll) return context * concurrency.sequences;
  return std::max(context, concurrency.cache_positions);
}

// Of layers with a window: those of all sequences, and of as many beginnings that are kept.
KvCache::Windows window_sizes(const DecoderOptions& decoder, int sequences) {
  return {.rows = decoder.max_rows, .sequences = (decoder.reuse_prefixes ? 2 : 1) * sequences};
}

// At most `most`, that `bytes` suffice for; `needed` says how many so many take.
int64_t positions_in(int64_t bytes, int64_t most, const std::function<int64_t(int64_t)>& needed) {
  int64_t fit = 0, pages = most / kernels::kPagePositions;
  while (fit < pages) {
    const int64_t middle = (fit + pages + 1) / 2;
    const bool fits = needed(middle * kernels::kPagePositions) <= bytes;
    (fits ? fit : pages) = fits ? middle : middle - 1;
  }
  return fit * kernels::kPagePositions;
}

// Of a model with linear attention: rows of the pass under way and of the one before it, and
// prompts that were read, for others that begin alike.
KvCache::States state_sizes(const DecoderOptions& decoder, int sequences) {
  constexpr int kKeptBeginnings = 4;
  return {2 * (int64_t{decoder.max_logits} + sequences),
          decoder.reuse_prefixes ? std::max(kKeptBeginnings, sequences) : 0};
}

// Whether what drafts keeps keys and values of its own.
bool has_own_cache(const SpeculativeConfig& config) {
  return std::ranges::any_of(config.methods,
                             [](const MethodConfig& one) { return one.method->has_cache; });
}

// Whether it asks what passes cost.
bool decides_by_cost(const SpeculativeConfig& config) {
  return config.combination == Combination::kAuto || config.gated();
}

class Opening {
 public:
  Opening(OpenedModel& out, const Concurrency& concurrency)
      : out_(out), options_(out.options), concurrency_(concurrency) {}

  Status open();

 private:
  bool divide(const ModelConfig& config, int context, const Status& opened);
  bool drafts_have_caches() const;
  Status open_source();
  int context_by_memory(const ModelConfig& config);
  Status use_profile();
  void set_decoder();
  Status use_group();
  // Whose memory the model takes: the processor's, a device's, or of each for its layers.
  struct Side {
    MemoryRoom* room;
    LayerRange layers;
    bool is_device;
  };
  std::vector<Side> sides();
  int64_t free_memory(const Side& side) const;
  int64_t weight_bytes(const Side& side) const;
  int64_t work_bytes(const Side& side, const ModelConfig& config) const;
  int64_t cache_bytes(const Side& side, const ModelConfig& config, KvCache::Creation cache) const;
  std::function<int64_t(int64_t)> needed_on(const Side& side, const ModelConfig& config) const;
  KvCache::Windows windows() const;
  double cache_share(const Side& side) const;
  MemoryNeed least_need(const Side& side, const ModelConfig& config) const;
  KvCache::Creation cache_of(int64_t positions) const;
  int64_t cache_positions(const ModelConfig& config);
  Status load();
  Status open_target(const ModelConfig& config);
  Status open_cache(const ModelConfig& config);
  Status open_drafters();
  Expected<PassCost> find_pass_cost(int max_rows);

  OpenedModel& out_;
  EngineOptions& options_;
  const Concurrency& concurrency_;
  const kernels::Backend* backend_ = nullptr;
  int asked_threads_ = 0;           // options_.threads, as they were
  std::optional<Profile> profile_;  // if there is one that holds here
};

Status Opening::open() {
  if (options_.tensor_parallel > 1 && !options_.group) {
    return invalid_argument("{} processes: they have to find each other first (join_ranks())",
                            options_.tensor_parallel);
  }
  asked_threads_ = options_.threads;
  if (options_.threads == 0) options_.threads = default_threads();
  if (options_.threads < 1 || options_.threads > 1024) {
    return invalid_argument("{} threads: give 1 to 1024, or 0 for all", options_.threads);
  }
  backend_ = kernels::backend(options_.isa);
  if (backend_ == nullptr) {
    return not_supported("this processor does not have {}", kernels::isa_name(options_.isa));
  }
  if (options_.group) AERIE_RETURN_IF_ERROR(use_group());
  out_.pool = std::make_unique<ThreadPool>(options_.threads);
  if (options_.draft_threads < 0 || options_.draft_threads > 1024) {
    return invalid_argument("{} threads for drafts: give 1 to 1024, or 0 for those of the model",
                            options_.draft_threads);
  }
  if (options_.draft_threads > 0 && options_.draft_threads != options_.threads) {
    out_.draft_pool = std::make_unique<ThreadPool>(options_.draft_threads);
  }
  AERIE_RETURN_IF_ERROR(open_source());
  if (!options_.chat_template.empty()) {
    AERIE_RETURN_IF_ERROR(use_chat_template(options_.chat_template, out_.source));
  }
  AERIE_ASSIGN_OR_RETURN(ModelConfig config, read_model_config(*out_.source.file));
  if (options_.group) config.rank = {options_.group->rank(), options_.group->size()};
  AERIE_ASSIGN_OR_RETURN(out_.device,
                         choose_device(options_, *out_.source.file, config, DeviceAccess::real()));
  if (out_.device) {
    const EngineOptions asked = options_;
    const int64_t taken = out_.memory.taken;
    const auto begin_again = [&] {
      out_.cache.reset();
      out_.model.reset();
      out_.device->room.taken = 0;
      out_.memory.taken = taken;
      options_ = asked;
    };
    Status opened = open_target(config);
    if (!opened.ok()) {
      const int context = options_.context;
      begin_again();
      if (divide(config, context, opened)) opened = open_target(config);
    }
    if (opened.ok()) {
      if (const int first = out_.device->first_layer; first > 0) {
        options_.device_layers = config.layers - first;
      }
      return open_drafters();
    }
    AERIE_RETURN_IF_ERROR(leave_device(asked, *out_.device, std::move(opened)));
    begin_again();
    out_.device.reset();
  }
  AERIE_RETURN_IF_ERROR(open_target(config));
  return open_drafters();
}

// Whether a model that was not opened for want of the device's memory, with this context, may have
// some of its layers there, as was asked: then the device is for those.
bool Opening::divide(const ModelConfig& config, int context, const Status& opened) {
  if (opened.code() != StatusCode::kResourceExhausted ||
      options_.device_layers != EngineOptions::kLayersThatFit) {
    return false;
  }
  // Servers want a larger cache than the least, and drafts may want one of their own.
  const bool wants_more =
      concurrency_.cache_positions == Concurrency::kRoom || drafts_have_caches();
  const int64_t free = out_.device->room.free() / 4 * (wants_more ? 3 : 4);
  const int asked_context = std::exchange(options_.context, context);
  bool fits = false;
  for (int first = 1; first < config.layers && !fits; ++first) {
    if (!config.divides_at(first)) continue;
    out_.device->first_layer = first;
    fits = least_need(sides().front(), config).all() <= free;
  }
  options_.context = asked_context;
  if (!fits) {
    out_.device->first_layer = 0;
    return false;
  }
  const int layers = config.layers - out_.device->first_layer;
  log(LogLevel::kWarning,
      fmt::format("{}: there is room for {} of {} layers (--n-gpu-layers {}); the processor "
                  "computes the others: {}",
                  out_.device->name, layers, config.layers, layers, opened.message()));
  return true;
}

// The model and its cache, on the device that was chosen.
Status Opening::open_target(const ModelConfig& config) {
  options_.device = out_.device ? out_.device->name : "cpu";
  if (options_.context == 0) {
    options_.context = options_.default_context > 0
                           ? std::min(config.context, options_.default_context)
                           : context_by_memory(config);
  }
  if (options_.context < 2 || options_.context > config.context) {
    return invalid_argument("a context of {}: {} was trained for 2 to {}", options_.context,
                            options_.model, config.context);
  }
  AERIE_RETURN_IF_ERROR(use_profile());
  set_decoder();
  ModelOptions& model_options = out_.model_options;
  model_options.backend = backend_;
  model_options.pool = out_.pool.get();
  model_options.max_rows = out_.decoder.max_rows;
  model_options.max_logits = out_.decoder.max_logits;
  model_options.max_positions = options_.context;
  model_options.weight_cache = options_.weight_cache;
  if (concurrency_.max_taps >= 0) model_options.max_taps = concurrency_.max_taps;
  return open_cache(config);
}

Status Opening::open_source() {
  if (!options_.make_file) {
    AERIE_ASSIGN_OR_RETURN(options_.model, locate_model(options_.model));
    AERIE_ASSIGN_OR_RETURN(out_.source,
                           open_model_source(options_.model, options_.weight_type, *out_.pool));
    return {};
  }
  AERIE_ASSIGN_OR_RETURN(std::unique_ptr<ModelFile> file, options_.make_file(*out_.pool));
  AERIE_ASSIGN_OR_RETURN(out_.source, model_source_of(std::move(file), options_.model,
                                                      options_.weight_type, *out_.pool));
  return {};
}

// The model's own, as far as the cache that was asked for has room, and its share of the memory
// that the weights leave; at least the usual default, where it may turn out that that does not fit.
int Opening::context_by_memory(const ModelConfig& config) {
  int64_t most = config.context;
  if (concurrency_.cache_positions > 0) most = std::min(most, concurrency_.cache_positions);
  options_.context = static_cast<int>(most);
  set_decoder();
  const int64_t least = std::min<int64_t>(most, EngineOptions::kDefaultContext);
  for (const Side& side : sides()) {
    const int64_t free = free_memory(side);
    if (free < 0) continue;
    // On a device what passes work with has to be there from the beginning.
    const int64_t work = side.is_device ? work_bytes(side, config) : 0;
    const int64_t left = free - weight_bytes(side) - work;
    const double share = cache_share(side) * static_cast<double>(std::max<int64_t>(0, left));
    const int64_t fit = positions_in(static_cast<int64_t>(share), most, needed_on(side, config));
    // Of a page that is not whole as much as there is.
    if (fit + kernels::kPagePositions <= most) most = fit;
  }
  return static_cast<int>(std::max(least, most));
}

Status Opening::use_profile() {
  profile_.reset();
  if (options_.profile.empty()) return {};
  AERIE_ASSIGN_OR_RETURN(Profile profile, read_profile(options_.profile));
  ProfileKey now =
      profile_key(*out_.source.file, options_.isa, options_.threads, options_.cache_type);
  now.device = out_.device_make();
  if (const std::string other = difference(profile.key, now); !other.empty()) {
    log(LogLevel::kWarning,
        fmt::format("{}: made elsewhere ({}), so it is not used; run `aerie tune` again",
                    options_.profile, other));
    return {};
  }
  profile_ = std::move(profile);
  if (!options_.profile_use) return {};
  const ProfileUse& use = *options_.profile_use;
  double temperature = use.asked.value_or(use.usual);
  if (!use.asked && use.recommended) {
    AERIE_ASSIGN_OR_RETURN(const SuggestedSampling own, read_suggested_sampling(*out_.source.file));
    temperature = own.temperature.value_or(use.usual);
  }
  const ProfileChoice* choice = choice_for(*profile_, temperature, 1);
  if (choice == nullptr) return {};
  auto chosen = parse_speculative_spec(choice->speculate);
  if (!chosen.ok()) return chosen.status().with_context(options_.profile);
  options_.speculation = std::move(*chosen);
  log(LogLevel::kInfo, fmt::format("{}: {}: {}", options_.profile, choice->speculate, choice->why));
  return {};
}

void Opening::set_decoder() {
  DecoderOptions& decoder = out_.decoder;
  decoder.rule = options_.rule;
  decoder.reuse_prefixes = options_.reuse_prefixes;
  decoder.max_positions = options_.context;
  decoder.max_nodes = std::max(options_.speculation.tokens(), options_.draft_room);
  for (const SpeculativeConfig& more : options_.more_speculations) {
    decoder.max_nodes = std::max(decoder.max_nodes, more.tokens());
  }
  const int others = concurrency_.sequences - 1;
  decoder.max_logits = decoder.max_nodes + 1 + others;
  if (others > 0 && decoder.max_nodes > 0) decoder.max_logits += kSharedDraftRows;
  decoder.max_logits = std::max(decoder.max_logits, concurrency_.pass_logits);
  decoder.prefill_chunk = std::clamp(options_.prefill_chunk, 1, options_.context);
  decoder.max_rows = std::max(decoder.prefill_chunk, decoder.max_logits);
  // Drafts stand beside pieces of prompts.
  if (concurrency_.pass_rows > 0) {
    decoder.max_rows = std::max(decoder.max_rows, concurrency_.pass_rows + decoder.max_logits);
  }
}

// What this process has of the model, and of its matrices.
Status Opening::use_group() {
  Group& group = *options_.group;
  if (options_.make_file) {
    return invalid_argument(
        "{}: --tensor-parallel needs a file that every process opens: write one with `aerie bench "
        "make-model`",
        options_.model);
  }
  if (!options_.weight_cache.empty()) {
    return invalid_argument(
        "--weight-cache keeps whole matrices, and --tensor-parallel has parts: leave one out");
  }
  out_.split = std::make_unique<SplitBackend>(*backend_, group);
  backend_ = out_.split.get();
  return {};
}

std::vector<Opening::Side> Opening::sides() {
  if (!out_.device) return {{&out_.memory, {}, false}};
  const int first = out_.device->first_layer;
  std::vector<Side> sides = {{&out_.device->room, {.first = first}, true}};
  if (first > 0) sides.push_back({&out_.memory, {.end = first}, false});
  return sides;
}

// Of what is free, what is for this process: ranks on one machine take as much each. -1: unknown.
int64_t Opening::free_memory(const Side& side) const {
  if (side.is_device) return side.room->free();
  return memory_of_each(side.room->free(), options_.group ? options_.group->neighbours() : 1);
}

int64_t Opening::weight_bytes(const Side& side) const {
  const ModelFile& file = *out_.source.file;
  if (side.is_device) return device_weight_bytes(file, side.layers);
  int64_t again = 0;
  // Of a model that is divided either part has the tables here that tokens are looked up in.
  for (const char* name :
       {"token_embd.weight", "per_layer_token_embd.weight", "position_embd.weight"}) {
    const TensorInfo* table = side.layers.is_part() ? file.find_tensor(name) : nullptr;
    if (table != nullptr) again += table->bytes;
  }
  return loaded_weight_bytes(file, *backend_, side.layers) + again;
}

int64_t Opening::work_bytes(const Side& side, const ModelConfig& config) const {
  if (side.is_device) return device_working_bytes(*out_.source.file, out_.model_options);
  if (!side.layers.is_part()) return working_bytes(config, out_.model_options);
  return working_bytes(config, DividedModel::of_front(out_.model_options, side.layers.end));
}

int64_t Opening::cache_bytes(const Side& side, const ModelConfig& config,
                             KvCache::Creation cache) const {
  if (!side.layers.is_part()) return KvCache::bytes_needed(config, cache);
  cache.planes = KvCache::Planes::kElsewhere;
  cache.here = out_.device->first_layer;
  const int64_t here = KvCache::bytes_here(config, cache);
  return side.is_device ? KvCache::bytes_needed(config, cache) - here : here;
}

// What a cache of so many positions takes; in the processor's memory, where nothing is divided, its
// states apart, which are there as they are used.
std::function<int64_t(int64_t)> Opening::needed_on(const Side& side,
                                                   const ModelConfig& config) const {
  return [this, side, &config](int64_t positions) {
    if (side.is_device || side.layers.is_part()) {
      return cache_bytes(side, config, cache_of(positions));
    }
    return KvCache::bytes_needed(config, positions, options_.cache_type, windows());
  };
}

// On a device all layers hold all positions.
KvCache::Windows Opening::windows() const {
  if (out_.device) return {0, 0, 0};
  return window_sizes(out_.decoder, concurrency_.sequences);
}

bool Opening::drafts_have_caches() const {
  return has_own_cache(options_.speculation) ||
         std::ranges::any_of(options_.more_speculations, has_own_cache);
}

// What is free of the processor's memory serves its files and others, too. A device's serves the
// model, and what drafts for it there.
double Opening::cache_share(const Side& side) const {
  if (!side.is_device) return options_.cache_share;
  const double most = drafts_have_caches() ? 0.65 : 0.9;
  return std::min(most, 2.0 * most * options_.cache_share);
}

// All ranks load at the same time, and none is left with a model that another could not open.
Status Opening::load() {
  const ModelFile& file = *out_.source.file;
  if (out_.device) {
    AERIE_ASSIGN_OR_RETURN(out_.model,
                           load_device_model(file, out_.model_options, *out_.device->device,
                                             out_.device->first_layer));
    return {};
  }
  if (!options_.group) {
    AERIE_ASSIGN_OR_RETURN(out_.model, load_model(file, out_.model_options));
    return {};
  }
  Group& group = *options_.group;
  AERIE_ASSIGN_OR_RETURN(const RankSetup setup,
                         rank_setup(options_, asked_threads_, file, out_.model_options));
  tell_setup(setup, group);
  Expected<std::unique_ptr<Model>> own = load_model(file, out_.model_options);
  const Status others = collect_statuses(group);
  if (!others.ok() || !own.ok()) {
    tell_end(group);
    return others.ok() ? own.status() : others;
  }
  out_.model = std::make_unique<LeadingModel>(std::move(*own), group);
  return {};
}

Status Opening::open_cache(const ModelConfig& config) {
  for (const Side& side : sides()) {
    const MemoryNeed need = least_need(side, config);
    AERIE_RETURN_IF_ERROR(side.is_device ? check_device_memory(options_.model, need, *out_.device)
                                         : check_memory(options_.model, need, free_memory(side)));
  }
  AERIE_RETURN_IF_ERROR(load());
  for (const Side& side : sides()) {
    side.room->taken += weight_bytes(side) + work_bytes(side, config);
  }
  // What is free now is known best once the weights are there.
  const KvCache::Creation creation = cache_of(cache_positions(config));
  AERIE_ASSIGN_OR_RETURN(out_.cache, make_cache(*out_.model, creation));
  for (const Side& side : sides()) {
    side.room->taken += cache_bytes(side, config, out_.cache->creation());
  }
  return {};
}

KvCache::Creation Opening::cache_of(int64_t positions) const {
  return {positions, concurrency_.sequences, options_.cache_type,
          state_sizes(out_.decoder, concurrency_.sequences), windows()};
}

// With the smallest cache that will do.
MemoryNeed Opening::least_need(const Side& side, const ModelConfig& config) const {
  MemoryNeed need;
  need.weights = weight_bytes(side);
  need.cache = cache_bytes(side, config, cache_of(least_positions(options_, concurrency_)));
  need.work = work_bytes(side, config);
  return need;
}

int64_t Opening::cache_positions(const ModelConfig& config) {
  const int64_t least = least_positions(options_, concurrency_);
  if (concurrency_.cache_positions != Concurrency::kRoom) return least;
  int64_t positions = least * concurrency_.sequences;
  for (const Side& side : sides()) {
    const int64_t free = free_memory(side);
    if (free < 0) continue;
    const auto bytes = static_cast<int64_t>(static_cast<double>(free) * cache_share(side));
    positions = positions_in(bytes, positions, needed_on(side, config));
  }
  return std::max(least, positions);
}

Status Opening::open_drafters() {
  DraftTarget target = draft_target(out_, concurrency_.sequences);
  std::vector<SpeculativeConfig> configs = options_.more_speculations;
  configs.insert(configs.begin(), options_.speculation);
  if (std::ranges::any_of(configs, decides_by_cost) || options_.draft_room > 0) {
    AERIE_ASSIGN_OR_RETURN(PassCost cost, find_pass_cost(target.max_rows));
    out_.cost = std::make_unique<PassCost>(std::move(cost));
    target.cost = out_.cost.get();
    out_.decoder.cost = out_.cost.get();
  }
  out_.speculations.resize(configs.size());
  for (size_t i = 0; i < configs.size(); ++i) {
    OpenedModel::Speculation& one = out_.speculations[i];
    one.max_nodes = configs[i].tokens();
    EngineDraftHost host(target, one.sources, &out_.memory, out_.device.get());
    AERIE_ASSIGN_OR_RETURN(one.drafter, make_drafter_for_text(configs[i], host));
  }
  return {};
}

Expected<PassCost> Opening::find_pass_cost(int max_rows) {
  if (profile_) return PassCost(profile_->pass_cost);
  std::optional<Turns::Member> turn;  // so that nothing else runs meanwhile
  if (options_.turns != nullptr) turn.emplace(options_.turns).begin();
  PassCostLimits limits = {max_rows};
  limits.max_positions = options_.context;
  auto cost = measure_pass_cost(*out_.model, *out_.cache, limits);
  if (turn) turn->end(false);
  return cost;
}

}  // namespace

DraftTarget draft_target(const OpenedModel& opened, int sequences) {
  DraftTarget target;
  target.tokenizer = opened.source.tokenizer.get();
  target.vocab = opened.model->config().vocab;
  target.model = opened.model.get();
  target.file = opened.source.file.get();
  target.model_rows = opened.decoder.max_rows;
  target.max_positions = opened.options.context;
  target.max_sequences = sequences;
  target.cache_positions = opened.cache->positions();
  target.backend = kernels::backend(opened.options.isa);
  target.pool = opened.draft_pool ? opened.draft_pool.get() : opened.pool.get();
  target.weight_cache = opened.options.weight_cache;
  target.cache_type = opened.options.cache_type;
  target.max_rows = std::min(opened.decoder.max_rows, opened.decoder.max_logits);
  target.custom = opened.options.custom_drafter;
  return target;
}

Expected<std::unique_ptr<Drafter>> make_drafter_for_text(const SpeculativeConfig& config,
                                                         DraftHost& host) {
  AERIE_ASSIGN_OR_RETURN(std::unique_ptr<Drafter> drafter, make_drafter(config, host));
  if (drafter == nullptr) return drafter;
  const DraftTarget& target = host.target();
  return make_forced_text_drafter(std::move(drafter), *target.tokenizer,
                                  decides_by_cost(config) ? target.cost : nullptr);
}

std::string model_name(const std::string& model) {
  if (std::string repo = repo_of_path(model); !repo.empty()) return repo;
  std::filesystem::path name = std::filesystem::path(model).lexically_normal();
  std::error_code ignored;
  if (const auto hub = parse_hub_name(model); hub && !std::filesystem::exists(name, ignored)) {
    return hub->repo;
  }
  if (!name.has_filename()) name = name.parent_path();  // a folder with a slash at its end
  if (name.extension() == ".gguf") return name.stem().string();
  return name.filename().string();
}

std::string OpenedModel::name() const {
  return model_name(options.model);
}

Expected<OpenedModel> open_model(const EngineOptions& options, const Concurrency& concurrency) {
  OpenedModel opened;
  opened.options = options;
  opened.memory.limit = options.memory_bytes;
  AERIE_RETURN_IF_ERROR(Opening(opened, concurrency).open());
  return opened;
}

}  // namespace aerie
