// A step of some values of AdamW; for adamw.cc and its test.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace aerie::train {

// In the terms of algorithm 2 of 1711.05101.
struct AdamWUpdate {
  float beta1 = 0.0F, beta2 = 0.0F;
  float keep = 1.0F;        // 1 - rate * weight decay
  float size = 0.0F;        // rate / (1 - beta1^t)
  float root_scale = 1.0F;  // 1 / sqrt(1 - beta2^t)
  float eps = 0.0F;
  float factor = 1.0F;  // of the gradients
};

// Both set the gradients to zero. In memory:
void update_floats(const AdamWUpdate& update, int64_t count, float* value, float* gradient,
                   float* first, float* second);
// and on any device:
void update_tensors(const AdamWUpdate& update, at::Tensor value, at::Tensor gradient,
                    at::Tensor first, at::Tensor second);

}  // namespace aerie::train
