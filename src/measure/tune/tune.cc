#include "measure/spec/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

#include "base/errors.h"
#include "engine/model_source.h"

namespace aerie::measure {
namespace {

constexpr int kDeepestDraft = 64;
constexpr int kMostRows = 128;
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
    if (batch < 1 || batch > kMostRows) return refuse("--batches", batch, kMostRows);
  }
  if (options.depths.empty() || options.batches.empty()) {
    return invalid_argument("give at least one of --depths and one of --batches");
  }
  return {};
}

// Every candidate at every depth that it leaves open.
std::vector<SpeculativeConfig> candidates(const TuneOptions& options) {
  std::vector<SpeculativeConfig> methods = options.spec.methods;
  if (methods.empty()) {
    methods.push_back(auto_speculation());
    for (const MethodConfig& method : auto_speculation().methods) {
      // Prompts of a set bring nothing along.
      if (method.method->of_request) continue;
      SpeculativeConfig& one = methods.emplace_back();
      one.methods.push_back(method);
      one.methods.back().numbers.erase(std::string(kTokensKey));
    }
  }
  std::vector<SpeculativeConfig> all;
  for (const SpeculativeConfig& method : methods) {
    if (method.gives_tokens() || !method.enabled()) {
      all.push_back(method);
      continue;
    }
    for (const int depth : options.depths) all.emplace_back(method).set_tokens(depth);
  }
  return all;
}

std::vector<PassCost::Point> points_of(const VerifyReport& passes) {
  std::vector<PassCost::Point> points;
  for (const VerifyPoint& near : passes.points) {
    if (near.context != passes.points.front().context) continue;
    PassCost::Point& point = points.emplace_back();
    point.rows = near.rows;
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

// Of a pass of so many sequences that each draft what one did, in the mean.
int rows_of(const Figures& figures, int batch) {
  return static_cast<int>(std::lround(batch * (1.0 + nodes_per_round(figures))));
}

// Of `batch` sequences that each do what one did, over plain decoding of as many.
double expected_speedup(const Figures& figures, int batch, const PassCost& cost, double context) {
  if (!(figures.mean_accepted_length > 0) || figures.tokens == 0) return 0.0;
  const double rounds = static_cast<double>(figures.tokens) / figures.mean_accepted_length;
  const double draft = figures.stages.of(Stage::kDraft) / rounds;
  const int rows = rows_of(figures, batch);
  return figures.mean_accepted_length * cost.seconds({batch, batch, context}) /
         (cost.seconds({rows, batch, context}) + batch * draft);
}

std::string interval_of(const Ratio& ratio) {
  if (!ratio.interval) return "";
  return fmt::format(", 95 % {:.2f} to {:.2f}", ratio.interval->first, ratio.interval->second);
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
    const Figures& all = figures[i]->all;
    // It would not do for many sequences what it did for one.
    if (batch > 1 && figures[i]->decides) continue;
    const double speedup =
        batch == 1 ? all.speedup.value : expected_speedup(all, batch, cost, context);
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
  std::vector<std::string> in_vain;
  for (const TaskFigures& task : best->tasks) {
    if (task.figures.speedup.value < kWorthIt) in_vain.push_back(task.task);
  }
  if (!in_vain.empty()) {
    choice.why += fmt::format("; plain decoding is as fast on {}", fmt::join(in_vain, ", "));
  }
  return choice;
}

Expected<TuneReport> tune(const TuneOptions& options) {
  AERIE_RETURN_IF_ERROR(check(options));
  const EngineOptions& engine = options.spec.engine;
  VerifyOptions verify;
  verify.model = engine.model;
  verify.rows = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, kMostRows};
  verify.threads = engine.threads;
  verify.isa = engine.isa;
  verify.cache_type = engine.cache_type;
  verify.repeats = options.spec.pass_repeats;
  ThreadPool pool(engine.threads > 0 ? engine.threads : available_cpus());
  ProfileKey key;
  {
    AERIE_ASSIGN_OR_RETURN(const ModelSource source,
                           open_model_source(engine.model, engine.weight_type, pool));
    AERIE_ASSIGN_OR_RETURN(const ModelConfig config, read_model_config(*source.file));
    key = profile_key(*source.file, engine.isa, pool.threads(), engine.cache_type);
    const int room = config.context - kMostRows;
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
  SpecOptions spec = options.spec;
  spec.methods = candidates(options);
  spec.pass_rows.clear();
  AERIE_ASSIGN_OR_RETURN(report.spec, bench_spec(spec));
  report.profile.key = std::move(key);
  report.profile.pass_cost = points_of(report.passes);
  const PassCost cost(report.profile.pass_cost);
  for (const double temperature : spec.temperatures) {
    std::vector<const MethodFigures*> figures;
    for (const MethodFigures& method : report.spec.methods) {
      if (method.temperature == temperature) figures.push_back(&method);
    }
    if (figures.empty()) continue;  // interrupted before
    for (const int batch : options.batches) {
      report.profile.choices.push_back(choose(figures, batch, cost, spec.pass_context));
    }
  }
  return report;
}

std::string to_text(const TuneReport& report) {
  const ProfileKey& key = report.profile.key;
  std::string text =
      fmt::format("{}, {} threads, {}, {}\n{} prompts\n", report.spec.model, key.threads,
                  kernels::isa_name(key.isa), key.processor, report.spec.prompts);
  text += fmt::format("\n{:>11} {:>6} {:>9}  {}\n", "temperature", "batch", "speed-up", "method");
  for (const ProfileChoice& choice : report.profile.choices) {
    text += fmt::format("{:>11g} {:>6} {:>8.2f}{}  {}\n{:>31}{}\n", choice.temperature,
                        choice.batch, choice.speedup, choice.measured ? " " : "*",
                        choice.speculate == "none" ? "none: plain decoding" : choice.speculate, "",
                        choice.why);
  }
  for (const std::string& words : in_words(report.profile)) text += words + "\n";
  text += "* expected, from the costs of passes and the acceptance of one sequence\n";
  return text;
}

}  // namespace aerie::measure
