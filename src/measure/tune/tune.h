// `aerie tune`: what to speculate with on this machine, for this model and these prompts.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "engine/profile.h"
#include "measure/passes/verify_bench.h"
#include "measure/spec/spec_bench.h"
#include "measure/tune/search.h"

namespace aerie::measure {

struct TuneOptions {
  // Of its methods, those that do not say how many tokens they draft are tried at each of the
  // depths, in several shapes (variants_of()). None: all that are at hand (candidates_at_hand()).
  SpecOptions spec;
  std::vector<int> depths = {2, 4, 8, 16};
  std::vector<int> batches = {1, 2, 4, 8, 16, 32, 64};  // sequences at a time
  // Rules beside spec.engine's that the choice for one sequence is tried with above temperature 0.
  std::vector<VerifyRule> rules = {};
  std::string hub_cache;  // where drafters are looked for, too; empty: it is not
  double minutes = 10;    // about what the search may take
};

struct TuneReport {
  VerifyReport passes;
  SpecReport spec;  // the last round at each temperature
  std::vector<Tried> tried;
  size_t left_out = 0;  // candidates that there was no time for
  Profile profile;
};

// Times passes of up to 128 rows and searches the candidates at each temperature (search()). For
// one sequence the fastest method as measured is chosen; for more, the one that the measured
// acceptance and costs of passes promise most of, each sequence's draft and nodes counted ("auto",
// which decides that anew in each round, left out). Plain decoding unless something is at least 2 %
// faster. An interrupted one has the choices of the temperatures that were done.
//
// kInvalidArgument for depths outside 1 to 64, batches outside 1 to 128 and no time; else errors of
// bench_spec() and bench_verify().
Expected<TuneReport> tune(const TuneOptions& options);

// The choices, in words.
std::string to_text(const TuneReport& report);

// What the methods of `figures`, plain decoding first, make of `batch` sequences at a time. Pure.
ProfileChoice choose(const std::vector<const MethodFigures*>& figures, int batch,
                     const PassCost& cost, double context);

}  // namespace aerie::measure
