// The shortest training loop: Adam over a few batches, for drafters that learn one text by heart.
#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <numbers>
#include <span>
#include <vector>

#include "train/methods/training_method.h"

namespace aerie::test {

// The figure of that name; fails the test and gives 0 if there is none.
inline double figure(const train::Figures& figures, const std::string& name) {
  for (const auto& [key, value] : figures.sums) {
    if (key == name) return value;
  }
  ADD_FAILURE() << "there is no figure " << name;
  return 0.0;
}

// Adds normal noise of this deviation to every parameter, so that those that begin as zeros or
// ones show.
inline void perturb(train::Parameters& parameters, double deviation, uint64_t seed) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  const at::NoGradGuard no_grad;
  for (const train::Parameter& parameter : parameters.list()) {
    parameter.value.add_(at::randn(parameter.value.sizes(), generator), deviation);
  }
}

inline void clear_gradients(train::Parameters& parameters) {
  for (const train::Parameter& parameter : parameters.list()) {
    if (parameter.value.grad().defined()) parameter.value.grad().zero_();
  }
}

struct FitOptions {
  int steps = 300;
  double rate = 3e-3;  // at first; half a cosine takes it to nothing
  uint64_t seed = 1;
};

// Trains on all batches in every step; the mean loss of each step. Fails the test for an error.
inline std::vector<double> fit(train::Method& method, std::span<const train::Batch> batches,
                               const FitOptions& options = {}) {
  constexpr double kFirst = 0.9, kSecond = 0.99, kEpsilon = 1e-8;
  const std::vector<train::Parameter>& parameters = method.parameters().list();
  std::vector<at::Tensor> first, second;
  for (const train::Parameter& parameter : parameters) {
    first.push_back(at::zeros_like(parameter.value));
    second.push_back(at::zeros_like(parameter.value));
  }
  double weight = 0.0;
  for (const train::Batch& batch : batches) weight += method.weight(batch);
  EXPECT_GT(weight, 0.0);
  std::vector<double> losses;
  for (int step = 1; step <= options.steps; ++step) {
    const double share = static_cast<double>(step - 1) / options.steps;
    at::Generator generator =
        at::detail::createCPUGenerator(options.seed + static_cast<uint64_t>(step));
    method.set_progress(share);
    clear_gradients(method.parameters());
    double loss = 0.0;
    for (const train::Batch& batch : batches) {
      const auto figures = method.accumulate(batch, 1.0 / weight, generator, true);
      EXPECT_TRUE(figures.ok()) << figures.status().message();
      if (!figures.ok()) return losses;
      loss += figure(*figures, "loss") / weight;
    }
    losses.push_back(loss);
    const double rate = options.rate * 0.5 * (1.0 + std::cos(std::numbers::pi * share));
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor& gradient = parameters[i].value.grad();
      if (!gradient.defined()) continue;  // not trained yet
      first[i].mul_(kFirst).add_(gradient, 1.0 - kFirst);
      second[i].mul_(kSecond).addcmul_(gradient, gradient, 1.0 - kSecond);
      const at::Tensor scale = (second[i] / (1.0 - std::pow(kSecond, step))).sqrt_().add_(kEpsilon);
      parameters[i].value.addcdiv_(first[i], scale, -rate / (1.0 - std::pow(kFirst, step)));
    }
  }
  return losses;
}

// That the gradients of `loss` (which adds them to the parameters' where gradients are on, and
// returns its value) are what it changes by: for each parameter along a direction of its own.
template <typename Loss>
void expect_gradients(train::Parameters& parameters, const Loss& loss, double tolerance = 2e-2) {
  clear_gradients(parameters);
  loss(true);
  at::Generator generator = at::detail::createCPUGenerator(5);
  const at::NoGradGuard no_grad;
  for (const train::Parameter& parameter : parameters.list()) {
    ASSERT_TRUE(parameter.value.grad().defined()) << parameter.name;
    const at::Tensor gradient = parameter.value.grad().clone();
    // Partly along the gradient, so that what the loss changes by stands out of the rounding.
    at::Tensor direction = at::randn(gradient.sizes(), generator);
    direction = direction / direction.norm() + gradient / gradient.norm();
    const double slope = (gradient * direction).sum().item<double>();
    const double distance = 4e-3 * (1.0 + parameter.value.norm().item<double>() /
                                              std::sqrt(static_cast<double>(gradient.numel())));
    const at::Tensor before = parameter.value.clone();
    const auto at_distance = [&](double signed_distance) {
      parameter.value.copy_(before + direction * signed_distance);
      return loss(false);
    };
    const double change = at_distance(distance) - at_distance(-distance);
    parameter.value.copy_(before);
    EXPECT_GT(gradient.norm().item<double>(), 0.0) << parameter.name;
    EXPECT_NEAR(change / (2.0 * distance), slope, tolerance * std::abs(slope)) << parameter.name;
  }
}

// The same of accumulate().
inline void expect_right_gradients(train::Method& method, const train::Batch& batch,
                                   double tolerance) {
  constexpr double kScale = 0.5;
  const auto loss = [&](bool train) {
    at::Generator generator = at::detail::createCPUGenerator(5);
    const auto figures = method.accumulate(batch, kScale, generator, train);
    EXPECT_TRUE(figures.ok()) << figures.status().message();
    return figures.ok() ? kScale * figure(*figures, "loss") : 0.0;
  };
  expect_gradients(method.parameters(), loss, tolerance);
}

}  // namespace aerie::test
