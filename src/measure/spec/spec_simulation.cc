#include "measure/spec/spec_simulation.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "base/errors.h"
#include "measure/passes/pass_chart.h"
#include "measure/report_head.h"
#include "measure/spec/speculation_model.h"
#include "report/html_page.h"
#include "report/svg_plot.h"

namespace aerie::measure {
namespace {

constexpr size_t kMostDepths = 64;
constexpr const char* kSynthetic = "SYNTHETIC: acceptance is assumed, passes are measured";

Status check(const SimulationOptions& options) {
  if (options.acceptance.empty() || options.acceptance.size() > kMostDepths) {
    return invalid_argument("--simulate-acceptance: give 1 to {} rates, one for each depth",
                            kMostDepths);
  }
  for (const double rate : options.acceptance) {
    if (rate >= 0.0 && rate <= 1.0) continue;
    return invalid_argument("--simulate-acceptance {}: give rates of 0 to 1", rate);
  }
  if (!std::isfinite(options.draft_cost) || options.draft_cost < 0.0) {
    return invalid_argument("--draft-cost {}: give 0 or more", options.draft_cost);
  }
  return {};
}

ReplayOptions replay_of(const SimulationOptions& options) {
  ReplayOptions replay;
  replay.engine = options.engine;
  replay.acceptance = options.acceptance;
  replay.draft_cost = options.draft_cost;
  replay.context = options.context;
  replay.tokens = options.replay_tokens;
  replay.repeats = options.replay_repeats;
  return replay;
}

Json replay_json(const ReplayReport& replay) {
  Json out;
  out["tokens"] = replay.tokens;
  out["plain_tokens_per_second"] = replay.plain_tokens_per_second;
  out["points"] = Json::array();
  for (const ReplayPoint& p : replay.points) {
    out["points"].push_back({{"depth", p.depth == 0 ? Json("auto") : Json(p.depth)},
                             {"drafted_per_round", p.drafted},
                             {"mean_accepted_length", p.accepted_length},
                             {"speedup", p.speedup},
                             {"spread", spread_json(p.spread)}});
  }
  return out;
}

}  // namespace

Expected<SimulationReport> simulate_acceptance(const SimulationOptions& options) {
  AERIE_RETURN_IF_ERROR(check(options));
  VerifyOptions verify;
  verify.engine = options.engine;
  verify.rows.resize(options.acceptance.size() + 1);
  std::iota(verify.rows.begin(), verify.rows.end(), 1);
  verify.contexts = {options.context};
  verify.repeats = options.repeats;
  verify.memory_mib = options.memory_mib;
  SimulationReport report;
  report.acceptance = options.acceptance;
  report.draft_cost = options.draft_cost;
  AERIE_ASSIGN_OR_RETURN(report.passes, bench_verify(verify));
  for (size_t drafted = 0; drafted < report.passes.points.size(); ++drafted) {
    const VerifyPoint& pass = report.passes.points[drafted];
    SimulationPoint& point = report.points.emplace_back();
    point.drafted = static_cast<int>(drafted);
    point.expected_length = expected_tokens(std::span(options.acceptance).first(drafted));
    point.pass_ms = pass.median_ms;
    point.pass_ratio = pass.ratio;
    point.speedup =
        speedup_of_round(point.expected_length, point.drafted, options.draft_cost, pass.ratio);
    point.ideal = speedup_of_round(point.expected_length, point.drafted, options.draft_cost, 1.0);
    if (point.speedup > report.points[static_cast<size_t>(report.best)].speedup) {
      report.best = point.drafted;
    }
  }
  if (options.replay_tokens > 0) {
    AERIE_ASSIGN_OR_RETURN(report.replay, replay_acceptance(replay_of(options)));
  }
  return report;
}

std::string to_text(const SimulationReport& report) {
  const VerifyReport& passes = report.passes;
  std::string text = head_text(passes.model, passes.threads, passes.isa, passes.limits);
  text += fmt::format("{}\nacceptance by depth {}; a drafted token costs {:g} of a pass\n",
                      kSynthetic, fmt::join(report.acceptance, ", "), report.draft_cost);
  text += fmt::format("{:>8} {:>12} {:>9} {:>7} {:>9} {:>12}\n", "drafted", "expected τ", "pass ms",
                      "ratio", "speed-up", "flat passes");
  for (const SimulationPoint& p : report.points) {
    text += fmt::format("{:>8} {:>12.2f} {:>9.2f} {:>7.2f} {:>9.2f} {:>12.2f}{}\n", p.drafted,
                        p.expected_length, p.pass_ms, p.pass_ratio, p.speedup, p.ideal,
                        p.drafted == report.best ? "  best" : "");
  }
  if (report.replay) text += to_text(*report.replay);
  return text;
}

std::string to_json(const SimulationReport& report) {
  const VerifyReport& passes = report.passes;
  Json out = head_json(passes.model, passes.threads, passes.isa, passes.limits);
  out["synthetic"] = true;
  out["note"] = kSynthetic;
  out["simulate_acceptance"] = report.acceptance;
  out["draft_cost"] = report.draft_cost;
  out["best_drafted"] = report.best;
  out["points"] = Json::array();
  for (const SimulationPoint& p : report.points) {
    out["points"].push_back({{"drafted", p.drafted},
                             {"expected_tokens_per_round", p.expected_length},
                             {"pass_ms", p.pass_ms},
                             {"pass_ratio", p.pass_ratio},
                             {"speedup", p.speedup},
                             {"speedup_flat_passes", p.ideal}});
  }
  if (report.replay) out["replay"] = replay_json(*report.replay);
  return out.dump(2) + "\n";
}

std::string to_html(const SimulationReport& report) {
  LineChart speed{
      "SYNTHETIC: expected speed-up over plain decoding",
      "drafted tokens",
      "times",
      {{"passes as measured", {}, false}, {"if every pass took one row's time", {}, true}}};
  LineChart length{
      "SYNTHETIC: expected tokens per round", "drafted tokens", "tokens", {{"", {}, false}}};
  for (const SimulationPoint& p : report.points) {
    speed.lines[0].points.emplace_back(p.drafted, p.speedup);
    speed.lines[1].points.emplace_back(p.drafted, p.ideal);
    length.lines[0].points.emplace_back(p.drafted, p.expected_length);
  }
  HtmlPage page("Speculation, simulated");
  page.add_text(kSynthetic);
  page.add_preformatted(to_text(report));
  page.add_svg(to_svg(speed));
  page.add_svg(to_svg(length));
  page.add_svg(to_svg(pass_chart(report.passes)));
  return page.finish();
}

}  // namespace aerie::measure
