#include "train/run/training_run.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/processor.h"
#include "base/thread_pool.h"
#include "format/json.h"
#include "format/output_file.h"
#include "report/text_file.h"
#include "train/nn/autocast.h"
#include "train/nn/rounded_values.h"
#include "train/run/model_card.h"
#include "train/run/run_log.h"

namespace aerie::train {
namespace {

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
  if (const auto& type = settings.train.draft_type) {
    facts.speculate += fmt::format(",draft_type={}", dtype_info(*type).name);
  }
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
    AERIE_ASSIGN_OR_RETURN(facts.data_notes, read_text_file(settings.data_notes, "--data-notes"));
  }
  return facts;
}

AcceptanceOptions acceptance_options(const TrainSettings& settings, const TrainingData& data,
                                     const std::atomic<bool>* cancel) {
  AcceptanceOptions options;
  options.engine.model = settings.model;
  options.engine.threads = settings.threads;
  options.prompts = data.held_out_prompts(settings.eval_prompts);
  options.max_tokens = settings.eval_tokens;
  options.temperature = settings.eval_temperature;
  options.seed = settings.train.seed;
  options.cancel = cancel;
  return options;
}

// The type that it drafts in is the one that it goes on to be trained for, if there is rounding to
// it.
Status take_draft_type(TrainSettings& settings) {
  const Expected<Json> config = read_json(settings.continued + "/config.json");
  if (config.status().code() == StatusCode::kNotFound) return {};
  AERIE_RETURN_IF_ERROR(config.status());
  const auto name = config->is_object() ? config->find("draft_type") : config->end();
  if (name == config->end() || !name->is_string()) return {};
  const auto type = parse_rounding(name->get<std::string>());
  if (!type.ok()) return {};
  settings.train.draft_type = *type;
  settings.train.config.fixed.emplace_back("the type of drafts", name->get<std::string>());
  return {};
}

// Of a head that is good already: it is to learn what is new, and forget little.
void settle_continued(TrainSettings& settings, int hidden) {
  constexpr double kShareOfRate = 0.5;
  constexpr double kOldest = 0.25;
  TrainOptions& train = settings.train;
  train.init = settings.continued;
  train.evaluates_first = true;
  train.plan.oldest = kOldest;
  if (settings.rate_is_given) return;
  train.schedule.rate = kShareOfRate * usual_rate(hidden);
  train.config.fixed.emplace_back("the learning rate", fmt::format("{}", train.schedule.rate));
}

Status write_report(const CardFacts& facts, const std::string& folder, const TrainResult& result) {
  AERIE_ASSIGN_OR_RETURN(const RunLog log, RunLog::open(folder + "/log.jsonl", result.state.step));
  return write_file(folder + "/report.json", run_report(facts, folder, result, log.lines()));
}

void settle_precision(TrainOptions& options, const TrainCalls& calls) {
  if (!options.autocast || adds_bfloats_exactly(options.device)) return;
  options.autocast = false;
  if (!calls.say) return;
  calls.say(
      "--precision bf16: products are of floats, for LibTorch adds those of BF16 in BF16 on this "
      "processor (it would need AVX-512)");
}

}  // namespace

Expected<TrainingRun> run_training(const MakeMethod& make, TrainSettings settings,
                                   const std::string& command, TrainCalls calls) {
  if (settings.threads > 0) at::set_num_threads(settings.threads);
  if (!settings.continued.empty() && !settings.train.draft_type) {
    AERIE_RETURN_IF_ERROR(take_draft_type(settings));
  }
  settle_precision(settings.train, calls);
  AERIE_ASSIGN_OR_RETURN(const auto data, TrainingData::open(settings.data));
  ThreadPool pool(1);
  AERIE_ASSIGN_OR_RETURN(const auto target, Target::open(settings.model, pool));
  target->to(settings.train.device);
  at::Generator generator = at::detail::createCPUGenerator(settings.train.seed);
  const std::vector<int64_t> counts = data->token_counts(target->config().vocab);
  AERIE_ASSIGN_OR_RETURN(const auto method, make({*target, generator, counts, settings.continued}));
  if (settings.train.draft_type && !method->settings().model.empty()) {
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("--draft-type: {} makes another target, whose matrices stay as they are",
                    settings.train.config.method));
  }
  AERIE_RETURN_IF_ERROR(data->open_features(method->needs(), target->config().layers));
  AERIE_ASSIGN_OR_RETURN(const auto group, join_group(settings.group));

  if (!settings.continued.empty()) settle_continued(settings, target->config().hidden);
  OptionTexts& fixed = settings.train.config.fixed;
  fixed.emplace_back("the model's fingerprint", data->datasets().front().info.fingerprint);
  fixed.emplace_back("the data's fingerprint", data->fingerprint());
  AERIE_ASSIGN_OR_RETURN(const CardFacts facts,
                         card_facts(settings, *target, *method, *data, command));
  if (calls.say) {
    calls.say(fmt::format("{}: {} parameters; {} samples to train on, {} held out", facts.method,
                          facts.parameters, facts.training_samples, facts.validation_samples));
  }
  calls.describe = [&facts](const std::string& folder, const RunState& state,
                            const Evaluation& evaluation) {
    return write_file(folder + "/README.md", model_card(facts, state, evaluation));
  };
  const AcceptanceOptions acceptance = acceptance_options(settings, *data, calls.cancel);
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
  AERIE_ASSIGN_OR_RETURN(TrainResult result,
                         train(*method, data->set(), settings.train, *group, calls));
  if (group->rank() == 0) {
    AERIE_RETURN_IF_ERROR(write_report(facts, settings.train.folder, result));
  }
  return TrainingRun{std::move(result), facts.parameters, facts.training_samples,
                     facts.validation_samples};
}

}  // namespace aerie::train
