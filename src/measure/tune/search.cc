#include "measure/tune/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

#include "base/clock.h"
#include "measure/prompt_files.h"

namespace aerie::measure {
namespace {

// Candidates of the last round.
constexpr size_t kFinalists = 6;
// Drafters that are open at a time.
constexpr size_t kOpenAtOnce = 12;
// Tokens of a reply, before the last round.
constexpr int kShortReply = 64, kShortestReply = 16;
// What a token takes beside a pass: the prompt's reading, sampling, loading.
constexpr double kOverhead = 1.5;

class Search {
 public:
  Search(const SearchOptions& options, double temperature, const PassCost& cost)
      : options_(options), temperature_(temperature), cost_(cost) {}

  Expected<SearchResult> run(std::vector<SpeculativeConfig> candidates);

 private:
  struct Round {
    int sample = 0;  // prompts of each task; 0: all that are selected
    int tokens = 0;
    int repeats = 1;
  };

  double seconds_of(size_t candidates, const Round& round);
  Expected<int> prompts_of(int sample);
  Status count_prompts();
  void plan(std::vector<SpeculativeConfig>& candidates);
  Expected<SpecReport> measure(const std::vector<SpeculativeConfig>& candidates,
                               const Round& round);
  Expected<SpecReport> measure_group(std::vector<SpeculativeConfig> candidates, const Round& round);
  Status add_group(const std::vector<SpeculativeConfig>& group, const Round& round,
                   SpecReport& report);
  void note(const SpecReport& report);
  Round last_round(size_t candidates);

