#include "train/run/evaluate.h"

#include <memory>

#include "draft/speculative_config.h"

namespace aerie::train {
namespace {

void add(const std::vector<int64_t>& counts, std::vector<double>& sums) {
  if (sums.size() < counts.size()) sums.resize(counts.size());
  for (size_t i = 0; i < counts.size(); ++i) sums[i] += static_cast<double>(counts[i]);
}

double ratio(double a, double b) {
  return b > 0.0 ? a / b : 0.0;
}

}  // namespace

std::string in_folder(const std::string& path, const std::string& folder) {
  return path.starts_with("{}") ? folder + path.substr(2) : path;
}

Expected<SpeculativeConfig> draft_config(const std::string& speculate, const std::string& folder) {
  AERIE_ASSIGN_OR_RETURN(SpeculativeConfig config, parse_speculative_spec(speculate));
  // Only now: a folder's name may hold what the short form would take for its own.
  for (MethodConfig& method : config.methods) {
    for (auto& [key, text] : method.texts) {
      if (text == "{}") text = folder;
    }
  }
  return config;
}

Expected<Acceptance> measure_acceptance(const AcceptanceOptions& options,
                                        const SpeculativeConfig& speculation) {
  if (options.prompts.empty()) {
    return Status(StatusCode::kInvalidArgument, "there are no prompts to measure acceptance with");
  }
  EngineOptions engine_options = options.engine;
  engine_options.rule = VerifyRule::kExact;
  engine_options.speculation = speculation;
  engine_options.speculation.open_gate();
  AERIE_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::open(engine_options));
  Acceptance all;
  int64_t round_tokens = 0;
  double seconds = 0.0;
  for (const std::vector<int32_t>& prompt : options.prompts) {
    Request request;
    request.prompt = prompt;
    request.max_tokens = options.max_tokens;
    request.sampling.temperature = options.temperature;
    request.sampling.seed = options.seed + static_cast<uint64_t>(all.replies);
    request.cancel = options.cancel;
    engine->forget();
    AERIE_ASSIGN_OR_RETURN(const Generation reply, engine->generate(request, {}));
    if (options.cancel != nullptr && options.cancel->load()) {
      return Status(StatusCode::kCancelled, "measuring acceptance was interrupted");
    }
    ++all.replies;
    all.tokens += static_cast<int64_t>(reply.tokens.size());
    all.rounds += reply.stats.rounds;
    all.drafted += reply.stats.drafted;
    all.accepted += reply.stats.accepted;
    round_tokens += reply.stats.round_tokens;
    seconds += reply.generation_seconds;
    add(reply.stats.accepted_at, all.per_position);
  }
  const double rounds = static_cast<double>(all.rounds);
  all.tau = ratio(static_cast<double>(round_tokens), rounds);
  for (double& share : all.per_position) share = ratio(share, rounds);
  all.tokens_per_second = ratio(static_cast<double>(all.tokens - all.replies), seconds);
  return all;
}

}  // namespace aerie::train
