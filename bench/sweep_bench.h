// `aerie bench sweep`: how deep to draft, method by method and temperature by temperature.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "bench/spec_bench.h"

namespace aerie::bench {

struct SweepOptions {
  SpecOptions spec;  // its methods take each of the depths as num_speculative_tokens
  std::vector<int> depths = {1, 2, 4, 8};
};

struct SweepRow {
  std::string method;  // without its depth
  double temperature = 0;
  std::vector<Figures> figures;  // by depth
  int best = 0;                  // the place of the greatest speed-up
};

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

}  // namespace aerie::bench
