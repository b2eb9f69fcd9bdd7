// How `aerie tune` finds the best of many candidates in little time: successive halving (Jamieson
// and Talwalkar 1502.07943).
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "draft/auto/pass_cost.h"
#include "measure/spec/spec_bench.h"

namespace aerie::measure {

struct SearchOptions {
  // How the last round measures: all prompts of the selection with all repetitions, unless that
  // takes longer than half of `seconds`. Its methods and temperatures are not looked at.
  SpecOptions spec;
  std::vector<int> batches;  // that candidates may be the best for
  double seconds = 300;      // about what the search may take
  double context = 256;      // positions that `cost` is asked for
};

// What became of a candidate.
struct Tried {
  std::string method;  // MethodFigures::to_use
  double temperature = 0;
  int round = 0;  // the last that it was in, from 1
  int prompts = 0;
  double speedup = 0;  // there
  std::string error;   // why it cannot be used; empty: it can
};

struct SearchResult {
  SpecReport last;           // of the last round: plain decoding and at most six candidates
  std::vector<Tried> tried;  // the best ones first
  size_t left_out = 0;       // candidates that there was no time for
  bool interrupted = false;  // `last` is not complete, then, or empty
};

// Measures all candidates on few prompts and short replies, then the better half of them on twice
// as many, and so on (survivors()). A candidate that cannot be opened is noted, unless it is the
// only one. Where not even the first round fits into the time, every other candidate is left out.
// Errors of bench_spec(); replies that differ from plain decoding's are one.
Expected<SearchResult> search(const SearchOptions& options, double temperature,
                              std::vector<SpeculativeConfig> candidates, const PassCost& cost);

// The places of the `count` best among `figures`, whose first is plain decoding and does not count:
// those with the best place for any of `batches` sequences at a time. Pure.
std::vector<size_t> survivors(const std::vector<const MethodFigures*>& figures, size_t count,
                              const std::vector<int>& batches, const PassCost& cost,
                              double context);

// Of `batch` sequences that each do what one did, over plain decoding of as many; 0 if it cannot be
// told. Pure.
double expected_speedup(const MethodFigures& figures, int batch, const PassCost& cost,
                        double context);

// Rows of a pass of so many sequences that each draft what one did, in the mean. Pure.
int rows_of(const Figures& figures, int batch);

}  // namespace aerie::measure
