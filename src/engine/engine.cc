#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/log.h"
#include "engine/memory.h"
#include "engine/profile.h"

namespace aerie {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

double Generation::tokens_per_second() const {
  const auto after_first = static_cast<double>(tokens.size()) - 1.0;
  return after_first > 0.0 && generation_seconds > 0.0 ? after_first / generation_seconds : 0.0;
}

double Generation::prompt_tokens_per_second() const {
  return prompt_seconds > 0.0 ? prompt_tokens / prompt_seconds : 0.0;
}

Engine::~Engine() = default;

Expected<std::unique_ptr<Engine>> Engine::open(const EngineOptions& options) {
  std::unique_ptr<Engine> engine(new Engine);
  engine->options_ = options;
  AERIE_RETURN_IF_ERROR(engine->load());
  return engine;
}

Status Engine::load() {
  if (options_.threads == 0) options_.threads = available_cpus();
  if (options_.threads < 1 || options_.threads > 1024) {
    return {StatusCode::kInvalidArgument,
            fmt::format("{} threads: give 1 to 1024, or 0 for all", options_.threads)};
  }
  const kernels::Backend* backend = kernels::backend(options_.isa);
  if (backend == nullptr) {
    return {StatusCode::kUnsupported,
            fmt::format("this processor does not have {}", kernels::isa_name(options_.isa))};
  }
  pool_ = std::make_unique<ThreadPool>(options_.threads);
  AERIE_ASSIGN_OR_RETURN(source_, open_model_source(options_.model, options_.weight_type, *pool_));
  AERIE_ASSIGN_OR_RETURN(const ModelConfig config, read_model_config(*source_.file));
  if (options_.context == 0) {
    options_.context = std::min(config.context, EngineOptions::kDefaultContext);
  }
  if (options_.context < 2 || options_.context > config.context) {
    return {StatusCode::kInvalidArgument,
            fmt::format("a context of {}: {} was trained for 2 to {}", options_.context,
                        options_.model, config.context)};
  }

  decoder_options_.rule = options_.rule;
  decoder_options_.max_positions = options_.context;
  decoder_options_.max_nodes = options_.speculation.tokens();
  for (const SpeculativeConfig& more : options_.more_speculations) {
    decoder_options_.max_nodes = std::max(decoder_options_.max_nodes, more.tokens());
  }
  decoder_options_.max_logits = decoder_options_.max_nodes + 1;
  decoder_options_.prefill_chunk = std::clamp(options_.prefill_chunk, 1, options_.context);
  decoder_options_.max_rows = std::max(decoder_options_.prefill_chunk, decoder_options_.max_logits);

  ModelOptions model_options;
  model_options.backend = backend;
  model_options.pool = pool_.get();
  model_options.max_rows = decoder_options_.max_rows;
  model_options.max_logits = decoder_options_.max_logits;
  model_options.max_positions = options_.context;
  model_options.weight_cache = options_.weight_cache;
  AERIE_RETURN_IF_ERROR(
      check_memory(options_.model, packed_weight_bytes(*source_.file, *backend),
                   KvCache::bytes_needed(config, options_.context, options_.cache_type),
                   working_bytes(config, model_options), available_memory()));
  AERIE_ASSIGN_OR_RETURN(model_, load_model(*source_.file, model_options));
  AERIE_ASSIGN_OR_RETURN(KvCache cache,
                         KvCache::create(config, options_.context, 1, options_.cache_type));
  cache_ = std::make_unique<KvCache>(std::move(cache));

  DraftTarget target;
  target.tokenizer = source_.tokenizer.get();
  target.vocab = config.vocab;
  target.model = model_.get();
  target.file = source_.file.get();
  target.model_rows = decoder_options_.max_rows;
  target.max_positions = options_.context;
  target.backend = backend;
  target.pool = pool_.get();
  target.weight_cache = options_.weight_cache;
  target.cache_type = options_.cache_type;
  target.max_rows = std::min(decoder_options_.max_rows, decoder_options_.max_logits);
  return open_drafters(target);
}

Status Engine::open_drafters(DraftTarget& target) {
  std::vector<SpeculativeConfig> configs = options_.more_speculations;
  configs.insert(configs.begin(), options_.speculation);
  const bool decides = std::any_of(configs.begin(), configs.end(), [](const auto& config) {
    return config.combination == Combination::kAuto;
  });
  if (decides) {
    AERIE_ASSIGN_OR_RETURN(PassCost cost, find_pass_cost(target.max_rows));
    cost_ = std::make_unique<PassCost>(std::move(cost));
    target.cost = cost_.get();
    decoder_options_.cost = cost_.get();
  }
  speculations_.resize(configs.size());
  for (size_t i = 0; i < configs.size(); ++i) {
    Speculation& one = speculations_[i];
    one.max_nodes = configs[i].tokens();
    AERIE_ASSIGN_OR_RETURN(one.drafter, make_drafter(configs[i], target, one.sources));
  }
  return {};
}

Expected<PassCost> Engine::find_pass_cost(int max_rows) {
  if (!options_.profile.empty()) {
    AERIE_ASSIGN_OR_RETURN(Profile profile, read_profile(options_.profile));
    const ProfileKey now =
        profile_key(*source_.file, options_.isa, options_.threads, options_.cache_type);
    const std::string other = difference(profile.key, now);
    if (other.empty()) return PassCost(std::move(profile.pass_cost));
    log(LogLevel::kWarning,
        fmt::format("{}: made elsewhere ({}): measuring what passes cost instead; run `aerie tune` "
                    "again",
                    options_.profile, other));
  }
  return measure_pass_cost(*model_, *cache_, {max_rows});
}

Expected<Generation> Engine::generate(const GenerateRequest& request, const OnText& on_text) {
  if (request.speculation < 0 || request.speculation >= static_cast<int>(speculations_.size())) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("speculation {}: the engine was opened with 0 to {}",
                              request.speculation, speculations_.size() - 1));
  }
  const Speculation& speculation = speculations_[static_cast<size_t>(request.speculation)];
  DecoderOptions decoder_options = decoder_options_;
  decoder_options.max_nodes = speculation.max_nodes;
  // Without its drafter, a plain run computes nothing that only the drafter wants.
  Decoder decoder(*model_, *cache_, request.speculate ? speculation.drafter.get() : nullptr,
                  decoder_options);
  Reply reply(*source_.tokenizer, request.stop, request.ignore_eos);
  SequenceOptions options;
  options.sampling = request.sampling;
  options.max_tokens = request.max_tokens > 0 ? request.max_tokens : options_.context;
  options.stop = &reply;
  options.speculate = request.speculate;
  options.prediction = request.prediction;
  AERIE_ASSIGN_OR_RETURN(const std::unique_ptr<Sequence> sequence,
                         decoder.open(request.prompt, options));
  Generation out;
  const Status status = run(decoder, *sequence, request, reply, on_text, out);
  decoder.close(*sequence);
  if (!status.ok()) return status;
  out.finish = sequence->finish;
  out.stats = sequence->stats;
  out.times = decoder.times();
  out.prompt_tokens = sequence->prompt_length;
  out.target_passes = decoder.target_passes();
  return out;
}

