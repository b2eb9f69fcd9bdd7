#include "measure/tune/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <iterator>
#include <utility>

#include "base/errors.h"
#include "base/system/topology.h"
#include "engine/model_source.h"
#include "measure/tune/drafters_at_hand.h"

namespace aerie::measure {
namespace {

constexpr int kDeepestDraft = 64;
constexpr int kMostBatch = 128;
constexpr double kWorthIt = 1.02;
constexpr int kShortContext = 128, kLongContext = 1024;

Status check(const TuneOptions& options) {
  const auto refuse = [](const char* flag, int value, int most) {
    return invalid_argument("{} {}: give 1 to {}", flag, value, most);
  };
  for (const int depth : options.depths) {
    if (depth < 1 || depth > kDeepestDraft) return refuse("--depths", depth, kDeepestDraft);
  }
  for (const int batch : options.batches) {
    if (batch < 1 || batch > kMostBatch) return refuse("--batches", batch, kMostBatch);
  }
  if (!(options.minutes > 0)) {
    return invalid_argument("--minutes {}: give more than 0", options.minutes);
  }
  if (options.spec.temperatures.empty()) return invalid_argument("give at least one --temperature");
  if (options.depths.empty() || options.batches.empty()) {
    return invalid_argument("give at least one of --depths and one of --batches");
  }
  return {};
}

Expected<std::vector<SpeculativeConfig>> candidates(const TuneOptions& options) {
  const EngineOptions& engine = options.spec.engine;
  if (options.spec.methods.empty()) {
    return candidates_at_hand(engine, options.hub_cache, options.depths);
  }
  std::vector<SpeculativeConfig> all;
  for (const SpeculativeConfig& method : options.spec.methods) {
    if (!method.enabled()) continue;  // plain decoding is there in any case
    std::ranges::move(variants_of(method, options.depths), std::back_inserter(all));
  }
  return all;
}

std::vector<PassCost::Point> points_of(const VerifyReport& passes) {
  std::vector<PassCost::Point> points;
  for (const VerifyPoint& near : passes.points) {
    if (near.context != passes.points.front().context) continue;
    PassCost::Point& point = points.emplace_back();
    point.rows = near.rows;
    point.experts = near.experts * passes.expert_layers;
    point.seconds_per_expert =
        near.to_floor * passes.expert_bytes / std::max(1.0, passes.limits.bandwidth);
    for (const VerifyPoint& far : passes.points) {
      if (far.rows != near.rows || far.context <= near.context) continue;
      point.seconds_per_position =
          std::max(0.0, 1e-3 * (far.median_ms - near.median_ms)) / (far.context - near.context);
    }
    point.seconds =
        std::max(1e-9, 1e-3 * near.median_ms - point.seconds_per_position * near.context);
  }
  return points;
}

std::string interval_of(const Ratio& ratio) {
  if (!ratio.interval) return "";
  return fmt::format(", 95 % {:.2f} to {:.2f}", ratio.interval->first, ratio.interval->second);
}

// Figures of another temperature.
void add_report(SpecReport&& more, SpecReport& report) {
  if (report.methods.empty()) {
    report = std::move(more);
    return;
  }
  report.prompts = std::max(report.prompts, more.prompts);
  report.turns_left_out = std::max(report.turns_left_out, more.turns_left_out);
  report.interrupted |= more.interrupted;
  std::ranges::move(more.methods, std::back_inserter(report.methods));
}

// The rule with which the choice is fastest, if that is another than what it was measured with.
Status try_rules(const TuneOptions& options, const SpecOptions& spec, ProfileChoice& choice) {
  if (choice.batch != 1 || choice.speculate == "none" || !(choice.temperature > 0)) return {};
  AERIE_ASSIGN_OR_RETURN(const SpeculativeConfig method, parse_speculative_spec(choice.speculate));
  double most = kWorthIt * choice.speedup;
  for (const VerifyRule rule : options.rules) {
    SpecOptions other = spec;
    other.engine.rule = rule;
    other.label = fmt::format("--verify {}: ", verify_rule_name(rule));
    other.temperatures = {choice.temperature};
    other.methods = {method};
    const Expected<SpecReport> report = bench_spec(other);
    if (!report.ok()) continue;  // such as trees, which block verification does not take
    if (report->interrupted) return {};
    const double speedup = report->methods[1].all.speedup.value;
    if (speedup <= most) continue;
    most = speedup;
    choice.faster_rule = verify_rule_name(rule);
    choice.faster_speedup = speedup;
  }
  return {};
}

}  // namespace

ProfileChoice choose(const std::vector<const MethodFigures*>& figures, int batch,
                     const PassCost& cost, double context) {
  assert(!figures.empty());
  ProfileChoice choice;
  choice.temperature = figures.front()->temperature;
  choice.batch = batch;
  choice.measured = batch == 1;
  const MethodFigures* best = nullptr;
  double most = 0.0;
  for (size_t i = 1; i < figures.size(); ++i) {
    const double speedup = expected_speedup(*figures[i], batch, cost, context);
    if (speedup > most) {
      most = speedup;
      best = figures[i];
    }
  }
  if (best == nullptr) {
    choice.why = "nothing else was tried";
    return choice;
  }
  const Figures& all = best->all;
  const std::string gain = fmt::format("{:.2f} tokens a round for {:.1f} drafted",
                                       all.mean_accepted_length, nodes_per_round(all));
  const int rows = rows_of(all, batch);
  const std::string price = fmt::format(
      "a pass of {} rows takes {:.2f} times one of {}", rows,
      cost.seconds({rows, batch, context}) / cost.seconds({batch, batch, context}), batch);
  if (most < kWorthIt) {
    choice.why =
        fmt::format("plain decoding is best: {} comes nearest with {} ({:.2f} times), and {}",
                    best->to_use, gain, most, price);
    return choice;
  }
  choice.speculate = best->to_use;
  choice.speedup = most;
  choice.why =
      fmt::format("{}, and {}{}", gain, price, choice.measured ? interval_of(all.speedup) : "");
  if (!choice.measured) return choice;
  for (const TaskFigures& task : best->tasks) {
    if (task.figures.speedup.value < kWorthIt) choice.in_vain_on.push_back(task.task);
  }
  return choice;
}

Expected<TuneReport> tune(const TuneOptions& options) {
  AERIE_RETURN_IF_ERROR(check(options));
  const EngineOptions& engine = options.spec.engine;
  VerifyOptions verify;
  verify.engine = engine;
  verify.rows = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, kMostBatch};
  verify.repeats = options.spec.pass_repeats;
  verify.memory_mib = options.spec.memory_mib;
  ThreadPool pool(engine.threads > 0 ? engine.threads : default_threads());
  ProfileKey key;
  {
    AERIE_ASSIGN_OR_RETURN(const ModelSource source,
                           open_model_source(engine.model, engine.weight_type, pool));
    AERIE_ASSIGN_OR_RETURN(const ModelConfig config, read_model_config(*source.file));
    key = profile_key(*source.file, engine.isa, pool.threads(), engine.cache_type);
    const int room = config.context - kMostBatch;
    verify.contexts.clear();
    for (const int context : {kShortContext, kLongContext}) {
      if (context <= room) verify.contexts.push_back(context);
    }
    if (verify.contexts.empty()) {
      verify.contexts.push_back(1);
      std::erase_if(verify.rows, [&](int rows) { return rows >= config.context; });
    }
  }
  TuneReport report;
  AERIE_ASSIGN_OR_RETURN(report.passes, bench_verify(verify));
  key.device = report.passes.limits.device;
  report.profile.key = std::move(key);
  report.profile.pass_cost = points_of(report.passes);
  const PassCost cost(report.profile.pass_cost);
  AERIE_ASSIGN_OR_RETURN(const std::vector<SpeculativeConfig> all, candidates(options));
  SearchOptions search_options;
  search_options.spec = options.spec;
  search_options.spec.pass_rows.clear();
  search_options.batches = options.batches;
  search_options.seconds =
      60.0 * options.minutes / static_cast<double>(options.spec.temperatures.size());
  search_options.context = options.spec.pass_context;
  for (const double temperature : options.spec.temperatures) {
    AERIE_ASSIGN_OR_RETURN(SearchResult found, search(search_options, temperature, all, cost));
    std::ranges::move(found.tried, std::back_inserter(report.tried));
    report.left_out = std::max(report.left_out, found.left_out);
    std::vector<const MethodFigures*> figures;
    for (const MethodFigures& method : found.last.methods) figures.push_back(&method);
    if (!found.interrupted) {
      for (const int batch : options.batches) {
        ProfileChoice& choice = report.profile.choices.emplace_back(
            choose(figures, batch, cost, search_options.context));
        AERIE_RETURN_IF_ERROR(try_rules(options, search_options.spec, choice));
      }
    }
    add_report(std::move(found.last), report.spec);
    report.spec.interrupted |= found.interrupted;
    if (report.spec.interrupted) break;
  }
  return report;
}

