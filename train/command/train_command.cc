#include "train/command/train_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <utility>
#include <vector>

#include "base/interrupt.h"
#include "base/standard_streams.h"
#include "train/command/method_flags.h"
#include "train/command/train_flags.h"
#include "train/data/duration_text.h"
#include "train/methods/training_methods.h"
#include "train/run/training_run.h"

namespace aerie::train {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPause{10};  // between lines of progress; the log has them all

int report(const TrainSettings& settings, const TrainResult& result) {
  const std::string& folder = settings.train.folder;
  const std::string best = result.state.best ? fmt::format("; best after step {}: {}/best",
                                                           result.state.best_step, folder)
                                             : "";
  if (!settings.continued.empty() && result.state.finished && result.state.best_step == 0) {
    print_message("{} is the best there is: training it further brought nothing\n",
                  settings.continued);
  }
  if (result.end == TrainEnd::kInterrupted) {
    print_message("interrupted after step {}; the same command goes on{}\n", result.state.step,
                  best);
    return 130;
  }
  print_message(
      "{} {} steps, {} tokens, {}: {}/final{}\n{}\n",
      result.end == TrainEnd::kStoppedEarly ? "stopped for want of gain after" : "trained",
      result.state.step, result.state.rows, duration_text(result.state.seconds), folder, best,
      rate_text(static_cast<double>(result.rows), result.seconds, result.steps));
  return 0;
}

Expected<int> run(const MakeMethod& make, TrainSettings settings, const std::string& command) {
  catch_interrupts();
  TrainCalls calls;
  calls.cancel = &interrupted;
  calls.progress = [last = Clock::time_point()](const std::string& line) mutable {
    if (Clock::now() - last < kPause) return;
    last = Clock::now();
    print_message("{}\n", line);
  };
  calls.say = [](const std::string& line) { print_message("{}\n", line); };
  AERIE_ASSIGN_OR_RETURN(const TrainingRun run, run_training(make, settings, command, calls));
  return report(settings, run.result);
}

TrainSettings defaults_of(const TrainingMethod& method) {
  TrainSettings settings;
  settings.train.schedule = method.schedule;
  settings.train.adamw = method.adamw;
  settings.train.clip_norm = method.clip_norm;
  settings.train.clip_value = method.clip_value;
  return settings;
}

}  // namespace

std::function<Expected<int>(const std::string& command)> add_train_commands(CLI::App& app) {
  struct Command {
    CLI::App* app;
    std::function<Expected<TrainSettings>()> settings;
    MakeMethod make;
  };
  std::vector<Command> commands;
  for (const TrainingMethod* method : training_methods()) {
    CLI::App* own = app.add_subcommand(std::string(method->name), std::string(method->what));
    auto settings = add_train_flags(*own, defaults_of(*method));
    SettingList list;
    MakeMethod make = declare(*method, list);
    add_method_flags(*own, list);
    commands.push_back({own, std::move(settings), std::move(make)});
  }
  return [commands](const std::string& typed) -> Expected<int> {
    for (const Command& command : commands) {
      if (!command.app->parsed()) continue;
      AERIE_ASSIGN_OR_RETURN(TrainSettings settings, command.settings());
      return run(command.make, std::move(settings), typed);
    }
    return -1;
  };
}

}  // namespace aerie::train
