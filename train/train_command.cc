#include "train/train_command.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "base/processor.h"
#include "base/thread_pool.h"
#include "bench/text_file.h"
#include "tools/interrupt.h"
#include "train/checkpoint_files.h"
#include "train/data/progress.h"
#include "train/model_card.h"
#include "train/registry.h"
#include "train/train_flags.h"

namespace aerie::train {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPause{10};  // between lines of progress; the log has them all

std::string processor_text(const TrainSettings& settings) {
  std::string text = processor_name();
  if (!settings.train.device.is_cpu()) text += " with " + settings.train.device.str();
  if (settings.group.world > 1) text += fmt::format(", {} processes", settings.group.world);
  return text;
}

Expected<CardFacts> card_facts(const TrainSettings& settings, const Target& target, Method& method,
                               const TrainingData& data, const std::string& command) {
  CardFacts facts;
  facts.method = settings.train.config.method;
  facts.speculate = method.settings().speculate;
  facts.own_model = method.settings().model;
  facts.base_model = data.datasets().front().info.model;
  facts.base_model_path = target.path();
  facts.command = command;
  facts.processor = processor_text(settings);
  facts.folders = settings.data.folders;
  facts.datasets = &data.datasets();
  facts.training_samples = data.set().training.size();
  facts.validation_samples = data.set().validation.size();
  facts.parameters = method.parameters().count();
  facts.eval_tokens = settings.eval_tokens;
  facts.eval_temperature = settings.eval_temperature;
  if (!settings.data_notes.empty()) {
    AERIE_ASSIGN_OR_RETURN(facts.data_notes,
                           bench::read_text_file(settings.data_notes, "--data-notes"));
  }
  return facts;
}

AcceptanceOptions acceptance_options(const TrainSettings& settings, const TrainingData& data) {
  AcceptanceOptions options;
  options.engine.model = settings.model;
  options.engine.threads = settings.threads;
  options.prompts = data.held_out_prompts(settings.eval_prompts);
  options.max_tokens = settings.eval_tokens;
  options.temperature = settings.eval_temperature;
  options.seed = settings.train.seed;
  options.cancel = &interrupted;
  return options;
}

int report(const TrainSettings& settings, const TrainResult& result) {
  const std::string& folder = settings.train.folder;
  const std::string best = result.state.best ? fmt::format("; best after step {}: {}/best",
                                                           result.state.best_step, folder)
                                             : "";
  if (result.end == TrainEnd::kInterrupted) {
    fmt::print(stderr, "interrupted after step {}; the same command goes on{}\n", result.state.step,
               best);
    return 130;
  }
  fmt::print(stderr, "{} {} steps, {} tokens, {}: {}/final{}\n",
             result.end == TrainEnd::kStoppedEarly ? "stopped for want of gain after" : "trained",
             result.state.step, result.state.rows, duration_text(result.state.seconds), folder,
             best);
  return 0;
}

Expected<int> run(const MakeMethod& make, TrainSettings settings, const std::string& command) {
  if (settings.threads > 0) at::set_num_threads(settings.threads);
  AERIE_ASSIGN_OR_RETURN(const auto data, TrainingData::open(settings.data));
  ThreadPool pool(1);
  AERIE_ASSIGN_OR_RETURN(const auto target, Target::open(settings.model, pool));
  target->to(settings.train.device);
  at::Generator generator = at::detail::createCPUGenerator(settings.train.seed);
  const std::vector<int64_t> counts = data->token_counts(target->config().vocab);
  AERIE_ASSIGN_OR_RETURN(const auto method, make({*target, generator, counts}));
  AERIE_RETURN_IF_ERROR(data->open_features(method->needs(), target->config().layers));
  AERIE_ASSIGN_OR_RETURN(const auto group, join_group(settings.group));

  OptionTexts& fixed = settings.train.config.fixed;
  fixed.emplace_back("the model's fingerprint", data->datasets().front().info.fingerprint);
  fixed.emplace_back("the data's fingerprint", data->fingerprint());
  AERIE_ASSIGN_OR_RETURN(const CardFacts facts,
                         card_facts(settings, *target, *method, *data, command));
  fmt::print(stderr, "{}: {} parameters; {} samples to train on, {} held out\n", facts.method,
             facts.parameters, facts.training_samples, facts.validation_samples);

  TrainCalls calls;
  calls.cancel = &interrupted;
  calls.progress = [last = Clock::time_point()](const std::string& line) mutable {
    if (Clock::now() - last < kPause) return;
    last = Clock::now();
    fmt::print(stderr, "{}\n", line);
  };
  calls.say = [](const std::string& line) { fmt::print(stderr, "{}\n", line); };
  calls.describe = [&facts](const std::string& folder, const RunState& state,
                            const Evaluation& evaluation) {
    return write_text(folder + "/README.md", model_card(facts, state, evaluation));
  };
  const AcceptanceOptions acceptance = acceptance_options(settings, *data);
  const std::string speculate =
      settings.eval_speculate.empty() ? facts.speculate : settings.eval_speculate;
  if (!acceptance.prompts.empty()) {
    calls.acceptance = [&](const std::string& folder) -> Expected<Acceptance> {
      AERIE_ASSIGN_OR_RETURN(const SpeculativeConfig config, draft_config(speculate, folder));
      AcceptanceOptions options = acceptance;
      if (!facts.own_model.empty()) options.engine.model = in_folder(facts.own_model, folder);
      return measure_acceptance(options, config);
    };
  }
  catch_interrupts();
  AERIE_ASSIGN_OR_RETURN(const TrainResult result,
                         train(*method, data->set(), settings.train, *group, calls));
  return report(settings, result);
}

}  // namespace

std::function<Expected<int>(const std::string& command)> add_train_commands(CLI::App& app) {
  struct Command {
    CLI::App* app;
    std::function<Expected<TrainSettings>()> settings;
    MakeMethod make;
  };
  std::vector<Command> commands;
  for (const MethodEntry& entry : method_entries()) {
    CLI::App* own = app.add_subcommand(entry.name, entry.help);
    TrainSettings defaults;
    entry.set_defaults(defaults.train);
    auto settings = add_train_flags(*own, defaults);
    commands.push_back({own, std::move(settings), entry.add_flags(*own)});
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
