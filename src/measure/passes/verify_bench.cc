#include "measure/passes/verify_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/errors.h"
#include "base/progress.h"
#include "base/thread_pool.h"
#include "measure/passes/computer.h"
#include "measure/passes/floor.h"
#include "measure/passes/loaded_model.h"
#include "measure/report_head.h"

namespace aerie::measure {
namespace {

constexpr int kMostRows = 4096;
constexpr int kMostRepeats = 10000;

Status check(const VerifyOptions& options) {
  const auto refuse = [](const char* flag, int value, int least, int most) {
    return invalid_argument("{} {}: give {} to {}", flag, value, least, most);
  };
  if (options.rows.empty() || options.contexts.empty()) {
    return invalid_argument("give at least one number of rows and one context");
  }
  for (const int rows : options.rows) {
    if (rows < 1 || rows > kMostRows) return refuse("--rows", rows, 1, kMostRows);
  }
  for (const int context : options.contexts) {
    if (context < 1 || context > (1 << 26)) return refuse("--context", context, 1, 1 << 26);
  }
  for (const int tokens : options.prompts) {
    if (tokens < 1 || tokens > (1 << 26)) return refuse("--prompt", tokens, 1, 1 << 26);
  }
  if (options.repeats < 1 || options.repeats > kMostRepeats) {
    return refuse("--repeat", options.repeats, 1, kMostRepeats);
  }
  return check_memory(options.memory_mib);
}

// All that was measured of one number of rows in one context, one value for each repetition.
struct PassSeries {
  int context = 0, rows = 0;
  std::vector<double> seconds = {}, floors = {}, ratios = {}, to_floor = {}, bandwidths = {},
                      shares = {}, experts = {};
};

Status repeat(LoadedModel& target, Computer& computer, const PassWork& work,
              std::vector<PassSeries>& all, std::vector<Limits>& limits, Progress& progress) {
  std::array<bool, kernels::kDotCount> wanted = {};
  wanted[static_cast<size_t>(kernels::Dot::kFloat)] = true;
  wanted[static_cast<size_t>(work.attention_dot)] = true;
  for (size_t d = 0; d < wanted.size(); ++d) wanted[d] |= work.row_operations[d] > 0.0;
  AERIE_ASSIGN_OR_RETURN(limits.emplace_back(), computer.measure(wanted));
  // Some that do not count: the measurement had the caches, and a device's clocks rise slowly.
  constexpr double kWarm = 0.1;
  for (double warmed = 0.0; warmed < kWarm;) {
    AERIE_ASSIGN_OR_RETURN(const double seconds,
                           target.pass(all.front().context, all.front().rows));
    warmed += seconds;
  }
  double one_row = 0;
  for (PassSeries& s : all) {
    AERIE_ASSIGN_OR_RETURN(const double seconds, target.pass(s.context, s.rows));
    if (s.rows == 1) one_row = seconds;
    const auto experts = static_cast<double>(target.experts());
    const double floor = floor_seconds(work, s.context, s.rows, experts, limits.back());
    const double bytes = work.bytes(s.context, experts);
    if (work.expert_layers > 0) s.experts.push_back(experts / work.expert_layers);
    progress.add(1);
    s.seconds.push_back(seconds);
    s.floors.push_back(floor);
    s.ratios.push_back(seconds / one_row);
    s.to_floor.push_back(seconds / floor);
    s.bandwidths.push_back(bytes / seconds);
    s.shares.push_back(s.bandwidths.back() / limits.back().bandwidth);
  }
  return {};
}

VerifyPoint summary(const PassSeries& s) {
  std::vector<double> ms = s.seconds;
  for (double& value : ms) value *= 1e3;
  VerifyPoint point;
  point.rows = s.rows;
  point.context = s.context;
  point.median_ms = median(ms);
  point.floor_ms = 1e3 * median(s.floors);
  point.spread_ms = spread(ms);
  point.ratio = median(s.ratios);
  point.to_floor = median(s.to_floor);
  point.bandwidth = median(s.bandwidths);
  point.bandwidth_share = median(s.shares);
  if (!s.experts.empty()) point.experts = median(s.experts);
  return point;
}

Expected<std::vector<PromptPoint>> read_prompts(const VerifyOptions& options, LoadedModel& target,
                                                const PassWork& work) {
  std::vector<PromptPoint> points;
  if (options.prompts.empty()) return points;
  Progress progress("reading prompts", (options.repeats + 1) * std::ssize(options.prompts));
  for (const int tokens : options.prompts) {
    std::vector<double> ms;
    for (int i = 0; i <= options.repeats; ++i) {
      AERIE_ASSIGN_OR_RETURN(const double seconds, target.read_prompt(tokens));
      if (i > 0) ms.push_back(1e3 * seconds);  // the first is to warm up
      progress.add(1);
    }
    PromptPoint& point = points.emplace_back();
    point.tokens = tokens;
    point.median_ms = median(ms);
    point.spread_ms = spread(ms);
    point.tokens_per_second = 1e3 * tokens / point.median_ms;
    point.operations = 1e3 * prompt_operations(work, tokens) / point.median_ms;
  }
  return points;
}

std::string prompt_text(const VerifyReport& report) {
  if (report.prompts.empty()) return "";
  std::string text = fmt::format("{:>8} {:>10} {:>21} {:>10} {:>10}\n", "prompt", "median ms",
                                 "lowest-highest ms", "tokens/s", "TFLOP/s");
  for (const PromptPoint& p : report.prompts) {
    text += fmt::format("{:>8} {:>10.2f} {:>21} {:>10.0f} {:>10.3g}\n", p.tokens, p.median_ms,
                        fmt::format("{:.2f}-{:.2f}", p.spread_ms.lowest, p.spread_ms.highest),
                        p.tokens_per_second, 1e-12 * p.operations);
  }
  return text;
}

Json prompt_json(const PromptPoint& p) {
  return {{"tokens", p.tokens},
          {"median_ms", p.median_ms},
          {"spread", spread_json(p.spread_ms)},
          {"tokens_per_second", p.tokens_per_second},
          {"teraflops", 1e-12 * p.operations}};
}

}  // namespace

Expected<VerifyReport> bench_verify(const VerifyOptions& options) {
  AERIE_RETURN_IF_ERROR(check(options));
  std::vector<int> rows = options.rows, contexts = options.contexts;
  rows.push_back(1);
  for (std::vector<int>* list : {&rows, &contexts}) {
    std::ranges::sort(*list);
    list->erase(std::unique(list->begin(), list->end()), list->end());
  }
  LoadOptions load;
  load.engine = options.engine;
  load.most_rows = rows.back();
  load.positions = contexts.back() + rows.back();
  for (const int tokens : options.prompts) load.positions = std::max(load.positions, tokens);
  AERIE_ASSIGN_OR_RETURN(const auto target, LoadedModel::load(load));
  AERIE_ASSIGN_OR_RETURN(const PassWork work, work_of(target->file(), options.engine.cache_type));
  VerifyReport report;
  AERIE_ASSIGN_OR_RETURN(report.prompts, read_prompts(options, *target, work));
  AERIE_RETURN_IF_ERROR(target->fill(contexts.back()));
  AERIE_ASSIGN_OR_RETURN(Computer computer, Computer::open(target->parts(), options.memory_mib));

  std::vector<PassSeries> all;
  for (const int context : contexts) {
    for (const int count : rows) all.push_back(PassSeries{.context = context, .rows = count});
  }
  Progress progress("timing passes", (options.repeats + 1) * static_cast<int64_t>(all.size()));
  for (const PassSeries& s : all) {  // to warm up
    AERIE_RETURN_IF_ERROR(target->pass(s.context, s.rows).status());
    progress.add(1);
  }
  std::vector<Limits> limits;
  for (int i = 0; i < options.repeats; ++i) {
    AERIE_RETURN_IF_ERROR(repeat(*target, computer, work, all, limits, progress));
  }
  report.model = options.engine.model;
  report.threads = target->pool().threads();
  report.isa = options.engine.isa;
  report.cache_type = options.engine.cache_type;
  report.limits = median_of(limits);
  report.experts = work.experts;
  report.expert_layers = work.expert_layers;
  report.expert_bytes = work.expert_bytes;
  for (const PassSeries& s : all) report.points.push_back(summary(s));
  return report;
}

std::string to_text(const VerifyReport& report) {
  std::string text = head_text(report.model, report.threads, report.isa, report.limits);
  text += fmt::format("cache: {}\n", kernels::kv_type_name(report.cache_type));
  text += fmt::format("{:>8} {:>5} {:>10} {:>10} {:>21} {:>7} {:>9} {:>8} {:>10}{}\n", "context",
                      "rows", "median ms", "floor ms", "lowest-highest ms", "ratio", "to floor",
                      "GB/s", "bandwidth",
                      report.experts > 0 ? fmt::format("  of {} experts", report.experts) : "");
  for (const VerifyPoint& p : report.points) {
    text += fmt::format(
        "{:>8} {:>5} {:>10.2f} {:>10.2f} {:>21} {:>7.2f} {:>9.2f} {:>8.1f} {:>9.0f}%{}\n",
        p.context, p.rows, p.median_ms, p.floor_ms,
        fmt::format("{:.2f}-{:.2f}", p.spread_ms.lowest, p.spread_ms.highest), p.ratio, p.to_floor,
        1e-9 * p.bandwidth, 100 * p.bandwidth_share,
        report.experts > 0 ? fmt::format("{:>16.1f}", p.experts) : "");
  }
  return text + prompt_text(report);
}

std::string to_json(const VerifyReport& report) {
  Json out = head_json(report.model, report.threads, report.isa, report.limits);
  out["cache_type"] = kernels::kv_type_name(report.cache_type);
  out["points"] = Json::array();
  for (const VerifyPoint& p : report.points) {
    out["points"].push_back({{"rows", p.rows},
                             {"context", p.context},
                             {"median_ms", p.median_ms},
                             {"floor_ms", p.floor_ms},
                             {"spread", spread_json(p.spread_ms)},
                             {"ratio", p.ratio},
                             {"to_floor", p.to_floor},
                             {"bandwidth", 1e-9 * p.bandwidth},
                             {"bandwidth_share", p.bandwidth_share}});
    if (report.experts > 0) out["points"].back()["experts"] = p.experts;
  }
  if (!report.prompts.empty()) out["prompts"] = Json::array();
  for (const PromptPoint& p : report.prompts) out["prompts"].push_back(prompt_json(p));
  return out.dump(2) + "\n";
}

}  // namespace aerie::measure