void Engine::forget() {
  for (const Speculation& speculation : speculations_) {
    if (speculation.drafter != nullptr) speculation.drafter->forget();
  }
}

Status Engine::run(Decoder& decoder, Sequence& sequence, const GenerateRequest& request,
                   Reply& reply, const OnText& on_text, Generation& out) {
  size_t shown = 0;
  const auto take = [&] {
    for (EmittedToken& token : sequence.emitted) {
      out.tokens.push_back(token.id);
      out.emitted.push_back(std::move(token));
    }
    if (reply.text().size() > shown && on_text) {
      on_text(std::string_view(reply.text()).substr(shown));
    }
    shown = reply.text().size();
  };
  const auto start = Clock::now();
  if (Status status = decoder.prefill(sequence, request.cancel); !status.ok()) {
    return status.code() == StatusCode::kCancelled ? Status() : status;
  }
  out.prompt_seconds = seconds_since(start);
  out.prompt_times = decoder.times();
  take();
  const auto first = Clock::now();
  auto last = first;
  Sequence* const batch[] = {&sequence};
  while (sequence.finish == FinishReason::kNone) {
    if (request.cancel != nullptr && request.cancel->load()) break;
    AERIE_RETURN_IF_ERROR(decoder.round(batch));
    const auto now = Clock::now();
    out.rounds.push_back({static_cast<int>(sequence.emitted.size()),
                          std::chrono::duration<double>(now - last).count()});
    last = now;
    take();
  }
  out.generation_seconds = seconds_since(first);
  sequence.emitted.clear();
  reply.finish();
  take();
  out.text = reply.text();
  return {};
}

}  // namespace aerie
