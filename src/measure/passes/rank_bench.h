// `aerie bench ranks`: what a model costs that several processes share, measured with those that
// mpirun started, and predicted for other numbers of them and other links.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "kernels/backend.h"
#include "parallel/link.h"

namespace aerie::measure {

struct RankOptions {
  std::string model;
  std::vector<int> rows = {1, 2, 4, 8, 16};
  std::vector<int> ranks = {1, 2, 4, 8, 16};  // that are predicted for
  int context = 128;
  int threads = 0;  // of each rank; 0: default_threads()
  int repeats = 9;
  // Of another link than the one that is measured; 0: that one.
  double latency_us = 0.0;
  double gbits = 0.0;
  // That a drafted token stands where the one before it does, for the best number of them.
  double acceptance = 0.7;
  kernels::Isa isa = kernels::best_isa();
  std::shared_ptr<Group> group;  // EngineOptions::group; required
};

// A pass of so many rows as it was measured, and what the model of costs makes of its own figures.
struct RankPoint {
  int rows = 0;
  RankedPass pass;       // medians
  double measured = 0;   // seconds
  double predicted = 0;  // for as many ranks and the measured link
  double elsewhere = 0;  // and for the link that is predicted for
};

// For a number of ranks: the cheapest number of drafted tokens, and tokens a second with it, if
// drafting costs nothing.
struct RankChoice {
  int ranks = 1;
  double plain = 0;  // tokens a second without drafts
  int drafted = 0;
  double drafting = 0;  // with that many
};

struct RankReport {
  std::string model;
  int threads = 0;
  int context = 0;
  Link measured, link;  // the one that was there; the one that is predicted for
  double acceptance = 0;
  std::vector<RankPoint> points;
  std::vector<RankChoice> choices;
};

// kInvalidArgument for options that cannot be; errors of LoadedModel.
Expected<RankReport> bench_ranks(const RankOptions& options);

// By the points' passes. Pure.
std::vector<RankChoice> choose_ranks(const std::vector<RankPoint>& points,
                                     const std::vector<int>& ranks, const Link& link,
                                     double acceptance);

std::string to_text(const RankReport& report);
std::string to_json(const RankReport& report);

}  // namespace aerie::measure
