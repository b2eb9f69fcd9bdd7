#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "measure/passes/pass_chart.h"
#include "measure/spec/spec_report.h"
#include "report/html_page.h"
#include "report/svg_plot.h"

namespace aerie::measure {
namespace {

std::vector<const MethodFigures*> drafting_at(const SpecReport& report, double temperature) {
  std::vector<const MethodFigures*> methods;
  for (const MethodFigures& m : report.methods) {
    if (m.temperature == temperature && m.method != "none") methods.push_back(&m);
  }
  return methods;
}

// A group for every task and one for all; of each method the bar that `bar` makes of its figures.
template <typename MakeBar>
BarChart chart_by_task(std::string title, std::string unit,
                       const std::vector<const MethodFigures*>& methods, MakeBar bar) {
  BarChart chart;
  chart.title = std::move(title);
  chart.unit = std::move(unit);
  chart.reference = 1.0;
  for (const MethodFigures* m : methods) chart.series.push_back(m->method);
  if (methods.empty()) return chart;
  // All methods have the same tasks: they wrote the same replies.
  for (size_t t = 0; t < methods[0]->tasks.size(); ++t) {
    BarGroup& group = chart.groups.emplace_back();
    group.name = methods[0]->tasks[t].task;
    for (const MethodFigures* m : methods) group.bars.push_back(bar(m->tasks[t].figures));
  }
  BarGroup& all = chart.groups.emplace_back();
  all.name = "all";
  for (const MethodFigures* m : methods) all.bars.push_back(bar(m->all));
  return chart;
}

LineChart depth_chart(std::string title, const std::vector<const MethodFigures*>& methods,
                      std::vector<double> Figures::*rates) {
  LineChart chart{std::move(title), "depth", "part", {}};
  for (const MethodFigures* m : methods) {
    Line& line = chart.lines.emplace_back();
    line.name = m->method;
    const std::vector<double>& values = m->all.*rates;
    for (size_t d = 0; d < values.size(); ++d) {
      line.points.emplace_back(static_cast<double>(d + 1), values[d]);
    }
  }
  return chart;
}

BarChart expected_chart(const std::string& at, const std::vector<const MethodFigures*>& methods) {
  BarChart chart;
  chart.title = "Tokens per round, expected of the mean acceptance and measured" + at;
  chart.unit = "tokens";
  chart.series = {"expected", "measured"};
  for (const MethodFigures* m : methods) {
    chart.groups.push_back(
        {m->method,
         {{m->all.expected_length, std::nullopt}, {m->all.mean_accepted_length, std::nullopt}}});
  }
  return chart;
}

std::string speedup_text(const Ratio& ratio) {
  if (!ratio.interval) return fmt::format("{:.2f}", ratio.value);
  return fmt::format("{:.2f} ({:.2f}–{:.2f})", ratio.value, ratio.interval->first,
                     ratio.interval->second);
}

std::vector<std::string> table_row(const std::string& name, const Figures& f) {
  return {name,
          fmt::format("{}", f.replies),
          fmt::format("{}", f.looped),
          fmt::format("{}", f.tokens),
          fmt::format("{:.1f}", f.tokens_per_second),
          speedup_text(f.speedup),
          fmt::format("{:.2f}", f.mean_accepted_length),
          fmt::format("{:.2f}", f.expected_length),
          fmt::format("{:.2f}", f.acceptance_rate),
          fmt::format("{}", f.wasted),
          fmt::format("{:.2f}", f.ms_per_token_p50),
          fmt::format("{:.2f}", f.ms_per_token_p99)};
}

void add_tables(const SpecReport& report, double temperature, HtmlPage& page) {
  for (const MethodFigures& m : report.methods) {
    if (m.temperature != temperature) continue;
    page.add_text(fmt::format("{}, temperature {:g}", m.method, m.temperature));
    std::vector<std::vector<std::string>> rows = {{"task", "replies", "looped", "tokens",
                                                   "tokens/s", "speed-up (95 %)", "τ", "expected τ",
                                                   "accepted", "wasted", "ms p50", "ms p99"}};
    for (const TaskFigures& task : m.tasks) rows.push_back(table_row(task.task, task.figures));
    rows.push_back(table_row("all", m.all));
    rows.push_back(table_row("without those that loop", m.unlooped));
    page.add_table(rows);
  }
}

void add_temperature(const SpecReport& report, double temperature, HtmlPage& page) {
  const std::string at = fmt::format(", temperature {:g}", temperature);
  page.add_heading(fmt::format("Temperature {:g}", temperature));
  const std::vector<const MethodFigures*> methods = drafting_at(report, temperature);
  page.add_svg(to_svg(
      chart_by_task("Speed-up over plain decoding" + at, "times", methods, [](const Figures& f) {
        return Bar{f.speedup.value, f.speedup.interval};
      })));
  page.add_svg(
      to_svg(chart_by_task("Tokens per round, τ" + at, "tokens", methods, [](const Figures& f) {
        return Bar{f.mean_accepted_length, std::nullopt};
      })));
  page.add_svg(to_svg(depth_chart("Rounds that accepted at a depth" + at, methods,
                                  &Figures::per_position_acceptance)));
  page.add_svg(to_svg(
      depth_chart("The same of those that came so far (n-α)" + at, methods, &Figures::n_alpha)));
  page.add_svg(to_svg(expected_chart(at, methods)));
  add_tables(report, temperature, page);
}

}  // namespace

std::string to_html(const SpecReport& report) {
  HtmlPage page("Speculation against plain decoding");
  SpecReport head = report;
  head.methods.clear();
  page.add_preformatted(to_text(head));
  page.add_text(
      "Speed-up is the ratio of tokens/s over the same replies in the same run; the interval holds "
      "95 % of a bootstrap over prompts. τ counts the correction or bonus token.");
  std::vector<double> seen;
  for (const MethodFigures& m : report.methods) {
    if (std::ranges::find(seen, m.temperature) != seen.end()) continue;
    seen.push_back(m.temperature);
    add_temperature(report, m.temperature, page);
  }
  if (!report.passes.points.empty()) {
    page.add_heading("Passes");
    page.add_svg(to_svg(pass_chart(report.passes)));
  }
  return page.finish();
}

}  // namespace aerie::measure
