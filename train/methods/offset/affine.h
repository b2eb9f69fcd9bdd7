// A matrix with a bias, as heads are made of.
#pragma once

#include <ATen/ATen.h>

#include <string>

#include "train/nn/parameters.h"

namespace aerie::train {

struct Affine {
  at::Tensor weight, bias;

  // Of this matrix and a bias of zeros, as NAME.weight and NAME.bias.
  static Affine add(Parameters& parameters, const std::string& name, const at::Tensor& weight) {
    return {parameters.add(name + ".weight", weight),
            parameters.add(name + ".bias", at::zeros({weight.size(0)}, weight.options()))};
  }
  at::Tensor operator()(const at::Tensor& x) const { return at::linear(x, weight, bias); }
};

}  // namespace aerie::train
