// What drafting without a model costs in a round: a draft and taking in what was accepted of it.
// And what choosing a token costs: a draw at temperature 1, and ranking the four nearest to it.
//   draft_bench [--benchmark_filter=suffix] [--benchmark_repetitions=50]
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "draft/lookup/ngram.h"
#include "draft/lookup/prediction.h"
#include "draft/lookup/recycling.h"
#include "draft/lookup/suffix.h"
#include "sampling/sampler.h"

namespace aerie {
namespace {

constexpr int kVocab = 49152;
constexpr int kRounds = 4096;  // rounds timed before the history has grown too long
constexpr int kPerRound = 2;   // tokens accepted in each

template <typename T>
T value_or_exit(Expected<T> value) {
  if (!value.ok()) {
    std::fprintf(stderr, "draft_bench: %s\n", value.status().message().c_str());
    std::exit(1);
  }
  return std::move(value).value();
}

void check(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "draft_bench: %s\n", status.message().c_str());
  std::exit(1);
}

// Like a text: few tokens make up most of it (the k-th most frequent comes 1 / k as often as the
// first), and every other stretch repeats an earlier one.
std::vector<int32_t> some_text(int length) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> uniform(0.0, 1.0);
  std::vector<int32_t> text;
  while (static_cast<int>(text.size()) < length) {
    const size_t stretch = 1 + random() % 40;
    if (text.size() > 100 && random() % 2 == 0) {
      const size_t from = random() % (text.size() - stretch);
      for (size_t i = 0; i < stretch; ++i) text.push_back(text[from + i]);
    } else {
      for (size_t i = 0; i < stretch; ++i) {
        text.push_back(static_cast<int32_t>(std::pow(kVocab, uniform(random))) - 1);
      }
    }
  }
  text.resize(static_cast<size_t>(length));
  return text;
}

using Make = std::function<std::unique_ptr<Drafter>()>;

void take_in(Drafter& drafter, SequenceId id, std::span<const int32_t> text) {
  DraftCommit commit;
  commit.id = id;
  commit.tokens = text;
  check(drafter.observe({&commit, 1}));
}

void open(Drafter& drafter, SequenceId id, std::span<const int32_t> text,
          std::span<const int32_t> prediction) {
  DraftSequence sequence;
  sequence.id = id;
  sequence.max_tokens = static_cast<int>(text.size());
  sequence.prediction = prediction;
  check(drafter.open(sequence));
}

// Rounds with a history of `history` tokens; another text as long was an earlier sequence's output.
void rounds(benchmark::State& state, const Make& make, int history) {
  const int length = history + kRounds * kPerRound;
  const std::vector<int32_t> all = some_text(2 * length);
  const auto text = std::span(all).first(static_cast<size_t>(length));
  const std::unique_ptr<Drafter> drafter = make();
  open(*drafter, 0, std::span(all).last(static_cast<size_t>(length)), {});
  take_in(*drafter, 0, std::span(all).last(static_cast<size_t>(length)));
  drafter->close(0);
  TokenTree tree;
  size_t size = text.size();
  int64_t nodes = 0;
  for (auto _ : state) {
    if (size + kPerRound > text.size()) {
      state.PauseTiming();
      drafter->close(1);
      // The prediction is of what it is asked about, and never of use.
      open(*drafter, 1, text, text.first(static_cast<size_t>(history)));
      size = static_cast<size_t>(history);
      take_in(*drafter, 1, text.first(size));
      state.ResumeTiming();
    }
    tree.clear();
    DraftRequest request{1, text.first(size), 64, &tree};
    check(drafter->propose({&request, 1}));
    nodes += tree.size();
    size += kPerRound;
    take_in(*drafter, 1, text.first(size));
  }
  state.counters["nodes"] =
      benchmark::Counter(static_cast<double>(nodes), benchmark::Counter::kAvgIterations);
}

void add_all() {
  const std::pair<const char*, Make> drafters[] = {
      {"ngram", [] { return value_or_exit(make_ngram_drafter({})); }},
      {"ngram/matches:4",
       [] { return value_or_exit(make_ngram_drafter({.num_tokens = 24, .num_matches = 4})); }},
      {"prediction", [] { return value_or_exit(make_prediction_drafter({})); }},
      {"suffix", [] { return value_or_exit(make_suffix_drafter({})); }},
      {"suffix/tree", [] { return value_or_exit(make_suffix_drafter({.tree = true})); }},
      {"recycling",
       [] { return value_or_exit(make_recycling_drafter({.vocab = kVocab, .num_tokens = 64})); }},
  };
  for (const auto& [name, factory] : drafters) {
    for (const int history : {1024, 32768}) {
      const std::string full = std::string(name) + "/history:" + std::to_string(history);
      benchmark::RegisterBenchmark(
          full.c_str(),
          [make = factory, history](benchmark::State& state) { rounds(state, make, history); })
          ->Iterations(kRounds)
          ->Unit(benchmark::kMicrosecond);
    }
  }
}

std::vector<float> some_logits(int vocab) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  std::vector<float> logits(static_cast<size_t>(vocab));
  for (float& logit : logits) logit = normal(random);
  return logits;
}

// With another position in each turn.
using Choose = std::function<void(Sampler&, std::span<const float>, const SamplingContext&)>;

void choices(benchmark::State& state, int vocab, double temperature, const Choose& choose) {
  const std::vector<float> logits = some_logits(vocab);
  SamplingParams params;
  params.temperature = temperature;
  Sampler sampler(params, vocab);
  std::vector<int32_t> text;
  text.reserve(1 << 24);
  for (auto _ : state) {
    text.push_back(0);
    choose(sampler, logits, {text, {}, nullptr});
  }
}

void add_choices() {
  const Choose draw = [](Sampler& sampler, std::span<const float> logits,
                         const SamplingContext& context) {
    benchmark::DoNotOptimize(sampler.sample(logits, context));
  };
  const Choose rank = [out = std::vector<ScoredToken>()](Sampler& sampler,
                                                         std::span<const float> logits,
                                                         const SamplingContext& context) mutable {
    sampler.ranking(logits, context, 4, out);
  };
  for (const auto& [name, choose] : {std::pair("draw", draw), std::pair("rank", rank)}) {
    for (const int temperature : {0, 1}) {
      for (const int vocab : {49152, 151936, 262144}) {
        const std::string full = std::string(name) + "/temperature:" + std::to_string(temperature) +
                                 "/vocabulary:" + std::to_string(vocab);
        benchmark::RegisterBenchmark(full.c_str(), [vocab, temperature,
                                                    choose = choose](benchmark::State& state) {
          choices(state, vocab, temperature, choose);
        })->Unit(benchmark::kMicrosecond);
      }
    }
  }
}

}  // namespace
}  // namespace aerie

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  aerie::add_all();
  aerie::add_choices();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
