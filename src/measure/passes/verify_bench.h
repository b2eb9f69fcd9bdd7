// `aerie bench verify`: what a verify pass of so many rows costs, against one row and against what
// the machine allows; and how fast prompts are read.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "engine/engine_options.h"
#include "kernels/backend.h"
#include "measure/passes/machine.h"
#include "measure/statistics.h"

namespace aerie::measure {

struct VerifyOptions {
  EngineOptions engine;  // what drafts in it and its context do not count
  std::vector<int> rows = {1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 48, 64};  // 1 is always there
  std::vector<int> contexts = {128, 2048};
  std::vector<int> prompts = {};  // tokens of the prompts that are read besides
  int repeats = 7;
  int64_t memory_mib = 0;  // that the bandwidth is measured with; 0: several times the last cache
};

// Figures of a repetition are compared with one another only: limits, one row and the pass are all
// measured within seconds. What is reported are medians over the repetitions.
struct VerifyPoint {
  int rows = 0;
  int context = 0;
  double median_ms = 0;
  double floor_ms = 0;
  Spread spread_ms;            // of the pass
  double ratio = 0;            // to one row in the same context
  double to_floor = 0;         // times the floor
  double bandwidth = 0;        // the bytes that it must read by its time
  double bandwidth_share = 0;  // of the machine's
  double experts = 0;          // that it read, of an average layer that has some
};

// A prompt that begins with nothing cached.
struct PromptPoint {
  int tokens = 0;
  double median_ms = 0;
  Spread spread_ms;
  double tokens_per_second = 0;
  double operations = 0;  // multiplications and additions a second
};

struct VerifyReport {
  std::string model;
  int threads = 0;
  kernels::Isa isa = kernels::Isa::kReference;
  kernels::KvType cache_type = kernels::KvType::kF16;
  int experts = 0;  // in a layer; 0: the model has none
  int expert_layers = 0;
  double expert_bytes = 0;  // of one in one layer
  Limits limits;            // medians
  std::vector<VerifyPoint> points;
  std::vector<PromptPoint> prompts;
};

// Loads the model, fills a cache to the longest context by a prefill of random tokens, and times
// passes of a root and a chain, all rows wanting logits; nothing is committed. Before that,
// prompts. kInvalidArgument with what is possible for counts that the model or the flags do not
// allow; else errors of loading.
Expected<VerifyReport> bench_verify(const VerifyOptions& options);

std::string to_text(const VerifyReport& report);
std::string to_json(const VerifyReport& report);

}  // namespace aerie::measure
