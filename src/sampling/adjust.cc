#include "sampling/adjust.h"

#include <algorithm>
#include <cassert>
#include <limits>

#include "base/clones.h"

namespace aerie {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

// -infinity and NaN stay; everything else stays within floats.
float to_logit(double value) {
  if (value > kLargest) return kLargest;
  if (value < -kLargest)
    return value < -std::numeric_limits<double>::max() ? -kInfinity : -kLargest;
  return static_cast<float>(value);
}

bool penalises(const SamplingParams& params) {
  return params.penalty_window != 0 &&
         (params.repetition_penalty != 1.0 || params.frequency_penalty != 0.0 ||
          params.presence_penalty != 0.0);
}

float penalised(float logit, int32_t count, const SamplingParams& params) {
  double x = logit;
  x = x > 0 ? x / params.repetition_penalty : x * params.repetition_penalty;
  return to_logit(x - (count * params.frequency_penalty + params.presence_penalty));
}

// A loop without exits, for the compiler to vectorise.
AERIE_CLONES bool any_infinite(const float* logits, size_t count) {
  int any = 0;
  for (size_t i = 0; i < count; ++i) any |= static_cast<int>(logits[i] > kLargest);
  return any != 0;
}

}  // namespace

std::span<const float> LogitAdjuster::adjust(std::span<const float> logits,
                                             const SamplingParams& params,
                                             const SamplingContext& context) {
  assert(logits.size() == vocab_);
  const std::span<const float> given = bounded(logits);
  if (!touches(params, context)) return given;
  if (given.data() != adjusted_.data()) adjusted_.assign(given.begin(), given.end());
  apply_bias(params);
  if (context.constraint != nullptr) apply_mask(*context.constraint);
  if (penalises(params)) apply_penalties(params, context);
  return adjusted_;
}

bool LogitAdjuster::touches(const SamplingParams& params, const SamplingContext& context) {
  return !params.logit_bias.empty() || context.constraint != nullptr || penalises(params);
}

std::span<const float> LogitAdjuster::bounded(std::span<const float> logits) {
  if (!any_infinite(logits.data(), logits.size())) return logits;
  adjusted_.assign(logits.begin(), logits.end());
  for (float& x : adjusted_) x = x > kLargest ? kLargest : x;
  return adjusted_;
}

void LogitAdjuster::apply_bias(const SamplingParams& params) {
  for (const auto& [id, bias] : params.logit_bias) {
    float& logit = adjusted_[static_cast<size_t>(id)];
    logit = to_logit(static_cast<double>(logit) + static_cast<double>(bias));
  }
}

std::span<bool> LogitAdjuster::mask_of(const TokenConstraint& constraint) {
  if (allowed_ == nullptr) allowed_ = std::make_unique<bool[]>(vocab_);
  const std::span<bool> allowed(allowed_.get(), vocab_);
  constraint.mask(allowed);
  return allowed;
}

void LogitAdjuster::apply_mask(const TokenConstraint& constraint) {
  const std::span<bool> allowed = mask_of(constraint);
  for (size_t i = 0; i < vocab_; ++i) adjusted_[i] = allowed[i] ? adjusted_[i] : -kInfinity;
}

void LogitAdjuster::apply_penalties(const SamplingParams& params, const SamplingContext& context) {
  std::span<const int32_t> committed = context.committed;
  std::span<const int32_t> path = context.path;
  if (params.penalty_window > 0) {
    const size_t window = static_cast<size_t>(params.penalty_window);
    path = path.last(std::min(window, path.size()));
    committed = committed.last(std::min(window - path.size(), committed.size()));
  }
  const auto for_each_token = [&](const auto& fn) {
    for (const std::span<const int32_t> tokens : {committed, path}) {
      for (const int32_t token : tokens) {
        if (static_cast<uint32_t>(token) < vocab_) fn(static_cast<size_t>(token));
      }
    }
  };
  if (counts_.empty()) counts_.resize(vocab_);
  for_each_token([&](size_t token) { ++counts_[token]; });
  // Each token once, at its first occurrence, which also leaves the counts zero.
  for_each_token([&](size_t token) {
    if (counts_[token] == 0) return;
    adjusted_[token] = penalised(adjusted_[token], counts_[token], params);
    counts_[token] = 0;
  });
}

int32_t LogitAdjuster::fallback(const SamplingParams& params, const TokenConstraint* constraint) {
  const auto banned = [&](int32_t id) {
    return std::ranges::any_of(params.logit_bias, [&](const auto& bias) {
      return bias.first == id && bias.second == -kInfinity;
    });
  };
  std::span<const bool> allowed;
  if (constraint != nullptr) allowed = mask_of(*constraint);
  int32_t first_allowed = -1;
  for (int32_t id = 0; id < static_cast<int32_t>(vocab_); ++id) {
    if (constraint != nullptr && !allowed[static_cast<size_t>(id)]) continue;
    if (first_allowed < 0) first_allowed = id;
    if (!banned(id)) return id;
  }
  return std::max(first_allowed, 0);
}

}  // namespace aerie
