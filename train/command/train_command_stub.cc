// Where LibTorch is not there, nothing can be trained.
#include "train/command/speedup_command.h"
#include "train/command/train_command.h"

namespace aerie::train {

std::function<Expected<int>(const std::string& command)> add_train_commands(CLI::App& app) {
  (void)app;
  return [](const std::string&) -> Expected<int> { return -1; };
}

std::function<Expected<int>(const std::string& command)> add_speedup_command(CLI::App& app) {
  (void)app;
  return [](const std::string&) -> Expected<int> { return -1; };
}

}  // namespace aerie::train
