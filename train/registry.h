// The methods that drafters can be trained by.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "train/method.h"
#include "train/target.h"
#include "train/trainer.h"

namespace CLI {
class App;
}

namespace aerie::train {

// What a method is made of, beside its flags.
struct MethodInputs {
  Target& target;
  at::Generator& generator;
  // Of each token of the vocabulary, how often the target generated it in the training data.
  std::span<const int64_t> token_counts;
};
using MakeMethod = std::function<Expected<std::unique_ptr<Method>>(const MethodInputs&)>;

// A method is a line in registry.cc; its functions are in train/flags/.
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
