#include "train/speedup/speedup.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "base/clock.h"
#include "draft/speculative_config.h"
#include "engine/model_source.h"
#include "format/output_file.h"
#include "format/safetensors/quantized_folder.h"
#include "measure/tune/tune.h"
#include "report/text_file.h"
#include "train/data/duration_text.h"
#include "train/data/features/feature_store.h"
#include "train/data/generate_data.h"
#include "train/data/info.h"
#include "train/run/evaluate.h"
#include "train/run/run_folder.h"
#include "train/run/time_limit.h"
#include "train/speedup/speedup_head.h"
#include "train/speedup/speedup_measure.h"
#include "train/speedup/speedup_plan.h"
#include "train/speedup/speedup_prompts.h"
#include "train/speedup/speedup_report.h"
#include "train/speedup/speedup_state.h"

namespace aerie::train {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// Of the budget, for each of the three measurements at the start.
constexpr double kMeasuringShare = 0.01;
constexpr double kMostMeasuring = 5.0;
// Once so little of the data's time is left, no more is asked for.
constexpr double kWorthMore = 0.15;
// Replies are of about the length that they had so far; some are longer.
constexpr double kSurely = 0.9;
// A time that was misjudged ends the stage only so much later: what is unfinished would be lost.
constexpr double kDataOverrun = 1.25;
constexpr int kLeastPrompts = 16;
// Of what is free on the disk, the most that features may take.
constexpr double kFeatureShare = 0.25;
constexpr int kPassRepeats = 3;
constexpr int kFewEvaluated = 8;

class Run {
 public:
  explicit Run(const SpeedupOptions& options) : options_(options) {}

  Status open();
  Expected<SpeedupEnd> go();

 private:
  std::string path(const char* name) const { return options_.out + "/" + name; }
  bool cancelled() const { return options_.cancel != nullptr && options_.cancel->load(); }
  void say(const std::string& text) const {
    if (options_.say) options_.say(text);
  }
  SpeedupEnd interrupted() const {
    say("interrupted; the same command goes on");
    return SpeedupEnd::kInterrupted;
  }
  Status save() const { return write_speedup_state(path("speedup.json"), state_); }

  Expected<OptionTexts> option_texts() const;
  Status open_model();
  Status keep_prompts(bool begun) const;
  Status begin();
  Status check_room();
  GenerateOptions data_options(const std::atomic<bool>* cancel) const;
  Status answer_some();
  Status complete_features();
  Status answer_prompts();
  Status train_head();
  Status write_head();
  Expected<measure::TuneOptions> tune_options();
  Status evaluate();

