// Training for the type in which a drafter will draft: losses are those of the rounded matrices,
// steps are made by the values behind them (Courbariaux et al. 2015, BinaryConnect, 1511.00363,
// section 2.3).
#pragma once

#include <ATen/ATen.h>

#include <string_view>
#include <vector>

#include "base/status.h"
#include "tensor/dtype.h"
#include "train/nn/parameters.h"

namespace aerie::train {

// kInvalidArgument unless it is q4_0 or q8_0.
Expected<DType> parse_rounding(std::string_view name);

// Matrix [outputs, inputs], inputs a multiple of 32, with the values that `type` would give it:
// those of tensor/quantize.h, to the bit on the processor. Requires a type of parse_rounding().
at::Tensor rounded(const at::Tensor& matrix, DType type);

// While it exists, parameters that the engine would convert have the values of that type: matrices
// of whole blocks. At its end they are what they were.
class RoundedValues {
 public:
  RoundedValues(const Parameters& parameters, DType type);
  ~RoundedValues();
  RoundedValues(const RoundedValues&) = delete;
  RoundedValues& operator=(const RoundedValues&) = delete;

 private:
  struct Kept {
    at::Tensor value, before;
  };
  std::vector<Kept> kept_;
};

}  // namespace aerie::train
