// AdamW (Loshchilov and Hutter, 1711.05101).
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "train/nn/parameters.h"

namespace aerie::train {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.0;  // of matrices; norms and biases do not decay
};

// Puts all values into one run of memory and all gradients into another, so that processes add
// theirs up in one go; the parameters' own tensors are views of these from then on. Not
// thread-safe.
class AdamW {
 public:
  // `parameters` must outlive it, and none be added later.
  AdamW(const Parameters& parameters, const AdamWOptions& options);

  // Float [size()], in the parameters' order; gaps between them hold zeros. What backward() makes
  // is added to the gradients.
  int64_t size() const { return values_.numel(); }
  at::Tensor& values() { return values_; }
  at::Tensor& gradients() { return gradients_; }
  at::Tensor& first_moments() { return first_; }
  at::Tensor& second_moments() { return second_; }

  // Step number `step`, from 1, with gradients() times `factor`, then sets gradients() to zero.
  void step(int64_t step, double rate, double factor);

 private:
  struct Span {
    int64_t begin = 0, size = 0;
    double rate_scale = 1.0;
    double decay = 0.0;
  };
  void merge_spans();

  AdamWOptions options_;
  std::vector<Span> spans_;
  at::Tensor values_, gradients_, first_, second_;
};

}  // namespace aerie::train