  SpeedupOptions options_;
  SpeedupHead head_;
  bool chat_template_ = false;
  int vocab_ = 0, hidden_ = 0, context_ = 0;
  std::vector<Prompt> prompts_;
  SpeedupPrompts prompt_facts_;
  SpeedupState state_;
  SpeedupPlan plan_;
  SpeedupFacts facts_;
};

Status check(const SpeedupOptions& options) {
  if (!(options.budget > 0.0) || !std::isfinite(options.budget)) {
    return {StatusCode::kInvalidArgument, "--budget: a time above 0 is wanted: 90s, 30m, 2h"};
  }
  if (options.prompts.empty()) {
    return {StatusCode::kInvalidArgument, "there are no prompts: give --prompts FILE..."};
  }
  if (options.draft_vocab < SpeedupOptions::kAutoVocab) {
    return {StatusCode::kInvalidArgument, "--draft-vocab: a number from 0 on is wanted"};
  }
  return {};
}

Status Run::open_model() {
  ThreadPool pool(1);
  AERIE_ASSIGN_OR_RETURN(const ModelSource source,
                         open_model_source(options_.model, std::nullopt, pool));
  AERIE_ASSIGN_OR_RETURN(const ModelConfig config, read_model_config(*source.file));
  chat_template_ = source.chat_template.ok();
  vocab_ = config.vocab;
  hidden_ = config.hidden;
  context_ = std::min(config.context, EngineOptions::kDefaultContext);
  head_ = speedup_head(options_, vocab_);
  return {};
}

Expected<OptionTexts> Run::option_texts() const {
  AERIE_ASSIGN_OR_RETURN(const std::string fingerprint, model_fingerprint(options_.model));
  OptionTexts texts{{"model", fingerprint},
                    {"budget", fmt::format("{:.0f} s", std::ceil(options_.budget))},
                    {"method", std::string(head_.method->name)},
                    {"draft vocabulary", fmt::format("{}", head_.draft_vocab)},
                    {"device", options_.device.str()}};
  if (head_.intermediate > 0) {
    texts.emplace_back("feed-forward", fmt::format("{}", head_.intermediate));
  }
  return texts;
}

// Numbers of prompts, of which the samples are, are places in this file.
Status Run::keep_prompts(bool begun) const {
  const std::string text = to_lines(prompts_);
  const std::string file = path("prompts.jsonl");
  if (!begun) return write_file(file, text);
  AERIE_ASSIGN_OR_RETURN(const std::string there, read_text_file(file, "--out"));
  if (there == text) return {};
  return {StatusCode::kInvalidArgument,
          fmt::format("--out {}: it was begun with other prompts; give those, or another folder",
                      options_.out)};
}

Status Run::open() {
  AERIE_RETURN_IF_ERROR(check(options_));
  AERIE_RETURN_IF_ERROR(open_model());
  AERIE_ASSIGN_OR_RETURN(prompts_, mixed_prompts(options_.prompts, options_.plain));
  prompt_facts_ = {static_cast<int>(prompts_.size()), mean_turns(prompts_, chat_template_)};
  if (prompt_facts_.count < kLeastPrompts) {
    return {StatusCode::kInvalidArgument,
            fmt::format("--prompts: {} prompts are too few to learn from and to measure with; give "
                        "{}, better thousands",
                        prompt_facts_.count, kLeastPrompts)};
  }
  std::error_code error;
  fs::create_directories(options_.out, error);
  if (error) {
    return {StatusCode::kInvalidArgument,
            fmt::format("--out {}: the folder cannot be made: {}", options_.out, error.message())};
  }
  AERIE_ASSIGN_OR_RETURN(const OptionTexts texts, option_texts());
  AERIE_ASSIGN_OR_RETURN(auto state, read_speedup_state(path("speedup.json")));
  const bool begun = state.has_value();
  if (begun) {
    if (const std::string what = difference(state->options, texts); !what.empty()) {
      return {StatusCode::kInvalidArgument,
              fmt::format("--out {}: it was begun otherwise: {}; give the same, or another folder",
                          options_.out, what)};
    }
    state_ = std::move(*state);
  } else {
    state_.options = texts;
  }
  return keep_prompts(begun);
}

Status Run::check_room() {
  std::error_code error;
  const fs::space_info space = fs::space(options_.out, error);
  if (error) return {};  // a full disk is an error later, too
  const auto free = static_cast<double>(space.available);
  const auto needed = static_cast<double>(speedup_disk_bytes(plan_, state_.speeds));
  const auto features = static_cast<double>(speedup_feature_bytes(plan_, state_.speeds));
  // Once answering has begun it stays as it is.
  if (state_.data_seconds == 0.0) {
    state_.stores_features = !state_.speeds.layers.empty() && features < kFeatureShare * free;
  }
  if (free >= needed) return {};
  constexpr double kMiB = 1 << 20;
  return {StatusCode::kResourceExhausted,
          fmt::format("--out {}: up to {:.0f} MiB are needed and {:.0f} are free", options_.out,
                      needed / kMiB, free / kMiB)};
}

// Measures, unless that was done before, and plans.
Status Run::begin() {
  const bool anew = state_.speeds.plain == 0.0;
  if (anew) {
    say("Measuring how fast the model decodes, answers and trains");
    const double seconds = std::min(kMeasuringShare * options_.budget, kMostMeasuring);
    AERIE_ASSIGN_OR_RETURN(state_.speeds,
                           measure_speeds(options_, head_, prompts_, chat_template_, seconds));
  }
  AERIE_ASSIGN_OR_RETURN(plan_, make_speedup_plan(options_.budget, state_.speeds, prompt_facts_));
  if (anew) state_.replies = plan_.replies;
  const std::vector<Prompt> held_out =
      held_out_prompts(prompts_, plan_.held_out, context_, kSpeedupEvaluationTokens);
  if (held_out.empty()) {
    return {StatusCode::kInvalidArgument,
            fmt::format("--prompts: of {} prompts none is left to evaluate with; give more, or "
                        "shorter ones: the model's context is {}",
                        prompts_.size(), context_)};
  }
  AERIE_RETURN_IF_ERROR(write_file(path("held-out.jsonl"), to_lines(held_out)));
  if (!state_.trained) AERIE_RETURN_IF_ERROR(check_room());
  say(describe_plan(plan_, state_.speeds, prompt_facts_, options_.out, state_.stores_features));
  return save();
}

GenerateOptions Run::data_options(const std::atomic<bool>* cancel) const {
  GenerateOptions data;
  data.target.model = options_.model;
  data.target.threads = options_.threads;
  data.target.sequences = std::min(state_.speeds.replies_at_a_time, state_.replies);
  data.prompts = data.plain = {path("prompts.jsonl")};
  data.use_template = chat_template_;
  if (state_.replies < prompt_facts_.count) data.selection.limit = state_.replies;
  data.samples = (state_.replies + prompt_facts_.count - 1) / prompt_facts_.count;
  data.out = path("data");
  data.settings.max_tokens = kSpeedupReplyTokens;
  data.settings.temperatures = {0.0, 1.0};
  data.held_out = plan_.held_out;
  if (state_.stores_features) data.features = state_.speeds.layers;
  data.cancel = cancel;
  return data;
}

// Answers what is asked for so far, and asks for more if there is time.
Status Run::answer_some() {
  const auto start = Clock::now();
  const double left = plan_.data_seconds - state_.data_seconds;
  // Going on after the time is over, as after a pause, leaves what is there.
  const TimeLimit limit(std::max(0.0, left) * kDataOverrun, options_.cancel);
  AERIE_ASSIGN_OR_RETURN(const GenerateResult result, generate_data(data_options(limit.flag())));
  state_.data_seconds += seconds_since(start);
  const double left_now = plan_.data_seconds - state_.data_seconds;
  state_.answered = result.missing > 0 || left_now < kWorthMore * plan_.data_seconds;
  if (cancelled()) {
    state_.answered = false;
    return save();
  }
  if (!state_.answered && result.counts.samples > 0) {
    const double seconds_of_reply = result.seconds / result.counts.samples;
    const double more = std::min(kSurely * left_now / seconds_of_reply, 1e6);
    if (more < 1.0) state_.answered = true;
    state_.replies += static_cast<int>(more);
  } else {
    // All that was asked for was there already: of an interrupted run, or too long, all of it.
    state_.answered = true;
  }
  return save();
}

// Of samples that were finished just before a kill.
Status Run::complete_features() {
  StoreOptions store;
  store.folder = path("data");
  store.model = options_.model;
  store.tap_layers = state_.speeds.layers;
  store.threads = options_.threads;
  store.cancel = options_.cancel;
  return store_features(store).status();
}

Status Run::answer_prompts() {
  while (!state_.answered && !cancelled()) AERIE_RETURN_IF_ERROR(answer_some());
  if (cancelled()) return {};
  if (state_.stores_features && !state_.trained) AERIE_RETURN_IF_ERROR(complete_features());
  if (cancelled()) return {};
  AERIE_ASSIGN_OR_RETURN(const Dataset dataset, read_dataset(path("data")));
  facts_.samples = static_cast<int64_t>(dataset.samples.size());
  facts_.tokens = dataset.tokens;
  facts_.generated = dataset.generated;
  say(fmt::format("1. Data: {} samples, {} tokens, {} of them generated ({})", facts_.samples,
                  facts_.tokens, facts_.generated, duration_text(state_.data_seconds)));
  if (state_.training_seconds > 0.0) return {};
  // What the data left over, or took.
  const double spent = state_.speeds.seconds + state_.data_seconds;
  state_.training_seconds =
      std::max(options_.budget - spent - plan_.evaluation_seconds, 0.5 * plan_.training_seconds);
  return save();
}

Status Run::train_head() {
  const TrainSettings settings =
      speedup_training(options_, head_, plan_, state_.speeds, hidden_, state_.training_seconds);
  TrainCalls calls;
  calls.cancel = options_.cancel;
  calls.say = options_.say;
  AERIE_ASSIGN_OR_RETURN(const TrainingRun run,
                         run_training(make_speedup_head(head_), settings, options_.command, calls));
  facts_.training = run.result.state;
  if (run.result.end == TrainEnd::kInterrupted) return {};
  facts_.data_seconds = state_.data_seconds;
  // Nothing to tell of a training that was finished before.
  const std::string rate =
      run.result.rows == 0
          ? ""
          : fmt::format("\n   {:.0f} tokens/s with the time of answering; alone {}",
                        tokens_per_second(facts_),
                        rate_text(static_cast<double>(run.result.rows), run.result.seconds,
                                  run.result.steps));
  say(fmt::format("2. Training: {} steps, {} tokens ({}); best after step {}{}",
                  facts_.training.step, facts_.training.rows,
                  duration_text(facts_.training.seconds), facts_.training.best_step, rate));
  AERIE_RETURN_IF_ERROR(write_head());
  state_.trained = true;
  AERIE_RETURN_IF_ERROR(save());
  return remove_features(path("data"));
}

Status Run::write_head() {
  const std::string best = path("run/best");
  return replace_folder(path("head"), [&](const std::string& folder) -> Status {
    if (options_.type) return write_quantized_folder(best, folder, *options_.type).status();
    std::error_code error;
    fs::copy(best, folder, fs::copy_options::recursive, error);
    if (!error) return {};
    return {StatusCode::kInternal,
            fmt::format("{}: it cannot be copied to {}: {}", best, folder, error.message())};
  });
}

Expected<measure::TuneOptions> Run::tune_options() {
  facts_.head = path("head");
  const double spent = state_.speeds.seconds + state_.data_seconds + facts_.training.seconds;
  const double left = std::max(options_.budget - spent, 0.5 * plan_.evaluation_seconds);
  const int prompts = std::max(evaluated_prompts(left, state_.speeds), 1);
  measure::TuneOptions tune;
  const TrainingMethod& method = *head_.method;
  tune.depths.assign(method.speedup_depths.begin(), method.speedup_depths.end());
  measure::SpecOptions& spec = tune.spec;
  spec.engine.model = options_.model;
  spec.engine.threads = options_.threads;
  spec.datasets = {path("held-out.jsonl")};
  // Both temperatures share the time.
  if (prompts >= 2 * kFewEvaluated) spec.temperatures = {0.0, 1.0};
  spec.selection.limit = prompts / static_cast<int>(spec.temperatures.size());
  spec.max_tokens = kSpeedupEvaluationTokens;
  spec.repeats = 1;
  spec.pass_repeats = kPassRepeats;
  spec.pass_context = std::min(spec.pass_context, context_ / 2);
  spec.cancel = options_.cancel;
  const std::string drafter = fmt::format("{}:model={{}}", method.drafter);
  AERIE_ASSIGN_OR_RETURN(const auto alone, draft_config(drafter, facts_.head));
  AERIE_ASSIGN_OR_RETURN(const auto with, draft_config("auto," + drafter, facts_.head));
  facts_.with_head = to_string(with);
  spec.methods = {with, auto_speculation(), alone};
  return tune;
}

Status Run::evaluate() {
  AERIE_ASSIGN_OR_RETURN(const measure::TuneOptions tune, tune_options());
  AERIE_ASSIGN_OR_RETURN(const measure::TuneReport report, measure::tune(tune));
  if (report.spec.interrupted) return {};
  facts_.method = head_.method->name;
  facts_.model = options_.model;
  facts_.chat_template = chat_template_;
  facts_.profile = path("profile.json");
  facts_.speeds = state_.speeds;
  AERIE_RETURN_IF_ERROR(write_file(facts_.profile, to_json(report.profile)));
  AERIE_RETURN_IF_ERROR(write_file(path("report.json"), speedup_json(facts_, report)));
  say(fmt::format("3. Evaluation: {}\n{}\n{}", path("report.json"), speedup_table(report.spec),
                  speedup_verdict(facts_, report)));
  state_.done = true;
  return save();
}

Expected<SpeedupEnd> Run::go() {
  if (state_.done) {
    say(fmt::format("{}: everything is there; {} holds the figures and the commands to use it",
                    options_.out, path("report.json")));
    return SpeedupEnd::kDone;
  }
  const Status begun = begin();
  if (begun.code() == StatusCode::kCancelled) return interrupted();
  AERIE_RETURN_IF_ERROR(begun);
  AERIE_RETURN_IF_ERROR(answer_prompts());
  if (cancelled()) return interrupted();
  AERIE_RETURN_IF_ERROR(train_head());
  if (cancelled()) return interrupted();
  AERIE_RETURN_IF_ERROR(evaluate());
  return state_.done ? SpeedupEnd::kDone : interrupted();
}

}  // namespace

Expected<SpeedupEnd> speedup(const SpeedupOptions& options) {
  Run run(options);
  AERIE_RETURN_IF_ERROR(run.open());
  return run.go();
}

}  // namespace aerie::train
