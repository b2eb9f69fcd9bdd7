#include <fmt/format.h>

#include <utility>

#include "measure/load/serve_report.h"
#include "report/html_page.h"
#include "report/svg_plot.h"

namespace aerie::measure {
namespace {

// A line for each setting, over the numbers of clients.
template <typename Value>
LineChart chart_by_clients(std::string title, std::string unit, const ServeReport& report,
                           Value value) {
  LineChart chart{std::move(title), "clients", std::move(unit), {}};
  for (size_t s = 0; s < report.settings.size(); ++s) {
    Line& line = chart.lines.emplace_back();
    line.name = report.settings[s].name;
    for (const ServeRun& run : report.runs) {
      if (run.setting == s) line.points.emplace_back(run.concurrency, value(run.figures));
    }
  }
  return chart;
}

BarChart ratio_chart(const ServeReport& report) {
  BarChart chart;
  chart.title = "Output tokens/s, by those of " + report.settings[0].name;
  chart.unit = "times";
  chart.reference = 1.0;
  for (size_t s = 1; s < report.settings.size(); ++s) {
    chart.series.push_back(report.settings[s].name);
  }
  for (const ServeRun& run : report.runs) {
    const std::string name = fmt::format("{} clients", run.concurrency);
    if (chart.groups.empty() || chart.groups.back().name != name) {
      chart.groups.push_back({name, {}});
    }
    if (run.setting == 0) continue;
    chart.groups.back().bars.push_back({run.throughput.value, run.throughput.interval});
  }
  return chart;
}

// Of each setting at its first number of clients that drafted.
LineChart position_chart(const ServeReport& report) {
  LineChart chart{"Drafts that were accepted at a position", "position", "part", {}};
  for (size_t s = 0; s < report.settings.size(); ++s) {
    for (const ServeRun& run : report.runs) {
      if (run.setting != s || !run.figures.acceptance) continue;
      Line& line = chart.lines.emplace_back();
      line.name = fmt::format("{}, {} clients", report.settings[s].name, run.concurrency);
      for (size_t i = 0; i < run.figures.acceptance->per_position.size(); ++i) {
        line.points.emplace_back(static_cast<double>(i + 1),
                                 run.figures.acceptance->per_position[i]);
      }
      break;
    }
  }
  return chart;
}

void add_lines(const ServeReport& report, HtmlPage& page) {
  page.add_svg(to_svg(chart_by_clients("Output tokens/s", "tokens/s", report,
                                       [](const auto& f) { return f.output_per_second; })));
  page.add_svg(to_svg(chart_by_clients("Time per output token, median", "ms", report,
                                       [](const auto& f) { return f.per_output_token.median; })));
  page.add_svg(to_svg(chart_by_clients("Time to the first token, median", "ms", report,
                                       [](const auto& f) { return f.first_token.median; })));
}

}  // namespace

std::string to_html(const ServeReport& report) {
  HtmlPage page("A server under load");
  page.add_preformatted(head_of(report));
  if (report.runs.empty()) return page.finish();
  const auto add = [&](const char* title, const Table& table) {
    if (table.size() < 2) return;
    page.add_heading(title);
    page.add_table(table);
  };
  if (report.settings.size() > 1) {
    page.add_svg(to_svg(ratio_chart(report)));
    add("Compared with the first setting", comparison_table(report));
  }
  add("Best depth: output tokens/s by those of plain decoding", best_table(report));
  add("Throughput", throughput_table(report));
  add("Latency, ms", latency_table(report));
  page.add_text(
      "TTFT: until the first text. TPOT: per output token after it. ITL: between pieces of text, "
      "which under speculation hold several tokens. E2E: until the last text.");
  if (report.runs.front().concurrency != report.runs.back().concurrency) add_lines(report, page);
  const Table acceptance = acceptance_table(report);
  add("Drafts, by the server's metrics", acceptance);
  if (acceptance.size() > 1) page.add_svg(to_svg(position_chart(report)));
  return page.finish();
}

}  // namespace aerie::measure