  const SearchOptions& options_;
  double temperature_;
  const PassCost& cost_;
  SearchResult result_;
  std::vector<int> counts_;  // prompts with so many of each task, from 1
  int number_ = 0;           // of the round
  Round first_;
};

// Counts until more of each task are no more prompts.
Status Search::count_prompts() {
  AERIE_ASSIGN_OR_RETURN(const PromptFiles files, PromptFiles::locate(options_.spec.datasets));
  AERIE_ASSIGN_OR_RETURN(const auto all, read_prompts(files.paths(), options_.spec.selection));
  PromptSelection selection = options_.spec.selection;
  for (selection.sample = 1;; ++selection.sample) {
    AERIE_ASSIGN_OR_RETURN(const auto some, read_prompts(files.paths(), selection));
    counts_.push_back(static_cast<int>(some.size()));
    if (some.size() >= all.size()) return {};
  }
}

double Search::seconds_of(size_t candidates, const Round& round) {
  const size_t sample =
      std::min(counts_.size(), round.sample == 0 ? counts_.size() : size_t(round.sample));
  const double replies = static_cast<double>(candidates + 1) * counts_[sample - 1] * round.repeats;
  return kOverhead * replies * round.tokens * cost_.seconds({1, 1, options_.context});
}

// The first round, and as many candidates as it has the time for.
void Search::plan(std::vector<SpeculativeConfig>& candidates) {
  first_ = {1, std::min(kShortReply, options_.spec.max_tokens), 1};
  const double rounds =
      std::max(1.0, std::ceil(std::log2(static_cast<double>(candidates.size()) / kFinalists)));
  const double time = options_.seconds / 2.0 / rounds;
  while (first_.tokens > kShortestReply && seconds_of(candidates.size(), first_) > time) {
    first_.tokens = std::max(kShortestReply, first_.tokens / 2);
  }
  while (candidates.size() > kFinalists && seconds_of(candidates.size(), first_) > time) {
    size_t place = 0;
    result_.left_out +=
        std::erase_if(candidates, [&](const SpeculativeConfig&) { return place++ % 2 == 1; });
  }
}

Expected<SpecReport> Search::measure_group(std::vector<SpeculativeConfig> candidates,
                                           const Round& round) {
  SpecOptions spec = options_.spec;
  spec.label = fmt::format("{}round {}: ", options_.spec.label, number_);
  spec.methods = std::move(candidates);
  spec.temperatures = {temperature_};
  spec.max_tokens = round.tokens;
  spec.repeats = round.repeats;
  spec.pass_rows.clear();
  if (round.sample > 0) spec.selection.sample = round.sample;
  return bench_spec(spec);
}

// Those of a group that cannot be opened are found one by one.
Status Search::add_group(const std::vector<SpeculativeConfig>& group, const Round& round,
                         SpecReport& report) {
  Expected<SpecReport> of_group = measure_group(group, round);
  if (!of_group.ok()) {
    if (of_group.status().code() == StatusCode::kInternal) return of_group.status();
    if (group.size() > 1) {
      for (const SpeculativeConfig& one : group) {
        AERIE_RETURN_IF_ERROR(add_group({one}, round, report));
      }
      return {};
    }
    Tried& tried = result_.tried.emplace_back();
    tried.method = to_string(group[0].with_default_gate());
    tried.temperature = temperature_;
    tried.round = number_;
    tried.error = of_group.status().message();
    return {};
  }
  if (report.methods.empty()) {
    report = std::move(*of_group);
    return {};
  }
  report.interrupted |= of_group->interrupted;
  report.prompts = std::min(report.prompts, of_group->prompts);
  // Plain decoding of the first group stands for all.
  std::move(of_group->methods.begin() + 1, of_group->methods.end(),
            std::back_inserter(report.methods));
  return {};
}

Expected<SpecReport> Search::measure(const std::vector<SpeculativeConfig>& candidates,
                                     const Round& round) {
  ++number_;
  SpecReport report;
  for (size_t first = 0; first < candidates.size() && !report.interrupted; first += kOpenAtOnce) {
    const size_t end = std::min(candidates.size(), first + kOpenAtOnce);
    const std::vector<SpeculativeConfig> group(
        candidates.begin() + static_cast<std::ptrdiff_t>(first),
        candidates.begin() + static_cast<std::ptrdiff_t>(end));
    AERIE_RETURN_IF_ERROR(add_group(group, round, report));
  }
  if (!report.methods.empty()) return report;
  // Nothing could be opened: who asks for plain decoding alone learns what is wrong with the model.
  return measure_group({}, round);
}

void Search::note(const SpecReport& report) {
  for (size_t i = 1; i < report.methods.size(); ++i) {
    const MethodFigures& method = report.methods[i];
    const auto known = std::ranges::find_if(
        result_.tried, [&](const Tried& tried) { return tried.method == method.to_use; });
    Tried& tried = known == result_.tried.end() ? result_.tried.emplace_back() : *known;
    tried = {method.to_use, temperature_, number_, report.prompts, method.all.speedup.value, ""};
  }
}

Search::Round Search::last_round(size_t candidates) {
  Round round = {options_.spec.selection.sample, options_.spec.max_tokens, options_.spec.repeats};
  if (seconds_of(candidates, round) <= options_.seconds / 2.0) return round;
  for (round.sample = static_cast<int>(counts_.size()); round.sample > 1; --round.sample) {
    if (seconds_of(candidates, round) <= options_.seconds / 2.0) break;
  }
  return round;
}

Expected<SearchResult> Search::run(std::vector<SpeculativeConfig> candidates) {
  AERIE_RETURN_IF_ERROR(count_prompts());
  plan(candidates);
  const SteadyTime start = steady_now();
  Round round = first_;
  while (candidates.size() > kFinalists) {
    AERIE_ASSIGN_OR_RETURN(const SpecReport report, measure(candidates, round));
    note(report);
    if (report.interrupted) {
      result_.interrupted = true;
      return std::move(result_);
    }
    std::vector<const MethodFigures*> figures;
    for (const MethodFigures& method : report.methods) figures.push_back(&method);
    const bool late = seconds_since(start) > options_.seconds / 2.0;
    const size_t half = late ? kFinalists : std::max(kFinalists, (candidates.size() + 1) / 2);
    std::vector<SpeculativeConfig> kept;
    for (const size_t place : survivors(figures, half, options_.batches, cost_, options_.context)) {
      // By name: those that could not be opened are not among the figures.
      const auto found = std::ranges::find_if(candidates, [&](const SpeculativeConfig& one) {
        return to_string(one.with_default_gate()) == figures[place]->to_use;
      });
      kept.push_back(*found);
    }
    candidates = std::move(kept);
    Round wider = round;
    wider.sample *= 2;
    if (seconds_of(candidates.size(), wider) <= seconds_of(2 * candidates.size(), round) * 1.1) {
      round = wider;
    }
  }
  AERIE_ASSIGN_OR_RETURN(result_.last, measure(candidates, last_round(candidates.size())));
  note(result_.last);
  result_.interrupted = result_.last.interrupted;
  std::ranges::stable_sort(result_.tried, [](const Tried& a, const Tried& b) {
    return std::pair(a.round, a.speedup) > std::pair(b.round, b.speedup);
  });
  return std::move(result_);
}

}  // namespace

int rows_of(const Figures& figures, int batch) {
  return static_cast<int>(std::lround(batch * (1.0 + nodes_per_round(figures))));
}

double expected_speedup(const MethodFigures& method, int batch, const PassCost& cost,
                        double context) {
  if (batch == 1) return method.all.speedup.value;
  const Figures& figures = method.all;
  // What decides anew in each round would not do for many sequences what it did for one.
  if (method.decides || !(figures.mean_accepted_length > 0) || figures.tokens == 0) return 0.0;
  const double rounds = static_cast<double>(figures.tokens) / figures.mean_accepted_length;
  const double draft = figures.stages.of(Stage::kDraft) / rounds;
  const int rows = rows_of(figures, batch);
  return figures.mean_accepted_length * cost.seconds({batch, batch, context}) /
         (cost.seconds({rows, batch, context}) + batch * draft);
}

std::vector<size_t> survivors(const std::vector<const MethodFigures*>& figures, size_t count,
                              const std::vector<int>& batches, const PassCost& cost,
                              double context) {
  std::vector<size_t> places(figures.size());
  std::iota(places.begin(), places.end(), size_t{0});
  std::vector<size_t> best(figures.size(), std::numeric_limits<size_t>::max());
  places.erase(places.begin());
  for (const int batch : batches) {
    std::vector<size_t> order = places;
    std::ranges::stable_sort(order, std::greater<>(), [&](size_t place) {
      return expected_speedup(*figures[place], batch, cost, context);
    });
    for (size_t rank = 0; rank < order.size(); ++rank) {
      best[order[rank]] = std::min(best[order[rank]], rank);
    }
  }
  std::ranges::stable_sort(places, {}, [&](size_t place) { return best[place]; });
  places.resize(std::min(places.size(), count));
  return places;
}

Expected<SearchResult> search(const SearchOptions& options, double temperature,
                              std::vector<SpeculativeConfig> candidates, const PassCost& cost) {
  return Search(options, temperature, cost).run(std::move(candidates));
}

}  // namespace aerie::measure
