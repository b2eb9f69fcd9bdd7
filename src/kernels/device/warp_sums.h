// Sums over the lanes of a warp, and what norms make of sums.
#pragma once

#include "kernels/device/device.h"
#include "kernels/simt/simt.h"

namespace aerie::device {

// Of all lanes, to all of them.
SIMT_DEV float warp_sum(float value) {
  SIMT_UNROLL
  for (int mask = 16; mask > 0; mask /= 2) value += simt::shuffle_xor(value, mask);
  return value;
}

// Of kPanel lanes side by side.
SIMT_DEV float panel_sum(float value) {
  SIMT_UNROLL
  for (int mask = kPanel / 2; mask > 0; mask /= 2) value += simt::shuffle_xor(value, mask);
  return value;
}

// 1 / sqrt(mean + eps), of the sum of so many squares.
SIMT_DEV float inverse_root_mean(float sum, int count, float eps) {
  return simt::reciprocal(simt::square_root(simt::divide(sum, static_cast<float>(count)) + eps));
}

}  // namespace aerie::device
