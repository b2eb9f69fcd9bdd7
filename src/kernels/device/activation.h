// The nonlinear functions of feed-forwards, for one float.
#pragma once

#include "kernels/device/device.h"
#include "kernels/simt/simt.h"

namespace aerie::device {

SIMT_DEV float infinity() {
  return simt::float_of(0x7f800000u);
}

SIMT_DEV float activated(Glu glu, float x) {
  switch (glu) {
    case Glu::kGeluTanh: {
      const float u = 0.7978845608028654f * simt::fma(0.044715f * x * x, x, x);
      return 0.5f * x * (1.0f + simt::tanh(u));
    }
    case Glu::kGelu:
      return 0.5f * x * (1.0f + simt::erf(x * 0.7071067811865476f));
    case Glu::kSilu:
      break;
  }
  return simt::divide(x, 1.0f + simt::exp(-x));
}

}  // namespace aerie::device
