#include "train/run/stepper.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "train/batches/batch_plan.h"
#include "train/batches/collate.h"
#include "train/nn/autocast.h"
#include "train/nn/lap_clock.h"
#include "train/nn/rounded_values.h"

namespace aerie::train {
namespace {

double loss_of(const Figures& figures) {
  for (const auto& [name, sum] : figures.sums) {
    if (name == "loss") return sum;
  }
  return 0.0;
}

Status not_finite(int64_t step, const char* what) {
  return {
      StatusCode::kInvalidData,
      fmt::format("step {}: the {} is not a finite number; nothing was changed by this step. Go "
                  "back to a checkpoint before the loss rose (the log shows it) with a lower "
                  "--learning-rate or --clip-norm",
                  step, what)};
}

std::array<std::pair<std::string_view, double>, 6> named(const StepSeconds& seconds) {
  return {{{"waiting", seconds.waiting},
           {"forward", seconds.passes.forward},
           {"loss", seconds.passes.loss},
           {"backward", seconds.passes.backward},
           {"passes", seconds.others},
           {"optimizer", seconds.optimizer}}};
}

}  // namespace

double StepSeconds::sum() const {
  return waiting + passes.sum() + others + optimizer;
}

void StepSeconds::add(const StepSeconds& more) {
  waiting += more.waiting;
  passes.add(more.passes);
  others += more.others;
  optimizer += more.optimizer;
}

Json json_of(const StepSeconds& seconds) {
  Json json = Json::object();
  for (const auto& [name, value] : named(seconds)) {
    if (value > 0.0) json[std::string(name)] = value;
  }
  return json;
}

std::string rate_text(double tokens, double seconds, const StepSeconds& steps) {
  const double all = std::max({seconds, steps.sum(), 1e-9});
  std::string text = fmt::format("{:.0f} tokens/s:", tokens / all);
  for (const auto& [name, value] : named(steps)) {
    if (value > 0.0) text += fmt::format(" {} {:.0f} %,", name, 100.0 * value / all);
  }
  return text + fmt::format(" else {:.0f} %", 100.0 * (all - steps.sum()) / all);
}

Stepper::Stepper(Method& method, AdamW& optimizer, Group& group, const StepOptions& options)
    : method_(method),
      optimizer_(optimizer),
      group_(group),
      options_(options),
      generator_(at::detail::createCPUGenerator()) {}

Expected<Figures> Stepper::run(Batch batch, uint64_t seed, bool train) {
  // LibTorch throws, for want of memory above all.
  try {
    generator_.set_current_seed(seed);
    const Batch there = to_device(std::move(batch), options_.device);
    const Autocast autocast(options_.device, options_.autocast);
    std::optional<RoundedValues> rounded;
    if (options_.draft_type) rounded.emplace(method_.parameters(), *options_.draft_type);
    AERIE_ASSIGN_OR_RETURN(Figures figures, method_.accumulate(there, 1.0, generator_, train));
    figures.weight = method_.weight(there);
    return figures;
  } catch (const c10::Error& error) {
    return Status(StatusCode::kInternal, error.what_without_backtrace());
  } catch (const std::exception& error) {
    return Status(StatusCode::kInternal, error.what());
  }
}

Expected<Figures> Stepper::evaluate(const Batch& batch, int64_t number) {
  return run(batch, batch_seed(options_.seed, -1, number), false);
}

Status Stepper::accumulate(int64_t step, const Share& share, StepResult& result) {
  LapClock clock;
  for (int64_t i = share.begin + group_.rank(); i < share.end; i += group_.world()) {
    AERIE_ASSIGN_OR_RETURN(Batch batch, share.next());
    result.seconds.waiting += clock.lap();
    result.rows += batch.documents.rows();
    const uint64_t seed = batch_seed(options_.seed, step, i - share.begin);
    AERIE_ASSIGN_OR_RETURN(const Figures figures, run(std::move(batch), seed, true));
    result.seconds.passes.add(figures.seconds);
    result.seconds.others += std::max(0.0, clock.lap() - figures.seconds.sum());
    result.figures.merge(figures);
  }
  return {};
}

Expected<StepResult> Stepper::step(int64_t step, double rate, const Share& share) {
  StepResult result;
  const Status own = accumulate(step, share, result);
  LapClock clock;
  const double loss = loss_of(result.figures);
  at::Tensor sums = at::empty({4}, at::kDouble);
  double* const sum = sums.data_ptr<double>();
  sum[0] = result.figures.weight;
  sum[1] = static_cast<double>(result.rows);
  sum[2] = std::isfinite(loss) ? 0.0 : 1.0;
  sum[3] = own.ok() ? 0.0 : 1.0;
  AERIE_RETURN_IF_ERROR(group_.sum(sums));
  const bool failed = sum[2] + sum[3] > 0.0;
  if (failed) optimizer_.gradients().zero_();
  AERIE_RETURN_IF_ERROR(own);
  if (sum[3] > 0.0) {
    return Status(StatusCode::kInternal, "another process failed; it says why");
  }
  if (sum[2] > 0.0) return not_finite(step, "loss");
  result.weight = sum[0];
  result.rows = static_cast<int64_t>(sum[1]);

  const at::NoGradGuard no_grad;
  at::Tensor& gradients = optimizer_.gradients();
  AERIE_RETURN_IF_ERROR(group_.sum(gradients));
  double factor = result.weight > 0.0 ? 1.0 / result.weight : 0.0;
  if (options_.clip_value > 0.0) {
    gradients.mul_(factor).clamp_(-options_.clip_value, options_.clip_value);
    factor = 1.0;
  }
  // One process says it: how a sum is cut up may depend on the number of threads.
  at::Tensor norm = gradients.norm().to(at::kCPU, at::kDouble).mul_(factor);
  AERIE_RETURN_IF_ERROR(group_.broadcast(norm));
  result.gradient_norm = norm.item<double>();
  if (!std::isfinite(result.gradient_norm)) {
    gradients.zero_();
    return not_finite(step, "gradient");
  }
  result.clipped = options_.clip_norm > 0.0 && result.gradient_norm > options_.clip_norm;
  if (result.clipped) factor *= options_.clip_norm / result.gradient_norm;
  optimizer_.step(step, rate, factor);
  result.seconds.optimizer = clock.lap();
  return result;
}

}  // namespace aerie::train
