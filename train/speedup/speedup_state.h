// OUT/speedup.json: what `aerie speedup` was asked for, what it measured before it began, and how
// far it has come.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "format/json.h"
#include "train/run/run_folder.h"
#include "train/speedup/speedup_plan.h"

namespace aerie::train {

struct SpeedupState {
  OptionTexts options;  // others cannot go on
  SpeedupSpeeds speeds;
  bool stores_features = false;  // while answering
  double data_seconds = 0.0;     // spent so far
  int replies = 0;               // that are to be made at first, or were asked for last
  bool answered = false;
  double training_seconds = 0.0;  // to train for; set once all is answered
  bool trained = false;
  bool done = false;
};

// `unit`: what the keys of the speeds end in.
Json json_of(const SpeedupSpeeds& speeds, const std::string& unit = "");

// None if there is no such file. kInvalidData for what is broken.
Expected<std::optional<SpeedupState>> read_speedup_state(const std::string& path);

// Whole or not at all.
Status write_speedup_state(const std::string& path, const SpeedupState& state);

// "budget 7200 there, 3600 now"; empty: nothing differs.
std::string difference(const OptionTexts& there, const OptionTexts& now);

}  // namespace aerie::train
