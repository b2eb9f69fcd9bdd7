#include "measure/load/serve_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace aerie::measure {
namespace {

// How many places of a terminal `text` takes: characters, not bytes.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

// The first two columns hold names and stand to the left.
std::string lines_of(const Table& table) {
  std::vector<size_t> widths;
  for (const auto& row : table) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], width_of(row[c]));
  }
  std::string text;
  for (const auto& row : table) {
    std::string line = " ";
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string space(widths[c] - width_of(row[c]), ' ');
      line += c < 2 ? " " + row[c] + space : " " + space + row[c];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string ratio_text(const PairedRatio& ratio) {
  if (ratio.value <= 0.0) return "-";
  if (!ratio.interval) return fmt::format("{:.2f}", ratio.value);
  return fmt::format("{:.2f} ({:.2f}-{:.2f})", ratio.value, ratio.interval->first,
                     ratio.interval->second);
}

std::string number(double value) {
  return fmt::format("{:.{}f}", value, value < 10.0 ? 2 : 1);
}

std::vector<std::string> names_of(const ServeReport& report, const ServeRun& run) {
  return {std::to_string(run.concurrency), report.settings[run.setting].name};
}

Json ratio_json(const PairedRatio& ratio) {
  if (ratio.value <= 0.0) return nullptr;
  Json out = {{"value", ratio.value}, {"low_95", nullptr}, {"high_95", nullptr}};
  if (ratio.interval) {
    out["low_95"] = ratio.interval->first;
    out["high_95"] = ratio.interval->second;
  }
  return out;
}

void add_latency(const char* name, const Latency& latency, Json& out) {
  out[fmt::format("mean_{}_ms", name)] = latency.mean;
  out[fmt::format("median_{}_ms", name)] = latency.median;
  out[fmt::format("p99_{}_ms", name)] = latency.p99;
}

Json run_json(const ServeReport& report, const ServeRun& run) {
  const ServeFigures& f = run.figures;
  const ServeSetting& setting = report.settings[run.setting];
  Json out = {{"max_concurrency", run.concurrency},
              {"speculation", setting.name},
              {"duration", f.seconds},
              {"completed", f.completed},
              {"failed", f.failed},
              {"late", f.late},
              {"total_input_tokens", f.prompt_tokens},
              {"total_output_tokens", f.output_tokens},
              {"tokens_counted_by_server", f.counted},
              {"request_throughput", f.requests_per_second},
              {"output_throughput", f.output_per_second},
              {"total_token_throughput", f.tokens_per_second}};
  add_latency("ttft", f.first_token, out);
  add_latency("tpot", f.per_output_token, out);
  add_latency("itl", f.between_pieces, out);
  add_latency("e2el", f.end_to_end, out);
  if (f.acceptance) {
    const Acceptance& a = *f.acceptance;
    out["spec_decode_acceptance_rate"] = a.rate;
    out["spec_decode_acceptance_length"] = a.length;
    out["spec_decode_num_drafts"] = a.drafts;
    out["spec_decode_draft_tokens"] = a.draft_tokens;
    out["spec_decode_accepted_tokens"] = a.accepted_tokens;
    out["spec_decode_per_position_acceptance_rates"] = a.per_position;
  }
  if (run.setting > 0) {
    out["throughput_ratio"] = ratio_json(run.throughput);
    out["tpot_ratio"] = ratio_json(run.pace);
    out["texts_compared"] = run.compared;
    out["texts_differing"] = run.differing;
  }
  out["errors"] = f.errors;
  return out;
}

std::vector<std::string> swept_methods(const ServeReport& report) {
  std::vector<std::string> methods;
  for (const ServeSetting& setting : report.settings) {
    if (setting.depth == 0 || std::ranges::find(methods, setting.method) != methods.end()) continue;
    methods.push_back(setting.method);
  }
  return methods;
}

std::vector<int> concurrencies(const ServeReport& report) {
  std::vector<int> out;
  for (const ServeRun& run : report.runs) {
    if (out.empty() || out.back() != run.concurrency) out.push_back(run.concurrency);
  }
  return out;
}

}  // namespace

std::string head_of(const ServeReport& report) {
  std::string text = fmt::format("{}{}{}, {}, {}\n", report.url, report.model.empty() ? "" : ", ",
                                 report.model, report.chat ? "chat" : "completions", report.date);
  text += fmt::format("{} requests of {}; at most {} tokens, temperature {:g}, seed {}, {}\n",
                      report.num_prompts, fmt::join(report.datasets, ", "), report.max_tokens,
                      report.temperature, report.seed,
                      std::isfinite(report.rate) ? fmt::format("{:g} requests/s", report.rate)
                                                 : std::string("every client asks again at once"));
  if (report.rounds > 1) text += fmt::format("{} rounds, settings in turn\n", report.rounds);
  if (report.warmed) text += "all prompts had been sent once before\n";
  if (report.interrupted) text += "INTERRUPTED: these are the requests until then\n";
  return text;
}

Table throughput_table(const ServeReport& report) {
  Table table = {{"clients", "speculation", "done", "failed", "late", "seconds", "requests/s",
                  "output tokens/s", "total tokens/s"}};
  for (const ServeRun& run : report.runs) {
    const ServeFigures& f = run.figures;
    auto& row = table.emplace_back(names_of(report, run));
    for (const int count : {f.completed, f.failed, f.late}) row.push_back(std::to_string(count));
    for (const double value :
         {f.seconds, f.requests_per_second, f.output_per_second, f.tokens_per_second}) {
      row.push_back(number(value));
    }
  }
  return table;
}

