// `aerie doctor`: how fast a model can be here at most, and what stands in the way.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "measure/doctor/machine_facts.h"
#include "measure/doctor/model_facts.h"
#include "measure/passes/machine.h"

namespace aerie::measure {

enum class Severity : uint8_t {
  kGood,
  kHint,     // something to know
  kProblem,  // it costs speed
  kFatal,    // the model cannot run
};
std::string_view severity_name(Severity severity);  // "good", "hint", "problem", "fatal"

struct Finding {
  Severity severity = Severity::kHint;
  std::string what;
  std::string why;     // it matters
  std::string advice;  // empty: there is nothing to be done
};

// The least time of a pass.
struct ExpectedPass {
  int rows = 1;
  double seconds = 0;
  bool by_memory = true;  // reading takes longest, else multiplying
};

struct Diagnosis {
  MachineFacts machine;
  std::optional<Limits> limits;      // none: not measured
  std::optional<ModelFacts> model;   // none: not asked for, or model_status
  Status model_status;               // why the model that was asked for cannot be opened
  int pass_context = 0;              // positions that are cached in `passes`
  std::vector<ExpectedPass> passes;  // of 1, 4 and 8 rows; none without model or limits
  std::vector<Finding> findings;     // the worst first

  bool can_run() const;  // nothing is fatal
};

// Fills in passes and findings from the rest. Pure.
void diagnose(Diagnosis& diagnosis);

// Parts of the findings. Pure.
std::vector<Finding> machine_findings(const MachineFacts& machine);
std::vector<Finding> memory_findings(const ModelFacts& model, const MachineFacts& machine);
// Requires passes.
std::vector<Finding> speed_findings(const Diagnosis& diagnosis);
// What the processor has and no kernel uses.
std::vector<std::string> unused_features(const MachineFacts& machine);

}  // namespace aerie::measure
