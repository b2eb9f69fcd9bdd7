#include "train/command/train_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "train/command/torch_cuda.h"
#include "train/nn/rounded_values.h"

namespace aerie::train {
namespace {

// The parameters that come out do not depend on these, or (as the data) on what they name.
constexpr std::array<std::string_view, 15> kFree = {
    "--model",     "--data",       "--out",        "--features",   "--feature-threads",
    "--threads",   "--accumulate", "--world",      "--rank",       "--rendezvous",
    "--log-steps", "--save-every", "--save-steps", "--eval-every", "--data-notes"};

// What is parsed as text first.
struct TrainTexts {
  TrainSettings settings;
  std::string time, save_every = "10m", eval_every;
  std::string decay, precision = "float", draft_type, device = "cpu", features = "auto";
};

void add_data_options(CLI::App& app, TrainTexts& texts) {
  DataOptions& o = texts.settings.data;
  app.add_option("-m,--model", texts.settings.model,
                 "The target: a GGUF file or a Hugging Face folder")
      ->required();
  app.add_option("--data", o.folders, "Folders of `aerie train data`")->required();
  app.add_option("--held-out", o.held_out,
                 "The fraction of prompts that validates (default: what the data says)")
      ->check(CLI::Range(0.0, 0.9));
  app.add_option("--max-length", o.max_length, "Tokens of a sample; the rest is cut")
      ->capture_default_str()
      ->check(CLI::Range(8, 1 << 26));
  app.add_option("--features", texts.features,
                 "What the target's layers hold: stored with the data, computed, or auto")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "stored", "computed"}));
  app.add_option("--feature-threads", o.feature_threads, "Threads that compute them")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  app.add_option("--data-notes", texts.settings.data_notes,
                 "A text on origin and licences of the data, for the model card")
      ->check(CLI::ExistingFile);
}

void add_budget_options(CLI::App& app, TrainTexts& texts) {
  TrainOptions& o = texts.settings.train;
  app.add_option("--out", o.folder, "The run's folder; the same command goes on with a run there")
      ->required();
  CLI::Option* init = app.add_option(
      "--init", o.init, "A run's folder, or a checkpoint's: begin with its parameters");
  app.add_option("--continue", texts.settings.continued,
                 "A head, such as the one in use: train it further, for 3 minutes unless it is "
                 "said, at half the usual rate, with newer samples counting for more")
      ->check(CLI::ExistingDirectory)
      ->excludes(init);
  app.add_option("--steps", o.budget.steps, "Train for so many steps");
  app.add_option("--epochs", o.budget.epochs, "Train for so many passes over the data");
  app.add_option("--time", texts.time, "Train for so long, evaluations included: 90s, 30m, 2h");
  app.add_option("--seed", o.seed, "Of the first parameters and of the data's order")
      ->capture_default_str();
  app.add_option("--batch-tokens", o.plan.batch_tokens, "Tokens of a batch")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 26));
  app.add_option("--accumulate", o.accumulate, "Batches of a step, in each process")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
}

void add_optimizer_options(CLI::App& app, TrainTexts& texts) {
  TrainOptions& o = texts.settings.train;
  texts.decay = decay_name(o.schedule.decay);
  app.add_option("--learning-rate", o.schedule.rate, "The highest")->capture_default_str();
  app.add_option("--warmup", o.schedule.warmup, "Share of the training in which it rises")
      ->capture_default_str();
  app.add_option("--decay", texts.decay, "How it falls: cosine, linear, constant")
      ->capture_default_str();
  app.add_option("--floor", o.schedule.floor, "What it falls to, as a share of the highest")
      ->capture_default_str();
  app.add_option("--beta1", o.adamw.beta1, "AdamW")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 0.9999999));
  app.add_option("--beta2", o.adamw.beta2, "AdamW")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 0.9999999));
  app.add_option("--epsilon", o.adamw.eps, "AdamW")->capture_default_str();
  app.add_option("--weight-decay", o.adamw.weight_decay, "AdamW, of matrices")
      ->capture_default_str();
  app.add_option("--clip-norm", o.clip_norm, "Longest gradient; 0: any")->capture_default_str();
  app.add_option("--clip-value", o.clip_value, "Largest element of a gradient; 0: any")
      ->capture_default_str();
  app.add_option("--precision", texts.precision, "Of products: float or bf16")
      ->capture_default_str()
      ->check(CLI::IsMember({"float", "bf16"}));
  app.add_option(
      "--draft-type", texts.draft_type,
      "Train for drafting in this type, q4_0 or q8_0: matrices are rounded in every pass");
  app.add_option("--device", texts.device, "cpu, cuda or cuda:N")->capture_default_str();
  app.add_option("--threads", texts.settings.threads, "Threads (default: all cores)")
      ->check(CLI::Range(1, 1024));
}

