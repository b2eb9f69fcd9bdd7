// The flags that all methods share.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"
#include "train/group.h"
#include "train/trainer.h"
#include "train/training_data.h"

namespace CLI {
class App;
}

namespace aerie::train {

struct TrainSettings {
  std::string model;
  DataOptions data;
  TrainOptions train;
  GroupOptions group;
  int threads = 0;        // of tensors and of the engine; 0: all
  int eval_prompts = 16;  // to measure acceptance with; 0: it is not measured
  int eval_tokens = 128;  // of a reply
  double eval_temperature = 0.0;
  std::string eval_speculate;  // instead of what the method says; empty: that
  std::string data_notes;      // a file
};

// Adds the flags with the defaults of `settings`; the returned function turns what was parsed into
// settings, among them what stands in config.json of all flags of `app`, those of others included.
// It must not outlive `app`.
std::function<Expected<TrainSettings>()> add_train_flags(CLI::App& app,
                                                         const TrainSettings& settings);

// "90", "90s", "30m", "2h", "1.5h" as seconds. kInvalidArgument, naming the flag, for anything
// else.
Expected<double> parse_duration(const std::string& flag, const std::string& text);

}  // namespace aerie::train
