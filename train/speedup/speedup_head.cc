#include "train/speedup/speedup_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "base/system/topology.h"
#include "base/thread_pool.h"

namespace aerie::train {
namespace {

// EAGLE-3's authors draft 32000 of 128256 tokens. A small vocabulary costs little as it is; of a
// larger one a processor does not answer so much text that more tokens would be learned.
constexpr int64_t kVocabShare = 4;
constexpr int64_t kSmallVocab = 8192, kLargeVocab = 16384;
constexpr int64_t kVocabStep = 64;

constexpr double kSecondsOfFewEvaluations = 600.0;
constexpr int kEvaluations = 4;
constexpr int kTrackingTokens = 64;  // of a reply while it trains

constexpr const char* kAuto = "auto";

std::vector<const TrainingMethod*> known_methods() {
  std::vector<const TrainingMethod*> known;
  std::ranges::copy_if(
      training_methods(), std::back_inserter(known),
      [](const TrainingMethod* method) { return !method->speedup_depths.empty(); });
  return known;
}

}  // namespace

Expected<const TrainingMethod*> parse_speedup_method(const std::string& name) {
  if (name == kAuto) return static_cast<const TrainingMethod*>(nullptr);
  for (const TrainingMethod* method : known_methods()) {
    if (method->name == name) return method;
  }
  return Status(StatusCode::kInvalidArgument,
                fmt::format("--method {}: {} are known", name, speedup_methods("and")));
}

std::string speedup_methods(const std::string& last) {
  const std::vector<const TrainingMethod*> known = known_methods();
  std::string text = kAuto;
  for (const TrainingMethod* method : known) {
    text += fmt::format("{}{}", method == known.back() ? " " + last + " " : ", ", method->name);
  }
  return text;
}

SpeedupHead speedup_head(const SpeedupOptions& options, int vocab) {
  SpeedupHead head;
  head.method = options.method == nullptr ? known_methods().front() : options.method;
  const int64_t quarter = vocab / kVocabShare / kVocabStep * kVocabStep;
  head.draft_vocab = options.draft_vocab != SpeedupOptions::kAutoVocab ? options.draft_vocab
                     : vocab <= kSmallVocab                            ? 0
                                            : std::clamp(quarter, kSmallVocab, kLargeVocab);
  head.intermediate = options.intermediate;
  return head;
}

MakeMethod make_speedup_head(const SpeedupHead& head) {
  SettingList settings;
  MakeMethod make = declare(*head.method, settings);
  if (settings.draft_vocab()->ids != nullptr) settings.draft_vocab()->size = head.draft_vocab;
  for (const SettingValue& value : head.method->speedup_settings) settings.set(value);
  if (head.intermediate > 0) settings.set({"intermediate", static_cast<double>(head.intermediate)});
  return make;
}

int feature_threads(const SpeedupOptions& options) {
  return std::max(1, (options.threads > 0 ? options.threads : default_threads()) / 2);
}

TrainSettings speedup_training(const SpeedupOptions& options, const SpeedupHead& head,
                               const SpeedupPlan& plan, const SpeedupSpeeds& speeds, int hidden,
                               double seconds) {
  TrainSettings settings;
  settings.model = options.model;
  settings.threads = options.threads;
  settings.data.folders = {options.out + "/data"};
  settings.data.model = options.model;
  settings.data.feature_threads = feature_threads(options);
  settings.group.cuda = options.device.is_cuda();
  TrainOptions& train = settings.train;
  train.folder = options.out + "/run";
  train.device = options.device;
  train.budget.seconds = seconds;
  train.schedule = {.rate = usual_rate(hidden), .warmup = 0.03, .floor = 0.0};
  train.adamw = head.method->adamw;
  train.clip_norm = head.method->clip_norm;
  train.clip_value = head.method->clip_value;
  train.plan.batch_tokens = plan.batch_tokens;
  train.plan.max_length = settings.data.max_length;
  train.checkpoint.seconds = std::clamp(seconds / 10.0, 10.0, 600.0);
  if (seconds > kSecondsOfFewEvaluations) train.evaluation.seconds = seconds / kEvaluations;
  train.autocast = speeds.bf16;
  train.config.method = head.method->name;
  train.config.fixed = {{"draft vocabulary", fmt::format("{}", head.draft_vocab)},
                        {"tokens of a batch", fmt::format("{}", plan.batch_tokens)},
                        {"precision", speeds.bf16 ? "bf16" : "float"}};
  train.config.free = {{"seconds", fmt::format("{:.0f}", seconds)},
                       {"device", options.device.str()}};
  // A twentieth of the time, in all.
  const double prompts = 0.05 * seconds / kEvaluations * speeds.plain / kTrackingTokens;
  settings.eval_prompts = static_cast<int>(std::clamp(prompts, 2.0, 16.0));
  settings.eval_tokens = kTrackingTokens;
  return settings;
}

}  // namespace aerie::train
