// What `aerie speedup` found out, for people and as JSON.
#pragma once

#include <string>
#include <vector>

#include "measure/tune/tune.h"
#include "train/run/training_run.h"
#include "train/speedup/speedup_plan.h"

namespace aerie::train {

struct SpeedupFacts {
  std::string method;                // "eagle3"
  std::string model, head, profile;  // paths
  std::string with_head;             // as --speculate takes it: auto, and the head
  bool chat_template = false;        // whether the model has one
  SpeedupSpeeds speeds;
  int64_t samples = 0, tokens = 0, generated = 0;  // of the data
  double data_seconds = 0.0;                       // of answering
  RunState training;
};

// Tokens that steps went through, by the seconds of answering and training.
double tokens_per_second(const SpeedupFacts& facts);

// The fastest of what was measured for one sequence at temperature 0.
const ProfileChoice& best_choice(const Profile& profile);

// A line for each method and temperature: speed, ratio, tokens of a round, acceptance by position.
std::string speedup_table(const measure::SpecReport& report);

// What to type, the one that was fastest first. Plain decoding has no --speculate.
std::vector<std::string> speedup_commands(const SpeedupFacts& facts, const ProfileChoice& best);

// What it comes to, in words.
std::string speedup_verdict(const SpeedupFacts& facts, const measure::TuneReport& report);

std::string speedup_json(const SpeedupFacts& facts, const measure::TuneReport& report);

}  // namespace aerie::train
