// `aerie bench spec`: speculation against plain decoding on sets of prompts, method by method.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"
#include "measure/passes/verify_bench.h"
#include "measure/spec/spec_summary.h"
#include "report/prompt_set.h"

namespace aerie::measure {

struct SpecOptions {
  EngineOptions engine;  // its speculations are set here
  std::vector<std::string> datasets;
  PromptSelection selection;
  // Plain decoding comes first in any case, whether it is named or not.
  std::vector<SpeculativeConfig> methods;
  std::vector<double> temperatures = {0.0};
  int max_tokens = 256;  // of a reply
  int repeats = 3;       // of every reply, of which the median one counts
  uint64_t seed = 1;     // a prompt's own is this plus Prompt::number
  // Rows and repetitions of the passes that are timed at the start; no rows: none are.
  std::vector<int> pass_rows = {1, 2, 3, 4, 6, 8, 12, 16};
  int pass_context = 256;
  int pass_repeats = 5;
  int64_t memory_mib = 0;  // that the bandwidth is measured with; 0: several times the last cache
  std::string label;       // what the line of progress begins with
  // Told after every repetition of a prompt. May be null.
  std::function<void(int done, int of)> progress;
  // Asked all the time: true ends the run with what is complete. May be null.
  const std::atomic<bool>* cancel = nullptr;
};

struct TaskFigures {
  std::string task;
  Figures figures;
};

struct MethodFigures {
  std::string method;    // "none", "ngram:num_speculative_tokens=5,gate=0"
  std::string to_use;    // the same without what it is measured with: for `aerie run --speculate`
  bool decides = false;  // Combination::kAuto
  double temperature = 0;
  Figures all;
  Figures unlooped;  // of the replies that do not loop
  std::vector<TaskFigures> tasks;
};

struct SpecReport {
  std::string model;
  int threads = 0;
  kernels::Isa isa = kernels::Isa::kReference;
  kernels::KvType cache_type = kernels::KvType::kF16;
  VerifyRule rule = VerifyRule::kExact;
  int context = 0;
  int max_tokens = 0;
  int repeats = 0;
  uint64_t seed = 0;
  bool chat_template = false;  // whether turns went through one
  std::vector<std::string> datasets;
  int prompts = 0;         // that were run with every method
  int turns_left_out = 0;  // later turns, of one temperature, for which the context was too short
  bool interrupted = false;
  VerifyReport passes;                 // no points: not timed
  std::vector<MethodFigures> methods;  // by temperature, then as given, plain decoding first
};

// Methods draft whether it pays or not (gate=0) unless they say that they do not.
//
// Turn by turn, every method writes the reply to the same history: the turns so far and plain
// decoding's replies. Methods take turns, and another one begins each time. Repetitions go through
// all prompts one after another, and drafters begin each with nothing learned (Engine::forget()).
// Under the exact rule, and under any at temperature 0, the ids must be plain decoding's:
// kInternal, naming prompt, turn, method, place and both ids, where they are not.
//
// The model's chat template is applied to `turns`; without one, turns and replies are a text with
// blank lines between them. kInvalidArgument for counts that cannot be, methods given twice and
// first turns for which the context is too short; else errors of reading prompts, opening and
// generating.
Expected<SpecReport> bench_spec(const SpecOptions& options);

}  // namespace aerie::measure
