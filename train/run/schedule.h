// How far a training has come, and the learning rate there. Pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace aerie::train {

enum class Decay : uint8_t { kCosine, kLinear, kConstant };
// "cosine", "linear", "constant".
Expected<Decay> parse_decay(std::string_view name);
std::string_view decay_name(Decay decay);

struct Schedule {
  double rate = 1e-4;    // the highest
  double warmup = 0.02;  // share of the training in which the rate rises from 0 to it
  Decay decay = Decay::kCosine;
  double floor = 0.1;  // what the rate falls to, as a share of `rate`
};
// kInvalidArgument, naming the flag, for what cannot be.
Status check(const Schedule& schedule);

// The papers' rate for heads of targets of this width: 1e-4 for models 4096 wide; narrower ones
// bear more.
double usual_rate(int hidden);

// The learning rate where `share`, 0 to 1, of the training is done.
double rate_at(const Schedule& schedule, double share);

// How long to train: exactly one is not 0.
struct Budget {
  int64_t steps = 0;
  int64_t epochs = 0;
  double seconds = 0.0;
};
Status check(const Budget& budget);

}  // namespace aerie::train
