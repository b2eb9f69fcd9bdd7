#include "measure/passes/rank_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "base/progress.h"
#include "measure/passes/loaded_model.h"
#include "measure/statistics.h"
#include "parallel/leading_model.h"
#include "parallel/split_backend.h"

namespace aerie::measure {
namespace {

using Json = nlohmann::ordered_json;

Status check(const RankOptions& options) {
  if (!options.group) {
    return invalid_argument(
        "there is one process: type mpirun -np 2 before the command, and --tensor-parallel 2 "
        "behind it");
  }
  for (const std::vector<int>* list : {&options.rows, &options.ranks}) {
    if (list->empty() || *std::ranges::min_element(*list) < 1) {
      return invalid_argument("give numbers of rows and of ranks, 1 or more");
    }
  }
  if (*std::ranges::max_element(options.rows) > 512)
    return invalid_argument("give 512 rows at most");
  if (options.context < 1 || options.repeats < 1) {
    return invalid_argument("give a context and a number of repetitions, 1 or more");
  }
  if (!(options.acceptance >= 0.0 && options.acceptance <= 1.0)) {
    return invalid_argument("--acceptance {}: give 0 to 1", options.acceptance);
  }
  if (!(options.latency_us >= 0.0 && options.gbits >= 0.0)) {
    return invalid_argument("a link has no negative latency or bandwidth");
  }
  return {};
}

Expected<RankPoint> measure_point(LoadedModel& model, const SplitBackend& backend, int rows,
                                  const RankOptions& options, Progress& progress) {
  std::vector<double> seconds, split, told;
  RankPoint point;
  point.rows = rows;
  point.pass.ranks = options.group->size();
  AERIE_RETURN_IF_ERROR(model.pass(options.context, rows).status());  // to warm up
  for (int i = 0; i < options.repeats; ++i) {
    backend.reset();
    AERIE_ASSIGN_OR_RETURN(const double taken, model.pass(options.context, rows));
    seconds.push_back(taken);
    split.push_back(backend.tally().split);
    told.push_back(backend.tally().told);
    progress.add(1);
  }
  point.pass.messages = backend.tally().messages;
  point.pass.bytes = backend.tally().bytes;
  point.measured = median(seconds);
  point.pass.split = median(split);
  point.pass.alone = std::max(0.0, point.measured - point.pass.split - median(told));
  return point;
}

// Seconds of a pass of any number of rows, between those that were measured.
double seconds_of(const std::vector<RankPoint>& points, double rows, int ranks, const Link& link) {
  const auto at = [&](size_t i) { return predicted_seconds(points[i].pass, ranks, link); };
  size_t above = 0;
  while (above + 1 < points.size() && points[above].rows < rows) ++above;
  if (above == 0) return at(0);
  const double low = points[above - 1].rows, high = points[above].rows;
  const double share = (rows - low) / (high - low);
  return at(above - 1) + share * (at(above) - at(above - 1));
}

}  // namespace

std::vector<RankChoice> choose_ranks(const std::vector<RankPoint>& points,
                                     const std::vector<int>& ranks, const Link& link,
                                     double acceptance) {
  std::vector<RankChoice> choices;
  for (const int count : ranks) {
    RankChoice choice;
    choice.ranks = count;
    choice.plain = 1.0 / seconds_of(points, 1, count, link);
    choice.drafting = choice.plain;
    double tokens = 1.0, chance = 1.0;
    for (int drafted = 1; drafted < points.back().rows; ++drafted) {
      chance *= acceptance;
      tokens += chance;
      const double rate = tokens / seconds_of(points, drafted + 1, count, link);
      if (rate <= choice.drafting) continue;
      choice.drafting = rate;
      choice.drafted = drafted;
    }
    choices.push_back(choice);
  }
  return choices;
}

Expected<RankReport> bench_ranks(const RankOptions& options) {
  AERIE_RETURN_IF_ERROR(check(options));
  std::vector<int> rows = options.rows;
  rows.push_back(1);
  std::ranges::sort(rows);
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  LoadOptions load;
  load.engine.model = options.model;
  load.engine.threads = options.threads;
  load.engine.isa = options.isa;
  load.engine.device = "cpu";
  load.most_rows = rows.back();
  load.positions = options.context + rows.back();
  load.engine.group = options.group;
  AERIE_ASSIGN_OR_RETURN(const auto model, LoadedModel::load(load));
  AERIE_RETURN_IF_ERROR(model->fill(options.context));
  RankReport report;
  report.model = options.model;
  report.threads = model->pool().threads();
  report.context = options.context;
  report.acceptance = options.acceptance;
  report.measured = dynamic_cast<LeadingModel&>(model->model()).measure_link();
  report.link = report.measured;
  if (options.latency_us > 0.0) report.link.latency = options.latency_us * 1e-6;
  if (options.gbits > 0.0) report.link.bandwidth = options.gbits * 1e9 / 8.0;
  Progress progress("timing passes", options.repeats * static_cast<int64_t>(rows.size()));
  for (const int count : rows) {
    AERIE_ASSIGN_OR_RETURN(RankPoint point,
                           measure_point(*model, *model->split(), count, options, progress));
    point.predicted = predicted_seconds(point.pass, options.group->size(), report.measured);
    point.elsewhere = predicted_seconds(point.pass, options.group->size(), report.link);
    report.points.push_back(point);
  }
  report.choices = choose_ranks(report.points, options.ranks, report.link, options.acceptance);
  return report;
}

std::string to_text(const RankReport& report) {
  const auto link_text = [](const Link& link) {
    return fmt::format("{:.1f} us, {:.2f} GB/s", link.latency * 1e6, link.bandwidth * 1e-9);
  };
  std::string text = fmt::format(
      "{}: {} ranks of {} threads, context {}; link measured: {}\n{:>6} {:>10} {:>10} {:>10} "
      "{:>10} {:>10} {:>9}\n",
      report.model, report.points.front().pass.ranks, report.threads, report.context,
      link_text(report.measured), "rows", "ms", "predicted", "split", "all", "messages", "MiB");
  for (const RankPoint& p : report.points) {
    text += fmt::format("{:>6} {:>10.2f} {:>10.2f} {:>10.2f} {:>10.2f} {:>10} {:>9.2f}\n", p.rows,
                        p.measured * 1e3, p.predicted * 1e3, p.pass.split * 1e3, p.pass.alone * 1e3,
                        p.pass.messages, static_cast<double>(p.pass.bytes) / (1 << 20));
  }
  text += fmt::format(
      "\npredicted with a link of {}, drafts of which {:.2f} stand where the one before does:\n"
      "{:>6} {:>14} {:>8} {:>16} {:>6}\n",
      link_text(report.link), report.acceptance, "ranks", "tokens/s", "draft", "tokens/s so",
      "gain");
  for (const RankChoice& c : report.choices) {
    text += fmt::format("{:>6} {:>14.1f} {:>8} {:>16.1f} {:>6.2f}\n", c.ranks, c.plain, c.drafted,
                        c.drafting, c.drafting / c.plain);
  }
  const auto best = std::ranges::max_element(report.choices, {}, &RankChoice::drafting);
  text += fmt::format("best: {} ranks, {} drafted tokens (drafting itself not counted)\n",
                      best->ranks, best->drafted);
  return text;
}

std::string to_json(const RankReport& report) {
  const auto link_json = [](const Link& link) {
    return Json{{"latency_us", link.latency * 1e6}, {"bytes_per_second", link.bandwidth}};
  };
  Json out = {{"model", report.model},          {"threads", report.threads},
              {"context", report.context},      {"link_measured", link_json(report.measured)},
              {"link", link_json(report.link)}, {"acceptance", report.acceptance},
              {"points", Json::array()},        {"choices", Json::array()}};
  for (const RankPoint& p : report.points) {
    out["points"].push_back({{"rows", p.rows},
                             {"ranks", p.pass.ranks},
                             {"ms", p.measured * 1e3},
                             {"predicted_ms", p.predicted * 1e3},
                             {"predicted_for_link_ms", p.elsewhere * 1e3},
                             {"split_ms", p.pass.split * 1e3},
                             {"all_ms", p.pass.alone * 1e3},
                             {"messages", p.pass.messages},
                             {"bytes", p.pass.bytes}});
  }
  for (const RankChoice& c : report.choices) {
    out["choices"].push_back({{"ranks", c.ranks},
                              {"plain_tokens_per_second", c.plain},
                              {"drafted", c.drafted},
                              {"tokens_per_second", c.drafting}});
  }
  return out.dump(2) + "\n";
}

}  // namespace aerie::measure
