// Backward from several tensors at once.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

namespace aerie::train {

class Roots {
 public:
  // A gradient that is not defined is none: nothing flows to `value`.
  void add(const at::Tensor& value, const at::Tensor& gradient) {
    if (!gradient.defined()) return;
    values_.push_back(value);
    gradients_.push_back(gradient);
  }
  void backward() {
    if (!values_.empty()) torch::autograd::backward(values_, gradients_);
  }

 private:
  std::vector<at::Tensor> values_, gradients_;
};

}  // namespace aerie::train
