#include "train/nn/rounded_values.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <cassert>
#include <optional>
#include <string>

namespace aerie::train {
namespace {

constexpr int64_t kBlock = 32;

// 1 / d, or 0 where that is infinite.
at::Tensor one_over(const at::Tensor& d) {
  const at::Tensor inverted = d.reciprocal();
  return at::where(inverted.isfinite(), inverted, at::zeros_like(inverted));
}

// Scales are stored in 16 bits.
at::Tensor stored(const at::Tensor& d) {
  return d.to(at::kHalf).to(at::kFloat);
}

// Of blocks [count, 32].
at::Tensor rounded_q8_0(const at::Tensor& x) {
  const at::Tensor d = x.abs().amax(1, true) / 127.0;
  const at::Tensor scaled = x * one_over(d);
  // To the nearest, halves away from zero.
  return (scaled.abs() + 0.5).floor() * scaled.sign() * stored(d);
}

// The value of the largest magnitude becomes code 0, so -8 times the scale.
at::Tensor rounded_q4_0(const at::Tensor& x) {
  const at::Tensor largest = x.gather(1, x.abs().argmax(1, true));
  const at::Tensor d = largest / -8.0;
  const at::Tensor codes = (x * one_over(d) + 8.5).clamp(0.0, 15.0).trunc();
  return (codes - 8.0) * stored(d);
}

}  // namespace

Expected<DType> parse_rounding(std::string_view name) {
  const std::optional<DType> type = dtype_from_name(name);
  if (type == DType::kQ4_0 || type == DType::kQ8_0) return *type;
  return Status(StatusCode::kInvalidArgument,
                fmt::format("--draft-type {}: drafters are trained for q4_0 or q8_0, or for none "
                            "without it",
                            name));
}

at::Tensor rounded(const at::Tensor& matrix, DType type) {
  assert(matrix.dim() == 2 && matrix.size(1) % kBlock == 0);
  const at::NoGradGuard no_grad;
  const at::Tensor blocks = matrix.detach().reshape({-1, kBlock});
  const at::Tensor values = type == DType::kQ4_0 ? rounded_q4_0(blocks) : rounded_q8_0(blocks);
  return values.reshape(matrix.sizes());
}

RoundedValues::RoundedValues(const Parameters& parameters, DType type) {
  const at::NoGradGuard no_grad;
  for (const Parameter& parameter : parameters.list()) {
    const at::Tensor& value = parameter.value;
    if (value.dim() != 2 || value.size(1) % kBlock != 0) continue;
    kept_.push_back({value, value.detach().clone()});
    value.detach().copy_(rounded(value, type));
  }
}

RoundedValues::~RoundedValues() {
  const at::NoGradGuard no_grad;
  for (const Kept& kept : kept_) kept.value.detach().copy_(kept.before);
}

}  // namespace aerie::train
