#include "train/speedup/speedup_head.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/thread_pool.h"
#include "train/batches/training_vocabulary.h"
#include "train/methods/eagle/eagle3_method.h"
#include "train/methods/peagle/peagle_method.h"

namespace aerie::train {
namespace {

// EAGLE-3's authors draft 32000 of 128256 tokens. A small vocabulary costs little as it is.
constexpr int64_t kVocabShare = 4;
constexpr int64_t kSmallVocab = 8192;
constexpr int64_t kVocabStep = 64;

// Both papers' rate is 1e-4, for models about this wide; narrower ones bear more.
constexpr double kRate = 1e-4;
constexpr double kWidth = 4096.0;

constexpr double kSecondsOfFewEvaluations = 600.0;
constexpr int kEvaluations = 4;
constexpr int kTrackingTokens = 64;  // of a reply while it trains

}  // namespace

Expected<SpeedupMethod> parse_speedup_method(const std::string& name) {
  if (name == "auto") return SpeedupMethod::kAuto;
  if (name == "eagle3") return SpeedupMethod::kEagle3;
  if (name == "p-eagle") return SpeedupMethod::kPEagle;
  return Status(StatusCode::kInvalidArgument,
                fmt::format("--method {}: auto, eagle3 and p-eagle are known", name));
}

const char* method_name(SpeedupMethod method) {
  return method == SpeedupMethod::kPEagle ? "p-eagle" : "eagle3";
}

SpeedupHead speedup_head(const SpeedupOptions& options, int vocab) {
  SpeedupHead head;
  // One layer instead of four: the same time trains it on more text, of which there is little.
  head.method = options.method == SpeedupMethod::kAuto ? SpeedupMethod::kEagle3 : options.method;
  const int64_t quarter = vocab / kVocabShare / kVocabStep * kVocabStep;
  head.draft_vocab = options.draft_vocab != SpeedupOptions::kAutoVocab ? options.draft_vocab
                     : vocab <= kSmallVocab                            ? 0
                                            : std::max(quarter, kSmallVocab);
  return head;
}

MakeMethod make_speedup_head(const SpeedupHead& head) {
  return [head](const MethodInputs& inputs) -> Expected<std::unique_ptr<Method>> {
    std::vector<int32_t> vocabulary;
    if (head.draft_vocab > 0) vocabulary = most_frequent(inputs.token_counts, head.draft_vocab);
    if (head.method == SpeedupMethod::kPEagle) {
      PEagleOptions options;
      options.head.vocabulary = std::move(vocabulary);
      return make_peagle(inputs.target, options, inputs.generator);
    }
    Eagle3Options options;
    options.head.vocabulary = std::move(vocabulary);
    return make_eagle3(inputs.target, options, inputs.generator);
  };
}

int feature_threads(const SpeedupOptions& options) {
  return std::max(1, (options.threads > 0 ? options.threads : available_cpus()) / 2);
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
  train.schedule = {.rate = kRate * std::max(1.0, kWidth / hidden), .warmup = 0.03, .floor = 0.0};
  train.clip_norm = head.method == SpeedupMethod::kPEagle ? 1.0 : 0.5;
  train.plan.batch_tokens = plan.batch_tokens;
  train.plan.max_length = settings.data.max_length;
  train.checkpoint.seconds = std::clamp(seconds / 10.0, 10.0, 600.0);
  if (seconds > kSecondsOfFewEvaluations) train.evaluation.seconds = seconds / kEvaluations;
  train.config.method = method_name(head.method);
  train.config.fixed = {{"draft vocabulary", fmt::format("{}", head.draft_vocab)},
                        {"tokens of a batch", fmt::format("{}", plan.batch_tokens)}};
  train.config.free = {{"seconds", fmt::format("{:.0f}", seconds)},
                       {"device", options.device.str()}};
  // A twentieth of the time, in all.
  const double prompts = 0.05 * seconds / kEvaluations * speeds.plain / kTrackingTokens;
  settings.eval_prompts = static_cast<int>(std::clamp(prompts, 2.0, 16.0));
  settings.eval_tokens = kTrackingTokens;
  return settings;
}

std::vector<int> speedup_depths(SpeedupMethod method) {
  if (method == SpeedupMethod::kPEagle) return {2, 4, 8};
  return {1, 3, 5};
}

}  // namespace aerie::train
