#include "train/run/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

namespace aerie::train {

Expected<Decay> parse_decay(std::string_view name) {
  for (const Decay decay : {Decay::kCosine, Decay::kLinear, Decay::kConstant}) {
    if (decay_name(decay) == name) return decay;
  }
  return Status(StatusCode::kInvalidArgument,
                fmt::format("--decay {}: cosine, linear and constant are known", name));
}

std::string_view decay_name(Decay decay) {
  switch (decay) {
    case Decay::kCosine:
      return "cosine";
    case Decay::kLinear:
      return "linear";
    default:
      return "constant";
  }
}

Status check(const Schedule& schedule) {
  const auto wrong = [](std::string_view flag, double value, std::string_view wanted) {
    return Status(StatusCode::kInvalidArgument, fmt::format("{} {}: {}", flag, value, wanted));
  };
  if (!(schedule.rate > 0.0) || !std::isfinite(schedule.rate)) {
    return wrong("--learning-rate", schedule.rate, "a number above 0 is wanted");
  }
  if (!(schedule.warmup >= 0.0 && schedule.warmup < 1.0)) {
    return wrong("--warmup", schedule.warmup,
                 "a share of the training from 0 to below 1 is wanted");
  }
  if (!(schedule.floor >= 0.0 && schedule.floor <= 1.0)) {
    return wrong("--floor", schedule.floor, "a share of the learning rate from 0 to 1 is wanted");
  }
  return {};
}

double usual_rate(int hidden) {
  constexpr double kRate = 1e-4;
  constexpr double kWidth = 4096.0;
  return kRate * std::max(1.0, kWidth / hidden);
}

double rate_at(const Schedule& schedule, double share) {
  const double done = std::clamp(share, 0.0, 1.0);
  if (done < schedule.warmup) return schedule.rate * done / schedule.warmup;
  const double rest = (done - schedule.warmup) / (1.0 - schedule.warmup);
  double height = 1.0;
  if (schedule.decay == Decay::kCosine) {
    height = 0.5 * (1.0 + std::cos(std::numbers::pi * rest));
  } else if (schedule.decay == Decay::kLinear) {
    height = 1.0 - rest;
  }
  return schedule.rate * (schedule.floor + (1.0 - schedule.floor) * height);
}

Status check(const Budget& budget) {
  const int given = (budget.steps != 0) + (budget.epochs != 0) + (budget.seconds != 0.0);
  if (given != 1 || budget.steps < 0 || budget.epochs < 0 || !(budget.seconds >= 0.0) ||
      !std::isfinite(budget.seconds)) {
    return {StatusCode::kInvalidArgument,
            "one of --steps, --epochs and --time says how long to train, with a number above 0"};
  }
  return {};
}

}  // namespace aerie::train
