// A drafter that knows the reply and is wrong as often as it is told to be: what an engine makes of
// drafts of a known quality and price can be measured with it, whatever the model writes. For
// measurements alone; no program offers it.
#pragma once

#include <cstdint>
#include <vector>

#include "draft/method.h"

namespace aerie::measure {

// What simulated drafters go by; the same for all of them. Not thread-safe: set it while none is at
// work.
struct SimulatedDrafts {
  std::vector<int32_t> reply;      // all tokens, the prompt's among them
  std::vector<double> acceptance;  // by depth, each given that the one before was accepted
  double token_seconds = 0;        // that drafting a token takes, on one thread
  uint64_t seed = 0;
};
SimulatedDrafts& simulated_drafts();

// "simulated": a chain. Whether a token is the reply's is drawn for its position and depth, so that
// it does not depend on the rounds before it.
extern const Method kSimulatedMethod;

}  // namespace aerie::measure