void add_run_options(CLI::App& app, TrainTexts& texts) {
  TrainSettings& s = texts.settings;
  TrainOptions& o = s.train;
  app.add_option("--log-steps", o.log_steps, "Steps of a line in the log")->capture_default_str();
  app.add_option("--save-every", texts.save_every, "Time between checkpoints")
      ->capture_default_str();
  app.add_option("--save-steps", o.checkpoint.steps, "Steps between checkpoints, too");
  app.add_option("--eval-every", texts.eval_every, "Time between evaluations");
  app.add_option("--eval-steps", o.evaluation.steps, "Steps between evaluations, too");
  app.add_option("--patience", o.patience, "Stop after so many evaluations without gain; 0: do not")
      ->capture_default_str();
  app.add_option("--validation-tokens", o.validation_tokens,
                 "The held-out loss is of about so many")
      ->capture_default_str();
  app.add_option("--eval-prompts", s.eval_prompts,
                 "Held-out prompts that acceptance is measured with; 0: it is not measured")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 20));
  app.add_option("--eval-tokens", s.eval_tokens, "Tokens of a reply then")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--eval-temperature", s.eval_temperature, "Temperature then")
      ->capture_default_str();
  app.add_option("--eval-speculate", s.eval_speculate,
                 "How the drafter is run then, as after --speculate; {} is its folder");
  app.add_option("--world", s.group.world, "Processes that train together")->capture_default_str();
  app.add_option("--rank", s.group.rank, "Which of them this is, from 0")->capture_default_str();
  app.add_option("--rendezvous", s.group.rendezvous,
                 "Where they meet: file:///PATH or tcp://HOST:PORT");
}

// All of the app's options, as they were given or by default.
void describe(const CLI::App& app, RunConfig& config) {
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    if (name == "--help") continue;
    const std::string value = option->count() > 0
                                  ? fmt::format("{}", fmt::join(option->results(), ","))
                                  : option->get_default_str();
    const bool is_free = std::find(kFree.begin(), kFree.end(), name) != kFree.end();
    (is_free ? config.free : config.fixed).emplace_back(name, value);
  }
}

Status settle(const CLI::App& app, TrainTexts& texts) {
  TrainSettings& s = texts.settings;
  s.rate_is_given = app.get_option("--learning-rate")->count() > 0;
  const Budget& budget = s.train.budget;
  if (!s.continued.empty() && texts.time.empty() && budget.steps == 0 && budget.epochs == 0) {
    texts.time = "3m";
  }
  if (!texts.time.empty()) {
    AERIE_ASSIGN_OR_RETURN(s.train.budget.seconds, parse_duration("--time", texts.time));
  }
  AERIE_ASSIGN_OR_RETURN(s.train.checkpoint.seconds,
                         parse_duration("--save-every", texts.save_every));
  if (!texts.eval_every.empty()) {
    AERIE_ASSIGN_OR_RETURN(s.train.evaluation.seconds,
                           parse_duration("--eval-every", texts.eval_every));
  }
  AERIE_ASSIGN_OR_RETURN(s.train.schedule.decay, parse_decay(texts.decay));
  AERIE_ASSIGN_OR_RETURN(s.train.device, parse_device(texts.device));
  s.group.cuda = s.train.device.is_cuda();
  s.train.autocast = texts.precision == "bf16";
  if (!texts.draft_type.empty()) {
    AERIE_ASSIGN_OR_RETURN(s.train.draft_type, parse_rounding(texts.draft_type));
  }
  s.data.features = texts.features == "stored"     ? DataOptions::Features::kStored
                    : texts.features == "computed" ? DataOptions::Features::kComputed
                                                   : DataOptions::Features::kAuto;
  s.data.model = s.model;
  s.train.plan.max_length = s.data.max_length;
  s.train.config.method = app.get_name();
  describe(app, s.train.config);
  s.train.config.fixed.emplace_back("batches of a step",
                                    fmt::format("{}", s.train.accumulate * s.group.world));
  return {};
}

}  // namespace

Expected<double> parse_duration(const std::string& flag, const std::string& text) {
  double number = 0.0;
  const auto [stopped, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(stopped, static_cast<size_t>(text.data() + text.size() - stopped));
  const double scale = unit == "h" ? 3600.0 : unit == "m" ? 60.0 : 1.0;
  const bool known = unit.empty() || unit == "s" || unit == "m" || unit == "h";
  if (code != std::errc() || !known || !(number > 0.0) || !std::isfinite(number)) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("{} {}: a time above 0 is wanted: 90s, 30m, 2h", flag, text));
  }
  return number * scale;
}

Expected<at::Device> parse_device(const std::string& text) {
  at::Device device = at::kCPU;
  try {
    device = at::Device(text);
  } catch (const c10::Error&) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("--device {}: cpu, cuda and cuda:N are known", text));
  }
  if (device.is_cpu()) return device;
  if (!device.is_cuda()) {
    return Status(StatusCode::kUnsupported,
                  fmt::format("--device {}: cpu, cuda and cuda:N are known", text));
  }
  const Status loaded = load_cuda();
  if (!loaded.ok()) return loaded.with_context("--device " + text);
  return device;
}

std::function<Expected<TrainSettings>()> add_train_flags(CLI::App& app,
                                                         const TrainSettings& settings) {
  auto texts = std::make_shared<TrainTexts>();
  texts->settings = settings;
  add_data_options(app, *texts);
  add_budget_options(app, *texts);
  add_optimizer_options(app, *texts);
  add_run_options(app, *texts);
  return [texts, &app]() -> Expected<TrainSettings> {
    AERIE_RETURN_IF_ERROR(settle(app, *texts));
    return texts->settings;
  };
}

}  // namespace aerie::train
