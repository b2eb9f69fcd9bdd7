// How `aerie speedup` divides its time. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace aerie::train {

// What is measured before it starts.
struct SpeedupSpeeds {
  double plain = 0.0;      // tokens/s of one reply, plain decoding
  double answering = 0.0;  // tokens/s of all replies that are written at a time
  int replies_at_a_time = 0;
  double training = 0.0;        // tokens/s that steps go through, features at hand
  bool bf16 = false;            // products of 16 bits: the faster ones here
  int64_t parameters = 0;       // that are trained
  std::vector<int32_t> layers;  // whose features the method reads
  int64_t feature_bytes = 0;    // of a token, stored
  double seconds = 0.0;         // that measuring took
};

struct SpeedupPrompts {
  int count = 0;
  double turns = 1.0;  // of a prompt, in the mean
};

struct SpeedupPlan {
  double data_seconds = 0.0, training_seconds = 0.0, evaluation_seconds = 0.0;
  int replies = 0;             // samples: all turns of a prompt are one
  int64_t reply_tokens = 0;    // of all of them, at most
  int64_t trained_tokens = 0;  // prompts and repetitions counted
  int64_t batch_tokens = 0;    // of a step
  double held_out = 0.0;       // the fraction of prompts that validates
  int evaluated_prompts = 0;
};

inline constexpr int kSpeedupReplyTokens = 256;       // of a turn, at most
inline constexpr int kSpeedupEvaluationTokens = 128;  // of a reply

// kInvalidArgument, saying what would be enough, for a budget in which there is not time for the
// least that is of use.
Expected<SpeedupPlan> make_speedup_plan(double budget, const SpeedupSpeeds& speeds,
                                        const SpeedupPrompts& prompts);

// How many prompts `seconds` suffice to evaluate; may be 0.
int evaluated_prompts(double seconds, const SpeedupSpeeds& speeds);

// Bytes that the folder takes at most, about: without features, and those.
int64_t speedup_disk_bytes(const SpeedupPlan& plan, const SpeedupSpeeds& speeds);
int64_t speedup_feature_bytes(const SpeedupPlan& plan, const SpeedupSpeeds& speeds);

// For people: what will be done, how long it takes, where it goes and what to expect.
// `stores_features`: while answering, for the training.
std::string describe_plan(const SpeedupPlan& plan, const SpeedupSpeeds& speeds,
                          const SpeedupPrompts& prompts, const std::string& out,
                          bool stores_features);

}  // namespace aerie::train
