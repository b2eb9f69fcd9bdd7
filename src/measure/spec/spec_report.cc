#include "measure/spec/spec_report.h"

#include <fmt/format.h>

#include <utility>

namespace aerie::measure {
namespace {

// The stages after the first token.
constexpr Stage kRoundStages[] = {Stage::kDraft, Stage::kVerify, Stage::kSample, Stage::kCommit,
                                  Stage::kOther};

Json ratio_json(const Ratio& ratio) {
  Json out = {{"value", ratio.value}, {"low_95", nullptr}, {"high_95", nullptr}};
  if (ratio.interval) {
    out["low_95"] = ratio.interval->first;
    out["high_95"] = ratio.interval->second;
  }
  return out;
}

Json figures_json(const Figures& f) {
  Json stages = Json::object();
  for (const Stage stage : kRoundStages) {
    stages[std::string(stage_name(stage))] = f.stages.of(stage);
  }
  return {{"replies", f.replies},
          {"looped", f.looped},
          {"tokens", f.tokens},
          {"tokens_per_second", f.tokens_per_second},
          {"speedup", ratio_json(f.speedup)},
          {"speedup_with_prompt", ratio_json(f.speedup_with_prompt)},
          {"to_best_other", ratio_json(f.to_best_other)},
          {"mean_accepted_length", f.mean_accepted_length},
          {"expected_accepted_length", f.expected_length},
          {"acceptance_rate", f.acceptance_rate},
          {"alpha", f.alpha},
          {"per_position_acceptance", f.per_position_acceptance},
          {"n_alpha", f.n_alpha},
          {"drafted_tokens", f.drafted},
          {"accepted_tokens", f.accepted},
          {"wasted_tokens", f.wasted},
          {"stage_seconds", std::move(stages)},
          {"ms_per_token", {{"p50", f.ms_per_token_p50}, {"p99", f.ms_per_token_p99}}}};
}

std::string interval_text(const Ratio& ratio) {
  if (!ratio.interval) return "(one prompt)";
  return fmt::format("({:.2f}-{:.2f})", ratio.interval->first, ratio.interval->second);
}

std::string row_text(const std::string& name, const Figures& f) {
  return fmt::format(
      "  {:<26} {:>7} {:>8} {:>9.1f} {:>9.2f} {:>13} {:>6.2f} {:>9.2f} {:>6.2f} "
      "{:>8} {:>8} {:>8} {:>7.2f} {:>7.2f} {:>19}\n",
      name, f.replies, f.tokens, f.tokens_per_second, f.speedup.value, interval_text(f.speedup),
      f.mean_accepted_length, f.expected_length, f.acceptance_rate, f.drafted, f.accepted, f.wasted,
      f.ms_per_token_p50, f.ms_per_token_p99,
      fmt::format("{:.2f} {}", f.to_best_other.value, interval_text(f.to_best_other)));
}

std::string list_text(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) text += fmt::format(" {:.2f}", value);
  return text;
}

std::string method_text(const MethodFigures& m) {
  std::string text = fmt::format("\n{}, temperature {:g}\n", m.method, m.temperature);
  text += fmt::format(
      "  {:<26} {:>7} {:>8} {:>9} {:>9} {:>13} {:>6} {:>9} {:>6} {:>8} {:>8} {:>8} "
      "{:>7} {:>7} {:>19}\n",
      "task", "replies", "tokens", "tokens/s", "speed-up", "(95 %)", "τ", "expected", "acc.",
      "drafted", "accepted", "wasted", "ms p50", "ms p99", "to the best other");
  for (const TaskFigures& task : m.tasks) text += row_text(task.task, task.figures);
  text += row_text("all", m.all);
  if (m.all.looped > 0) {
    text += row_text(fmt::format("without {} that loop", m.all.looped), m.unlooped);
  }
  text += fmt::format("  with the time of prompts {:.2f} {}; seconds",
                      m.all.speedup_with_prompt.value, interval_text(m.all.speedup_with_prompt));
  for (const Stage stage : kRoundStages) {
    text += fmt::format(" {} {:.2f}", stage_name(stage), m.all.stages.of(stage));
  }
  text += "\n";
  if (m.all.n_alpha.empty()) return text;
  text += fmt::format("  accepted by depth{}\n  of those reached {}\n",
                      list_text(m.all.per_position_acceptance), list_text(m.all.n_alpha));
  return text;
}

}  // namespace

