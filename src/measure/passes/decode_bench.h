// `aerie bench decode`: the speed of prompts and of decoding, plainly and with a drafter.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"
#include "measure/passes/machine.h"
#include "measure/statistics.h"

namespace aerie::measure {

struct DecodeOptions {
  EngineOptions engine;               // its context is set here
  std::vector<int> contexts = {512};  // tokens of the prompt that decoding follows
  int tokens = 128;                   // decoded, greedily; end tokens do not end it
  int repeats = 5;
  int64_t memory_mib = 0;  // that the bandwidth is measured with; 0: several times the last cache
  std::string text_file;   // the prompts begin it, repeated if it is short; empty: random tokens
};

struct Speed {
  double median = 0;  // tokens a second
  Spread spread;
};

// Where the time of a pass of the target goes, and of what drafts for it, on a device:
// microseconds, of the last repetition. `device`: of an extra one, what the device itself took for
// its graphs, which is all passes of few rows.
struct RoundTimes {
  double all = 0;  // 0: no device computes the model
  double draft = 0, verify = 0, rest = 0;
  double device = 0;
};

struct DecodePoint {
  int context = 0;
  Speed prompt;  // until the first token
  Speed plain;   // after it
  // With a drafter, else 0: its speed, how many times the plain one (the median of a repetition's
  // ratios), and the tokens of a pass.
  Speed speculative;
  double speedup = 0;
  double accepted_length = 0;
  RoundTimes plain_round, round;
};

struct DecodeReport {
  std::string model;
  std::string speculation;  // "none", or what drafts
  int threads = 0;
  int tokens = 0;
  kernels::Isa isa = kernels::Isa::kReference;
  Limits limits;  // bandwidth and FMA alone, measured at the end
  std::vector<DecodePoint> points;
};

// Runs of a repetition take turns: each context's plainly and, with a drafter, speculatively; ids
// must be the same. kInvalidArgument for counts that cannot be, kInternal if ids differ under the
// exact rule; else errors of opening and generating.
Expected<DecodeReport> bench_decode(const DecodeOptions& options);

std::string to_text(const DecodeReport& report);
std::string to_json(const DecodeReport& report);

}  // namespace aerie::measure
