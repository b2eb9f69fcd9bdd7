// What the engine computes for a text, as tensors.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "model/model.h"

namespace aerie::test {

struct EngineRun {
  at::Tensor streams;  // [layers + 1, rows, hidden]: those that enter the layers, and behind them
  at::Tensor logits;   // [rows, vocab]
};

// In one pass through the first `layers` (0: all of them). Fails the test if the model does not
// take as many rows and logits.
EngineRun run_engine(Model& model, const std::vector<int32_t>& tokens, int layers = 0);

at::Tensor tensor_of(const std::vector<int32_t>& tokens);  // int64

// |a - b| / |b|.
double distance(const at::Tensor& a, const at::Tensor& b);

}  // namespace aerie::test
