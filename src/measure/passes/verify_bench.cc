#include "measure/passes/verify_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/errors.h"
#include "base/progress.h"
#include "base/thread_pool.h"
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
    if (context < 1) return refuse("--context", context, 1, 1 << 26);
  }
  if (options.repeats < 1 || options.repeats > kMostRepeats) {
    return refuse("--repeat", options.repeats, 1, kMostRepeats);
  }
  return check_memory(options.memory_mib);
}

// All that was measured of one number of rows in one context, one value for each repetition.
struct PassSeries {
  int context, rows;
  std::vector<double> seconds, floors, ratios, to_floor, shares, experts;
};

Status repeat(LoadedModel& target, Machine& machine, const PassWork& work,
              std::vector<PassSeries>& all, std::vector<Limits>& limits, Progress& progress) {
  std::array<bool, kernels::kDotCount> wanted = {};
  wanted[static_cast<size_t>(kernels::Dot::kFloat)] = true;
  wanted[static_cast<size_t>(work.attention_dot)] = true;
  for (size_t d = 0; d < wanted.size(); ++d) wanted[d] |= work.row_operations[d] > 0.0;
  limits.push_back(machine.measure(wanted));
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
    s.shares.push_back(bytes / seconds / limits.back().bandwidth);
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
  point.bandwidth_share = median(s.shares);
  if (!s.experts.empty()) point.experts = median(s.experts);
  return point;
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
  load.model = options.model;
  load.threads = options.threads;
  load.isa = options.isa;
  load.cache_type = options.cache_type;
  load.group = options.group;
  load.most_rows = rows.back();
  load.positions = contexts.back() + rows.back();
  AERIE_ASSIGN_OR_RETURN(const auto target, LoadedModel::load(load));
  AERIE_RETURN_IF_ERROR(target->fill(contexts.back()));
  AERIE_ASSIGN_OR_RETURN(const PassWork work, work_of(target->file(), options.cache_type));
  AERIE_ASSIGN_OR_RETURN(Machine machine,
                         Machine::open(options.isa, target->pool(), options.memory_mib));

  std::vector<PassSeries> all;
  for (const int context : contexts) {
    for (const int count : rows) all.push_back({context, count, {}, {}, {}, {}, {}, {}});
  }
  Progress progress("timing passes", (options.repeats + 1) * static_cast<int64_t>(all.size()));
  for (const PassSeries& s : all) {  // to warm up
    AERIE_RETURN_IF_ERROR(target->pass(s.context, s.rows).status());
    progress.add(1);
  }
  std::vector<Limits> limits;
  for (int i = 0; i < options.repeats; ++i) {
    AERIE_RETURN_IF_ERROR(repeat(*target, machine, work, all, limits, progress));
  }
  VerifyReport report;
  report.model = options.model;
  report.threads = target->pool().threads();
  report.isa = options.isa;
  report.cache_type = options.cache_type;
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
  text +=
      fmt::format("{:>8} {:>5} {:>10} {:>10} {:>21} {:>7} {:>9} {:>10}{}\n", "context", "rows",
                  "median ms", "floor ms", "lowest-highest ms", "ratio", "to floor", "bandwidth",
                  report.experts > 0 ? fmt::format("  of {} experts", report.experts) : "");
  for (const VerifyPoint& p : report.points) {
    text += fmt::format("{:>8} {:>5} {:>10.2f} {:>10.2f} {:>21} {:>7.2f} {:>9.2f} {:>9.0f}%{}\n",
                        p.context, p.rows, p.median_ms, p.floor_ms,
                        fmt::format("{:.2f}-{:.2f}", p.spread_ms.lowest, p.spread_ms.highest),
                        p.ratio, p.to_floor, 100 * p.bandwidth_share,
                        report.experts > 0 ? fmt::format("{:>16.1f}", p.experts) : "");
  }
  return text;
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
                             {"bandwidth_share", p.bandwidth_share}});
    if (report.experts > 0) out["points"].back()["experts"] = p.experts;
  }
  return out.dump(2) + "\n";
}

}  // namespace aerie::measure
