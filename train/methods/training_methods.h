// The methods that drafters can be trained by.
#pragma once

#include <span>

#include "train/run/trainer.h"
#include "train/run/training_run.h"

namespace CLI {
class App;
}

namespace aerie::train {

// A method is a line in training_methods.cc; its functions are in train/command/flags/.
struct MethodEntry {
  const char* name;  // of the subcommand
  const char* help;
  // Sets what it wants otherwise than TrainOptions.
  void (*set_defaults)(TrainOptions& options);
  // Adds its own flags; the returned function makes it of what was parsed, and must not outlive
  // `app`.
  MakeMethod (*add_flags)(CLI::App& app);
};

std::span<const MethodEntry> method_entries();

}  // namespace aerie::train