std::string to_text(const SpecReport& report) {
  std::string text = head_text(report.model, report.threads, report.isa, report.passes.limits);
  text +=
      fmt::format("{} prompts of {}{}; at most {} tokens, {} repetition{}, seed {}\n",
                  report.prompts, fmt::join(report.datasets, ", "),
                  report.chat_template ? " (turns with the chat template)" : "", report.max_tokens,
                  report.repeats, report.repeats == 1 ? "" : "s", report.seed);
  text += fmt::format("rule {}, cache {}, context {}; {}\n", verify_rule_name(report.rule),
                      kernels::kv_type_name(report.cache_type), report.context,
                      report.rule == VerifyRule::kExact
                          ? "all ids are those of plain decoding"
                          : "at temperature 0 all ids are those of plain decoding");
  const auto ungated = [](const MethodFigures& method) { return method.method != method.to_use; };
  if (std::ranges::any_of(report.methods, ungated)) {
    text += "gate=0: drafts whether it pays or not, as `aerie run` does only if told so\n";
  }
  if (report.turns_left_out > 0) {
    text += fmt::format("{} later turns left out: the context is too short for them; see --ctx\n",
                        report.turns_left_out);
  }
  if (report.interrupted) text += "INTERRUPTED: these are the prompts until then\n";
  if (!report.passes.points.empty()) {
    text +=
        fmt::format("ms of a pass behind {} positions, by rows:", report.passes.points[0].context);
    for (const VerifyPoint& p : report.passes.points) {
      text += fmt::format(" {}: {:.2f}", p.rows, p.median_ms);
    }
    text += "\n";
  }
  for (const MethodFigures& method : report.methods) text += method_text(method);
  return text;
}

Json json_of(const SpecReport& report) {
  Json out = head_json(report.model, report.threads, report.isa, report.passes.limits);
  out["synthetic"] = false;
  out["datasets"] = report.datasets;
  out["prompts"] = report.prompts;
  out["turns_left_out"] = report.turns_left_out;
  out["interrupted"] = report.interrupted;
  out["verify"] = verify_rule_name(report.rule);
  out["cache_type"] = kernels::kv_type_name(report.cache_type);
  out["context"] = report.context;
  out["max_tokens"] = report.max_tokens;
  out["repeats"] = report.repeats;
  out["seed"] = report.seed;
  out["chat_template"] = report.chat_template;
  out["passes"] = Json::array();
  for (const VerifyPoint& p : report.passes.points) {
    out["passes"].push_back({{"rows", p.rows},
                             {"context", p.context},
                             {"median_ms", p.median_ms},
                             {"floor_ms", p.floor_ms},
                             {"ratio", p.ratio}});
  }
  out["methods"] = Json::array();
  for (const MethodFigures& m : report.methods) {
    Json method = {{"method", m.method}, {"temperature", m.temperature}};
    method.update(figures_json(m.all));
    method["without_looped"] = figures_json(m.unlooped);
    method["tasks"] = Json::array();
    for (const TaskFigures& task : m.tasks) {
      Json item = {{"task", task.task}};
      item.update(figures_json(task.figures));
      method["tasks"].push_back(std::move(item));
    }
    out["methods"].push_back(std::move(method));
  }
  return out;
}

std::string to_json(const SpecReport& report) {
  // Names of files need not be UTF-8.
  return json_of(report).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace aerie::measure
