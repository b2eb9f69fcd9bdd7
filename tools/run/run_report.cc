#include "tools/run/run_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "decode/sequence.h"

namespace aerie {
namespace {

using Json = nlohmann::ordered_json;

// Acceptance at each depth over all rounds: whether the rounds proposed so deep or not.
std::vector<double> acceptance_by_position(const SequenceStats& stats) {
  std::vector<double> rates;
  for (size_t d = 0; d < stats.accepted_at.size(); ++d) {
    if (stats.proposed_at[d] == 0) break;
    rates.push_back(static_cast<double>(stats.accepted_at[d]) / static_cast<double>(stats.rounds));
  }
  return rates;
}

Json logprobs_json(const Generation& generation, const Tokenizer& tokenizer) {
  const auto entry = [&](const TokenLogprob& one) {
    const bool known = one.token < tokenizer.vocab_size();
    return Json{{"id", one.token},
                {"token", known ? std::string(tokenizer.piece(one.token)) : std::string()},
                {"logprob", one.logprob}};
  };
  Json list = Json::array();
  for (const EmittedToken& token : generation.emitted) {
    if (token.logprobs.empty()) continue;
    Json item = entry(token.logprobs.front());
    item["top"] = Json::array();
    for (size_t i = 1; i < token.logprobs.size(); ++i)
      item["top"].push_back(entry(token.logprobs[i]));
    list.push_back(std::move(item));
  }
  return list;
}

Json report(const Generation& generation, const RunOptions& options, const Engine& engine) {
  const SequenceStats& stats = generation.stats;
  Json out;
  out["model"] = options.engine.model;
  out["speculate"] = to_string(engine.parts().options.speculation);
  out["verify"] = verify_rule_name(options.engine.rule);
  out["isa"] = kernels::isa_name(engine.parts().options.isa);
  out["cache_type"] = kernels::kv_type_name(engine.parts().options.cache_type);
  out["device"] = engine.parts().options.device;
  out["threads"] = engine.parts().options.threads;
  out["context"] = engine.parts().options.context;
  out["temperature"] = options.sampling.temperature;
  out["seed"] = options.sampling.seed;
  out["prompt_tokens"] = generation.prompt_tokens;
  out["generated_tokens"] = generation.tokens.size();
  out["finish_reason"] = finish_reason_name(generation.finish);
  out["text"] = generation.text;
  out["token_ids"] = generation.tokens;
  Json origins = Json::array();
  for (const EmittedToken& token : generation.emitted) {
    origins.push_back(token_origin_name(token.origin));
  }
  out["token_origins"] = std::move(origins);
  if (options.sampling.logprobs >= 0)
    out["logprobs"] = logprobs_json(generation, engine.parts().tokenizer());
  out["prompt_tokens_per_second"] = generation.prompt_tokens_per_second();
  out["tokens_per_second"] = generation.tokens_per_second();
  out["target_passes"] = generation.target_passes;
  out["rounds"] = stats.rounds;
  out["mean_accepted_length"] = stats.mean_accepted_length();
  out["drafted_tokens"] = stats.drafted;
  out["accepted_tokens"] = stats.accepted;
  out["acceptance_rate"] = stats.acceptance_rate();
  out["per_position_acceptance"] = acceptance_by_position(stats);
  Json stages = Json::object();
  for (int s = 0; s < kStages; ++s) {
    const auto stage = static_cast<Stage>(s);
    stages[std::string(stage_name(stage))] = generation.times.of(stage);
  }
  out["stages"] = std::move(stages);
  return out;
}

}  // namespace

std::string closing_line(const Generation& generation, const Engine& engine) {
  const SequenceStats& stats = generation.stats;
  std::string line =
      fmt::format("prompt {} tokens, {:.1f} tokens/s; generated {} tokens, {:.1f} tokens/s",
                  generation.prompt_tokens, generation.prompt_tokens_per_second(),
                  generation.tokens.size(), generation.tokens_per_second());
  line += fmt::format("; τ {:.2f}", stats.mean_accepted_length());
  if (engine.parts().drafter() != nullptr) {
    line += fmt::format("; accepted {} of {} drafted, by position", stats.accepted, stats.drafted);
    for (const double rate : acceptance_by_position(stats)) line += fmt::format(" {:.2f}", rate);
  }
  line += "; ms";
  for (int s = 0; s < kStages; ++s) {
    const auto stage = static_cast<Stage>(s);
    line += fmt::format(" {} {:.1f}", stage_name(stage), generation.times.of(stage) * 1e3);
  }
  if (engine.parts().device) line += "; computed by " + engine.parts().device->words();
  return line;
}

std::string short_closing_line(const Generation& generation) {
  return fmt::format("({} tokens, {:.1f} tokens/s, τ {:.2f})", generation.tokens.size(),
                     generation.tokens_per_second(), generation.stats.mean_accepted_length());
}

std::string report_json(const Generation& generation, const RunOptions& options,
                        const Engine& engine) {
  // Pieces of characters in logprobs are not UTF-8.
  return report(generation, options, engine).dump(2, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

}  // namespace aerie