Table latency_table(const ServeReport& report) {
  Table table = {{"clients", "speculation"}};
  for (const char* name : {"TTFT", "TPOT", "ITL", "E2E"}) {
    for (const char* of : {"mean", "median", "P99"}) {
      table[0].push_back(fmt::format("{} {}", name, of));
    }
  }
  for (const ServeRun& run : report.runs) {
    const ServeFigures& f = run.figures;
    auto& row = table.emplace_back(names_of(report, run));
    for (const Latency* l :
         {&f.first_token, &f.per_output_token, &f.between_pieces, &f.end_to_end}) {
      for (const double value : {l->mean, l->median, l->p99}) row.push_back(number(value));
    }
  }
  return table;
}

Table acceptance_table(const ServeReport& report) {
  Table table = {
      {"clients", "speculation", "drafts", "drafted", "accepted", "rate", "length", "by position"}};
  for (const ServeRun& run : report.runs) {
    if (!run.figures.acceptance) continue;
    const Acceptance& a = *run.figures.acceptance;
    auto& row = table.emplace_back(names_of(report, run));
    for (const double count : {a.drafts, a.draft_tokens, a.accepted_tokens}) {
      row.push_back(fmt::format("{:.0f}", count));
    }
    row.push_back(fmt::format("{:.3f}", a.rate));
    row.push_back(fmt::format("{:.2f}", a.length));
    row.push_back(fmt::format("{:.2f}", fmt::join(a.per_position, " ")));
  }
  return table;
}

Table comparison_table(const ServeReport& report) {
  Table table = {{"clients", "speculation", "output tokens/s (95 %)", "time per token (95 %)",
                  "texts that differ"}};
  for (const ServeRun& run : report.runs) {
    if (run.setting == 0) continue;
    auto& row = table.emplace_back(names_of(report, run));
    row.push_back(ratio_text(run.throughput));
    row.push_back(ratio_text(run.pace));
    row.push_back(fmt::format("{} of {}", run.differing, run.compared));
  }
  return table;
}

Table best_table(const ServeReport& report) {
  Table table = {{"method", ""}};
  const std::vector<int> clients = concurrencies(report);
  for (const int count : clients) {
    table[0].push_back(fmt::format("{} client{}", count, count == 1 ? "" : "s"));
  }
  if (!report.sweep) return table;
  for (const std::string& method : swept_methods(report)) {
    auto& row = table.emplace_back(std::vector<std::string>{method, ""});
    for (const int count : clients) {
      const ServeRun* best = best_depth(report, method, count);
      row.push_back(best == nullptr ? "-"
                                    : fmt::format("{:.2f} at {}", best->throughput.value,
                                                  report.settings[best->setting].depth));
    }
  }
  return table;
}

std::string to_text(const ServeReport& report) {
  std::string text = head_of(report);
  const auto add = [&](const char* title, const Table& table) {
    if (table.size() > 1) text += fmt::format("\n{}\n{}", title, lines_of(table));
  };
  add("Throughput", throughput_table(report));
  add("Latency, ms: first token, per output token, between pieces, end to end",
      latency_table(report));
  add("Drafts, by the server's metrics", acceptance_table(report));
  if (report.settings.size() > 1) {
    add(fmt::format("How many times as fast as {}", report.settings[0].name).c_str(),
        comparison_table(report));
  }
  add("Best depth: output tokens/s by those of plain decoding", best_table(report));
  for (const ServeRun& run : report.runs) {
    for (const std::string& error : run.figures.errors) {
      text += fmt::format("failed ({} clients, {}): {}\n", run.concurrency,
                          report.settings[run.setting].name, error);
    }
  }
  const bool uncounted =
      std::ranges::any_of(report.runs, [](const ServeRun& run) { return !run.figures.counted; });
  if (uncounted) text += "\nThe server does not count tokens: pieces of text stand for them.\n";
  return text;
}

std::string to_json(const ServeReport& report) {
  Json out = {{"url", report.url},
              {"model_id", report.model},
              {"date", report.date},
              {"endpoint", report.chat ? "chat" : "completions"},
              {"datasets", report.datasets},
              {"num_prompts", report.num_prompts},
              {"max_tokens", report.max_tokens},
              {"temperature", report.temperature},
              {"seed", report.seed},
              {"request_rate", std::isfinite(report.rate) ? Json(report.rate) : Json("inf")},
              {"rounds", report.rounds},
              {"warmed_up", report.warmed},
              {"interrupted", report.interrupted},
              {"runs", Json::array()}};
  for (const ServeRun& run : report.runs) out["runs"].push_back(run_json(report, run));
  if (report.sweep) {
    out["best"] = Json::array();
    for (const std::string& method : swept_methods(report)) {
      for (const int count : concurrencies(report)) {
        const ServeRun* best = best_depth(report, method, count);
        if (best == nullptr) continue;
        out["best"].push_back({{"method", method},
                               {"max_concurrency", count},
                               {"depth", report.settings[best->setting].depth},
                               {"throughput_ratio", ratio_json(best->throughput)}});
      }
    }
  }
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace aerie::measure
