#include "measure/spec/sweep_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "measure/passes/pass_chart.h"
#include "measure/spec/spec_report.h"
#include "report/html_page.h"
#include "report/svg_plot.h"

namespace aerie::measure {
namespace {

constexpr int kDeepest = 64;

Status check(const SweepOptions& options) {
  if (options.depths.empty()) return invalid_argument("give at least one of --depths");
  for (const int depth : options.depths) {
    if (depth < 1 || depth > kDeepest) {
      return invalid_argument("--depths {}: give 1 to {}", depth, kDeepest);
    }
    if (std::ranges::count(options.depths, depth) > 1) {
      return invalid_argument("--depths {} is given twice: leave one of them out", depth);
    }
  }
  if (options.spec.methods.empty()) {
    return invalid_argument("give at least one --method that drafts");
  }
  for (const SpeculativeConfig& method : options.spec.methods) {
    if (!method.enabled() || method.gives_tokens()) {
      return invalid_argument(
          "--method {}: give a method that drafts, and leave its num_speculative_tokens to "
          "--depths",
          to_string(method));
    }
  }
  return {};
}

const Figures& best_of(const SweepRow& row) {
  return row.figures[static_cast<size_t>(row.best)];
}

// The report's methods at a temperature are plain decoding, then method by method every depth.
std::vector<SweepRow> rows_of(const SweepOptions& options, const SpecReport& spec) {
  std::vector<SweepRow> rows;
  auto next = spec.methods.begin();
  while (next != spec.methods.end()) {
    ++next;
    for (const SpeculativeConfig& method : options.spec.methods) {
      SweepRow& row = rows.emplace_back();
      SpeculativeConfig shown = method;
      shown.open_gate();
      row.method = to_string(shown);
      row.temperature = next->temperature;
      for (size_t d = 0; d < options.depths.size(); ++d, ++next) {
        row.figures.push_back(next->all);
        if (!spec.passes.points.empty()) {
          row.roofline.push_back(roofline_speedup(next->all, spec.passes));
        }
        if (next->all.speedup.value > best_of(row).speedup.value) row.best = static_cast<int>(d);
      }
    }
  }
  return rows;
}

// The least time of a pass of so many rows.
double floor_ms(const VerifyReport& passes, double rows) {
  const VerifyPoint* below = &passes.points.front();
  for (const VerifyPoint& point : passes.points) {
    if (point.rows >= rows) {
      const double width = std::max(1, point.rows - below->rows);
      return below->floor_ms +
             (point.floor_ms - below->floor_ms) * std::max(0.0, rows - below->rows) / width;
    }
    below = &point;
  }
  return below->floor_ms;
}

std::string mark_of(const SweepRow& row, const Figures& figures) {
  if (figures.speedup.value < 1.0) return "-";
  return &figures == &best_of(row) ? "*" : " ";
}

}  // namespace

double roofline_speedup(const Figures& figures, const VerifyReport& passes) {
  if (passes.points.empty() || figures.tokens == 0 || !(figures.mean_accepted_length > 0)) return 0;
  const double drafting = floor_ms(passes, 1.0 + nodes_per_round(figures));
  return drafting > 0 ? figures.mean_accepted_length * floor_ms(passes, 1.0) / drafting : 0.0;
}

Expected<SweepReport> bench_sweep(const SweepOptions& options) {
  AERIE_RETURN_IF_ERROR(check(options));
  SpecOptions spec = options.spec;
  spec.methods.clear();
  for (const SpeculativeConfig& method : options.spec.methods) {
    for (const int depth : options.depths) {
      spec.methods.push_back(method);
      spec.methods.back().set_tokens(depth);
    }
  }
  SweepReport report;
  AERIE_ASSIGN_OR_RETURN(report.spec, bench_spec(spec));
  report.depths = options.depths;
  report.rows = rows_of(options, report.spec);
  return report;
}

std::string to_text(const SweepReport& report) {
  SpecReport head = report.spec;
  head.methods.clear();
  std::string text = to_text(head);
  text += fmt::format(
      "\nspeed-up (τ) by drafted tokens; * is the best, - is slower than plain decoding "
      "if nothing gates it\n{:<40} {:>11}",
      "method", "temperature");
  for (const int depth : report.depths) text += fmt::format(" {:>14}", depth);
  text += "\n";
  for (const SweepRow& row : report.rows) {
    text += fmt::format("{:<40} {:>11g}", row.method, row.temperature);
    for (const Figures& f : row.figures) {
      text += fmt::format(" {:>14}", fmt::format("{:.2f} ({:.2f}){}", f.speedup.value,
                                                 f.mean_accepted_length, mark_of(row, f)));
    }
    text += "\n";
    if (row.roofline.empty()) continue;
    text += fmt::format("{:<40} {:>11}", "  at the machine's limits", "");
    for (const double speedup : row.roofline) text += fmt::format(" {:>7.2f}{:7}", speedup, "");
    text += "\n";
  }
  return text;
}

std::string to_json(const SweepReport& report) {
  Json out = json_of(report.spec);
  out["depths"] = report.depths;
  out["sweep"] = Json::array();
  for (const SweepRow& row : report.rows) {
    Json speedups = Json::array(), lengths = Json::array();
    for (const Figures& f : row.figures) {
      speedups.push_back(f.speedup.value);
      lengths.push_back(f.mean_accepted_length);
    }
    out["sweep"].push_back({{"method", row.method},
                            {"temperature", row.temperature},
                            {"speedup", std::move(speedups)},
                            {"mean_accepted_length", std::move(lengths)},
                            {"roofline_speedup", row.roofline},
                            {"best_depth", report.depths[static_cast<size_t>(row.best)]}});
  }
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string to_html(const SweepReport& report) {
  LineChart speed{"Speed-up over plain decoding by depth", "drafted tokens", "times", {}};
  LineChart length{"Tokens per round, τ, by depth", "drafted tokens", "tokens", {}};
  for (const SweepRow& row : report.rows) {
    const std::string name = fmt::format("{}, temperature {:g}", row.method, row.temperature);
    std::vector<std::pair<double, double>> speeds, lengths;
    for (size_t d = 0; d < row.figures.size(); ++d) {
      speeds.emplace_back(report.depths[d], row.figures[d].speedup.value);
      lengths.emplace_back(report.depths[d], row.figures[d].mean_accepted_length);
    }
    std::ranges::sort(speeds);
    std::ranges::sort(lengths);
    speed.lines.push_back({name, std::move(speeds), row.temperature > 0.0});
    length.lines.push_back({name, std::move(lengths), row.temperature > 0.0});
  }
  HtmlPage page("Speculation by depth");
  page.add_preformatted(to_text(report));
  page.add_svg(to_svg(speed));
  page.add_svg(to_svg(length));
  page.add_svg(to_svg(pass_chart(report.spec.passes)));
  return page.finish();
}

}  // namespace aerie::measure
