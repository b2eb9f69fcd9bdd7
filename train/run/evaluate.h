// How many tokens of a drafter the target accepts, measured by the engine itself.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"

namespace aerie::train {

struct AcceptanceOptions {
  EngineOptions engine;  // model and how to run it; speculation and rule are set here
  std::vector<std::vector<int32_t>> prompts;
  int max_tokens = 128;  // of a reply
  double temperature = 0.0;
  uint64_t seed = 1;
  const std::atomic<bool>* cancel = nullptr;  // true ends it with kCancelled; may be null
};

// Of all replies together.
struct Acceptance {
  int replies = 0;
  int64_t tokens = 0;   // generated
  int64_t rounds = 0;   // target passes after the prompts
  int64_t drafted = 0;  // nodes
  int64_t accepted = 0;
  double tau = 0.0;                  // mean accepted length: tokens of a round
  std::vector<double> per_position;  // by depth: accepted there, over rounds
  double tokens_per_second = 0.0;    // after the first token of each reply
};

// The rule is the exact one, so the replies are plain decoding's. kInvalidArgument if there are no
// prompts; else errors of the engine.
Expected<Acceptance> measure_acceptance(const AcceptanceOptions& options,
                                        const SpeculativeConfig& speculation);

// What DraftSettings::model says: `folder` in the place of the braces that it begins with.
std::string in_folder(const std::string& path, const std::string& folder);

// What DraftSettings::speculate says, with `folder` in the braces' place.
Expected<SpeculativeConfig> draft_config(const std::string& speculate, const std::string& folder);

}  // namespace aerie::train
