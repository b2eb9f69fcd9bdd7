#include "train/speedup/speedup_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "train/data/duration_text.h"

namespace aerie::train {
namespace {

// Of the budget; the rest is for evaluation and tuning.
constexpr double kDataShare = 0.35, kTrainingShare = 0.5;
constexpr double kEvaluationShare = 1.0 - kDataShare - kTrainingShare;

// Below these nothing is learned, or nothing can be told from what is measured.
constexpr int kLeastReplies = 16;
constexpr int kLeastSteps = 20;
constexpr int kLeastEvaluated = 3;
constexpr int kMostEvaluated = 80;
// With fewer steps the learning rate has no time to rise and fall.
constexpr int kWantedSteps = 500;
constexpr int64_t kLeastBatch = 256, kMostBatch = 2048;

// Replies to a prompt in evaluation: plain decoding and each candidate, none slower than that by
// much. Half of the time is for the costs of passes, for loading and for prompts.
constexpr int kCandidates = 6;
constexpr double kDecodingShare = 0.5;

// Parameters, gradients and both moments are 16 bytes; a checkpoint has all but the gradients, and
// there are two of them while a third is written. best, final, eval and the head itself are 4 each.
constexpr int64_t kBytesPerParameter = 3 * 12 + 4 * 4;
// A sample's line.
constexpr int64_t kBytesPerToken = 8;
// With the prompt's, at most, about.
constexpr int64_t kTokensOfReplyToken = 2;

double gibibytes(int64_t bytes) {
  return static_cast<double>(bytes) / (1 << 30);
}

double turn_tokens(const SpeedupPrompts& prompts) {
  return kSpeedupReplyTokens * std::max(1.0, prompts.turns);
}

double seconds_of_evaluated(double count, const SpeedupSpeeds& speeds) {
  return count * kCandidates * kSpeedupEvaluationTokens / speeds.plain / kDecodingShare;
}

double least_budget(const SpeedupSpeeds& speeds, const SpeedupPrompts& prompts) {
  const double data = kLeastReplies * turn_tokens(prompts) / speeds.answering;
  const double training = static_cast<double>(kLeastSteps * kLeastBatch) / speeds.training;
  const double evaluation = seconds_of_evaluated(kLeastEvaluated, speeds);
  return speeds.seconds +
         std::max({data / kDataShare, training / kTrainingShare, evaluation / kEvaluationShare});
}

// As --budget takes it, rounded up.
std::string budget_text(double seconds) {
  if (seconds > 120.0) return fmt::format("{:.0f}m", std::ceil(seconds / 60.0));
  return fmt::format("{:.0f}s", std::ceil(seconds));
}

}  // namespace

int evaluated_prompts(double seconds, const SpeedupSpeeds& speeds) {
  return static_cast<int>(
      std::clamp(seconds / seconds_of_evaluated(1.0, speeds), 0.0, double{kMostEvaluated}));
}

Expected<SpeedupPlan> make_speedup_plan(double budget, const SpeedupSpeeds& speeds,
                                        const SpeedupPrompts& prompts) {
  const double least = least_budget(speeds, prompts);
  if (budget < least) {
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("--budget {}: this model answers {:.0f} tokens/s here and trains on "
                    "{:.0f} tokens/s; give at least {}, better hours",
                    duration_text(budget), speeds.answering, speeds.training, budget_text(least)));
  }
  const double left = budget - speeds.seconds;
  SpeedupPlan plan;
  plan.data_seconds = kDataShare * left;
  plan.training_seconds = kTrainingShare * left;
  plan.evaluation_seconds = kEvaluationShare * left;
  const double replies = plan.data_seconds * speeds.answering / turn_tokens(prompts);
  plan.replies = static_cast<int>(std::min(replies, 1e6));
  plan.reply_tokens = static_cast<int64_t>(plan.replies * turn_tokens(prompts));
  plan.trained_tokens = static_cast<int64_t>(plan.training_seconds * speeds.training);
  plan.batch_tokens = std::clamp(plan.trained_tokens / kWantedSteps, kLeastBatch, kMostBatch);
  plan.evaluated_prompts = std::clamp(evaluated_prompts(plan.evaluation_seconds, speeds),
                                      kLeastEvaluated, kMostEvaluated);
  // Enough to see the loss of, and of all prompts enough to evaluate with; twice as many, for a
  // hash decides which, and some are too long.
  const double validated = 24.0 / std::min(plan.replies, prompts.count);
  const double evaluated = 2.0 * plan.evaluated_prompts / prompts.count;
  plan.held_out = std::clamp(std::max(validated, evaluated), 0.02, 0.3);
  return plan;
}

int64_t speedup_disk_bytes(const SpeedupPlan& plan, const SpeedupSpeeds& speeds) {
  return kBytesPerParameter * speeds.parameters +
         kTokensOfReplyToken * kBytesPerToken * plan.reply_tokens;
}

int64_t speedup_feature_bytes(const SpeedupPlan& plan, const SpeedupSpeeds& speeds) {
  return kTokensOfReplyToken * speeds.feature_bytes * plan.reply_tokens;
}

std::string describe_plan(const SpeedupPlan& plan, const SpeedupSpeeds& speeds,
                          const SpeedupPrompts& prompts, const std::string& out,
                          bool stores_features) {
  const double epochs =
      static_cast<double>(plan.trained_tokens) / static_cast<double>(plan.reply_tokens);
  const std::string again =
      plan.replies > prompts.count
          ? fmt::format("; there are {} prompts, so some are answered more than once",
                        prompts.count)
          : fmt::format(" of {}", prompts.count);
  const double feature_room = gibibytes(speedup_feature_bytes(plan, speeds));
  const std::string features =
      stores_features
          ? fmt::format(" and, until it is trained, up to {:.2f} GiB of features", feature_room)
          : fmt::format(
                "; features, up to {:.2f} GiB, would take too much of what is free and are "
                "computed while it trains, which slows that down",
                feature_room);
  return fmt::format(
             "Measured: plain decoding {:.1f} tokens/s; {} replies at a time {:.0f} tokens/s; "
             "training {:.0f} tokens/s{}, {:.2f} million parameters.\n",
             speeds.plain, speeds.replies_at_a_time, speeds.answering, speeds.training,
             speeds.bf16 ? " with products of 16 bits" : "",
             static_cast<double>(speeds.parameters) / 1e6) +
         fmt::format("1. Data, {}: the model answers about {} prompts{} with up to {} tokens.\n",
                     duration_text(plan.data_seconds), plan.replies, again, plan.reply_tokens) +
         fmt::format(
             "2. Training, {}: about {} tokens in steps of {}: some {:.1f} times what was "
             "answered.\n",
             duration_text(plan.training_seconds), plan.trained_tokens, plan.batch_tokens, epochs) +
         fmt::format(
             "3. Evaluation and tuning, {}: about {} held-out prompts, plain against speculative "
             "decoding.\n",
             duration_text(plan.evaluation_seconds), plan.evaluated_prompts) +
         fmt::format("All of it goes to {}, up to {:.2f} GiB{}.\n", out,
                     gibibytes(speedup_disk_bytes(plan, speeds)), features) +
         "What to expect: how many drafted tokens are accepted cannot be told before. It grows "
         "with the text that\nthe model answers and with training; heads that are published have "
         "seen far more than hours on a processor give.\nThe text stays the model's own whatever "
         "comes out, and where plain decoding is faster, the profile says so\n"
         "(docs/training.md, \"One command\").";
}

}  // namespace aerie::train
