// `aerie bench sweep`: how deep to draft, method by method and temperature by temperature.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "measure/spec/spec_bench.h"

namespace aerie::measure {

struct SweepOptions {
  SpecOptions spec;  // its methods take each of the depths as num_speculative_tokens
  std::vector<int> depths = {1, 2, 4, 8};
};

struct SweepRow {
  std::string method;  // without its depth
  double temperature = 0;
  std::vector<Figures> figures;  // by depth
  int best = 0;                  // the place of the greatest speed-up
  // By depth: the speed-up if drafting took no time and passes ran at the machine's limits; empty
  // if passes were not timed.
  std::vector<double> roofline;
};

// What a round of figures.mean_accepted_length tokens for the nodes that were drafted gains over
// plain decoding if a pass takes its floor (VerifyPoint), between the rows that were measured in
// proportion; 0 if it cannot be told. Pure.
double roofline_speedup(const Figures& figures, const VerifyReport& passes);

struct SweepReport {
  SpecReport spec;  // all of it: plain decoding, then every method at every depth
  std::vector<int> depths;
  std::vector<SweepRow> rows;  // by temperature, then by method
};

// One run of bench_spec(), so that all of them are compared with the same plain decoding. Every
// depth of a draft model opens it once more. kInvalidArgument for no depths, depths beyond 1 to 64
// or twice, and methods that are none or name a depth of their own; else the errors of
// bench_spec().
Expected<SweepReport> bench_sweep(const SweepOptions& options);

std::string to_text(const SweepReport& report);
std::string to_json(const SweepReport& report);
std::string to_html(const SweepReport& report);

}  // namespace aerie::measure
