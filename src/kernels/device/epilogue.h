// What becomes of a product's sums: common to products of few rows and of many, so that both give
// the same bits.
#pragma once

#include <cstdint>

#include "kernels/device/activation.h"
#include "kernels/device/device.h"
#include "kernels/simt/simt.h"

namespace aerie::device {

// Product, as a kernel gets it.
struct ProductArgs {
  struct Part {
    const unsigned char* codes;
    const unsigned char* scales;
    const unsigned char* supers;
    const float* bias;
    float factor;
    int panels;
  };
  Part parts[3];
  int panels;  // of all
  int n;       // outputs, of all; of pairs half of them
  int steps;   // of k
  bool paired;
  const int32_t* rows;
  const uint16_t* x;
  int x_stride;
  InputNorm norm;
  Output output;
  float* y;
  int y_stride;
  float factor, soft_cap;
  NextInput next;
  uint16_t* out;
  int out_stride;
  Glu glu;
};

// The part that panel `index` is of, and which of its panels it is.
struct PanelPlace {
  int part, index;
};
SIMT_DEV PanelPlace panel_place(const ProductArgs& a, int index) {
  if (a.paired) return {index % 2, index / 2};
  int part = 0;
  while (part < 2 && index >= a.parts[part].panels && a.parts[part].panels > 0) {
    index -= a.parts[part].panels;
    ++part;
  }
  return {part, index};
}

// The first step of a segment.
SIMT_DEV int segment_begin(int steps, int segment) {
  return steps * segment / kSegments;
}

// 1 / sqrt(mean(x^2) + eps) of a row, to all lanes of the warp.
SIMT_DEV float inverse_rms(const InputNorm& norm, int row) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float sum = 0.0f;
  for (int i = lane; i < norm.count; i += 32) {
    sum += norm.squares[static_cast<int64_t>(row) * norm.stride + i];
  }
  SIMT_UNROLL
  for (int mask = 16; mask > 0; mask /= 2) sum += simt::shuffle_xor(sum, mask);
  return simt::reciprocal(
      simt::square_root(simt::divide(sum, static_cast<float>(norm.width)) + norm.eps));
}

// The product with its factors, bias and cap. `at`: the output's number in its part.
SIMT_DEV float finish(const ProductArgs& a, int part, int at, float sum, float inverse) {
  float value = sum * inverse;
  if (a.parts[part].factor != 1.0f) value *= a.parts[part].factor;
  if (a.parts[part].bias != nullptr) value += a.parts[part].bias[at];
  if (a.output == Output::kResidual) return value;
  if (a.factor != 1.0f) value *= a.factor;
  if (a.soft_cap != 0.0f) value = a.soft_cap * simt::tanh(simt::divide(value, a.soft_cap));
  return value;
}

// x += value at (row, n); its part of NextInput, and its square.
SIMT_DEV float add_to_stream(const ProductArgs& a, int row, int n, float value) {
  float* x = a.y + static_cast<int64_t>(row) * a.y_stride + n;
  const float sum = simt::fma(a.factor, value, *x);
  *x = sum;
  if (a.next.out != nullptr) {
    a.next.out[static_cast<int64_t>(row) * a.next.stride + n] =
        simt::to_bf16(sum * a.next.weight[n]);
  }
  return sum * sum;
}

}  // namespace aerie::device
