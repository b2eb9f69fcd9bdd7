// `aerie bench spec --simulate-acceptance … --replay`: the same acceptance rates, run. A reply is
// written plainly, and again with a drafter that knows it and is wrong so often
// (simulated_drafter.h), in drafts of each depth and as `auto` decides; so what the engine makes of
// such drafts is measured, its controller among it.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "engine/engine_options.h"
#include "measure/statistics.h"

namespace aerie::measure {

struct ReplayOptions {
  EngineOptions engine;            // what drafts in it and its context do not count
  std::vector<double> acceptance;  // by depth, each given that the one before was accepted
  double draft_cost = 0;           // a drafted token's time by that of a plain token
  int context = 256;               // random tokens of the prompt
  int tokens = 128;                // of the reply
  int repeats = 3;
};

struct ReplayPoint {
  int depth = 0;       // of every draft; 0: as `auto` decides
  double drafted = 0;  // tokens a round, mean
  double accepted_length = 0;
  double speedup = 0;  // over plain decoding, median of the turns
  Spread spread;       // of it
};

struct ReplayReport {
  int tokens = 0;
  double plain_tokens_per_second = 0;
  std::vector<ReplayPoint> points;  // of depth 1 to as many as there are rates, then `auto`
};

// Plain decoding and all others take turns. kInternal if a reply's ids are not plain decoding's.
Expected<ReplayReport> replay_acceptance(const ReplayOptions& options);

std::string to_text(const ReplayReport& report);

}  // namespace aerie::measure
