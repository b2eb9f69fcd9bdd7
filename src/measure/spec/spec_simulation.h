// `aerie bench spec --simulate-acceptance`: what speculation would gain if drafts were accepted so
// often, from measured passes; and what it does gain, if they are replayed (spec_replay.h). Every
// output says that it is synthetic.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/engine_options.h"
#include "measure/passes/verify_bench.h"
#include "measure/spec/spec_replay.h"

namespace aerie::measure {

struct SimulationOptions {
  EngineOptions engine;  // what drafts in it and its context do not count
  // By depth, each given that the one before was accepted, as Figures::n_alpha; 0 to 1.
  std::vector<double> acceptance;
  double draft_cost = 0;  // a drafted token's time by that of a pass of one row
  int context = 256;      // positions behind which passes are timed
  int repeats = 7;
  int64_t memory_mib = 0;  // that the bandwidth is measured with; 0: several times the last cache
  int replay_tokens = 0;   // of the reply that is replayed; 0: nothing is
  int replay_repeats = 3;
};

struct SimulationPoint {
  int drafted = 0;  // tokens of a draft, a chain
  double expected_length = 0;
  double pass_ms = 0;     // of 1 + drafted rows
  double pass_ratio = 0;  // to one row
  double speedup = 0;     // over plain decoding, with the passes as measured
  double ideal = 0;       // if every pass took the time of one row
};

struct SimulationReport {
  std::vector<double> acceptance;
  double draft_cost = 0;
  VerifyReport passes;
  std::vector<SimulationPoint> points;  // of 0 drafted tokens to as many as there are depths
  int best = 0;                         // the point of the greatest speed-up
  std::optional<ReplayReport> replay;
};

// kInvalidArgument for values that cannot be; else errors of bench_verify().
Expected<SimulationReport> simulate_acceptance(const SimulationOptions& options);

std::string to_text(const SimulationReport& report);
std::string to_json(const SimulationReport& report);
std::string to_html(const SimulationReport& report);

}  // namespace aerie::measure
