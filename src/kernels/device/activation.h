// The nonlinear functions of feed-forwards, for one float.
#pragma once

#include "kernels/device/device.h"
#include "kernels/simt/simt.h"

namespace aerie::device {

SIMT_DEV float infinity() {
  return simt::float_of(0x7f800000u);
}

inline constexpr float kClampedSiluLimit = 7.0f;

// x between - limit and limit; NaN stays.
SIMT_DEV float held(float x, float limit) {
  return x > limit ? limit : x < -limit ? -limit : x;
}

SIMT_DEV float activated(Glu glu, float x) {
  switch (glu) {
    case Glu::kGeluTanh: {
      const float u = 0.7978845608028654f * simt::fma(0.044715f * x * x, x, x);
      return 0.5f * x * (1.0f + simt::tanh(u));
    }
    case Glu::kGelu:
      return 0.5f * x * (1.0f + simt::erf(x * 0.7071067811865476f));
    case Glu::kClampedSilu: {
      const float y = x > kClampedSiluLimit ? kClampedSiluLimit : x;
      return simt::divide(y, 1.0f + simt::exp(-1.702f * y));
    }
    case Glu::kSilu:
      break;
  }
  return simt::divide(x, 1.0f + simt::exp(-x));
}

// What a gate makes of what it multiplies.
SIMT_DEV float gated(Glu glu, float gate, float x) {
  if (glu == Glu::kClampedSilu) x = 1.0f + held(x, kClampedSiluLimit);
  return activated(glu, gate) * x;
}

}  // namespace aerie::device
