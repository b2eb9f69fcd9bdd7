// What becomes of a product's sums: common to products of few rows and of many, so that both give
// the same bits.
#pragma once

#include <cstdint>

#include "kernels/device/activation.h"
#include "kernels/device/device.h"
#include "kernels/device/unpack.h"
#include "kernels/device/warp_sums.h"
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
  int most_rows;
  const uint16_t* x;
  int x_stride;
  void* ordered;
  InputNorm norm;
  Output output;
  float* y;
  int y_stride;
  float factor, soft_cap;
  NextInput next;
  uint16_t* out;
  int out_stride;
  Glu glu;
  // A block's share of the panels: `each`, and a group more for the first `more` blocks.
  int each, group, more;
};

SIMT_BOTH ProductArgs::Part part_of_matrix(const Matrix& m) {
  return {static_cast<const unsigned char*>(m.codes),  static_cast<const unsigned char*>(m.scales),
          static_cast<const unsigned char*>(m.supers), m.bias,
          m.factor * unpacked_factor(m.kind),          m.panels};
}

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

// 1 / sqrt(mean(x^2) + eps) of rows first, first + stride, ..., to all lanes of the warp; those
// from `end` on are taken for the one before it.
template <int kCount>
SIMT_DEV void inverse_rms(const InputNorm& norm, int first, int stride, int end,
                          float (&inverse)[kCount]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float* squares[kCount];
  float sums[kCount];
  SIMT_UNROLL
  for (int r = 0; r < kCount; ++r) {
    const int row = first + r * stride;
    squares[r] = norm.squares + static_cast<int64_t>(row < end ? row : end - 1) * norm.stride;
    sums[r] = 0.0f;
  }
  SIMT_UNROLL_BY(kCount == 1 ? 8 : 4)
  for (int i = lane; i < norm.count; i += 32) {
    SIMT_UNROLL
    for (int r = 0; r < kCount; ++r) sums[r] += squares[r][i];
  }
  SIMT_UNROLL
  for (int r = 0; r < kCount; ++r) {
    inverse[r] = inverse_root_mean(warp_sum(sums[r]), norm.width, norm.eps);
  }
}
SIMT_DEV float inverse_rms(const InputNorm& norm, int row) {
  float inverse[1];
  inverse_rms(norm, row, 0, row + 1, inverse);
  return inverse[0];
}

// What a product of an output is multiplied by, and its bias.
struct Finish {
  float factor;
  float bias;
  bool has_bias;
};
// `at`: the output's number in its part.
SIMT_DEV Finish finish_of(const ProductArgs::Part& part, int at) {
  return {part.factor, part.bias != nullptr ? part.bias[at] : 0.0f, part.bias != nullptr};
}

// The product with its factors, bias and cap.
SIMT_DEV float finish(const ProductArgs& a, const Finish& of, float sum, float inverse) {
  float value = sum * inverse;
  if (of.factor != 1.0f) value *= of.factor;
  if (of.has_bias) value += of.bias;
  if (a.output == Output::kResidual) return value;
  if (a.factor != 1.0f) value *= a.factor;
  if (a.soft_cap != 0.0f) value = a.soft_cap * simt::tanh(simt::divide(value, a.soft_cap));
  return value;
}
SIMT_DEV float finish(const ProductArgs& a, const ProductArgs::Part& part, int at, float sum,
                      float inverse) {
  return finish(a, finish_of(part, at), sum, inverse);
}

// x += value, of which `x` is what it was, at (row, n); its part of NextInput, and its square.
SIMT_DEV float add_to_stream(const ProductArgs& a, int row, int n, float x, float weight,
                             float value) {
  const float sum = simt::fma(a.factor, value, x);
  a.y[static_cast<int64_t>(row) * a.y_stride + n] = sum;
  if (a.next.out != nullptr) {
    a.next.out[static_cast<int64_t>(row) * a.next.stride + n] = simt::to_bf16(sum * weight);
  }
  return sum * sum;
}
SIMT_DEV float add_to_stream(const ProductArgs& a, int row, int n, float value) {
  return add_to_stream(a, row, n, a.y[static_cast<int64_t>(row) * a.y_stride + n],
                       a.next.out != nullptr ? a.next.weight[n] : 0.0f, value);
}

}  // namespace aerie::device