std::string to_text(const TuneReport& report) {
  const ProfileKey& key = report.profile.key;
  std::string text =
      fmt::format("{}, {} threads, {}, {}{}\n{} prompts in the last round\n", report.spec.model,
                  key.threads, kernels::isa_name(key.isa), key.processor,
                  key.device.empty() ? "" : "; computed by " + key.device, report.spec.prompts);
  text += fmt::format("\n{:>11} {:>5} {:>7} {:>9}  tried\n", "temperature", "round", "prompts",
                      "speed-up");
  for (const Tried& tried : report.tried) {
    const std::string figures = tried.error.empty()
                                    ? fmt::format("{:>7} {:>9.2f}", tried.prompts, tried.speedup)
                                    : fmt::format("{:>17}", "-");
    text += fmt::format("{:>11g} {:>5} {}  {}\n", tried.temperature, tried.round, figures,
                        tried.method);
    if (!tried.error.empty()) text += fmt::format("{:>37}{}\n", "", tried.error);
  }
  if (report.left_out > 0) {
    text += fmt::format("{} more candidates were left out for the time: give more --minutes\n",
                        report.left_out);
  }
  text += fmt::format("\n{:>11} {:>6} {:>9}  method\n", "temperature", "batch", "speed-up");
  for (const ProfileChoice& choice : report.profile.choices) {
    text += fmt::format("{:>11g} {:>6} {:>8.2f}{}  {}\n{:>31}{}\n", choice.temperature,
                        choice.batch, choice.speedup, choice.measured ? " " : "*",
                        choice.speculate == "none" ? "none: plain decoding" : choice.speculate, "",
                        choice.why);
  }
  text += "* expected, from the costs of passes and the acceptance of one sequence\n\n";
  for (const std::string& words : in_words(report.profile)) text += words + "\n";
  return text;
}

}  // namespace aerie::measure
