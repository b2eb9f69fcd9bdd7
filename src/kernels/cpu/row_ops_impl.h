// Operations on one row of activations, written over the sixteen lanes of simd_*.h.
#pragma once

#include "kernels/cpu/exp_impl.h"

namespace aerie::kernels::AERIE_CPU_NAMESPACE {
namespace {

template <typename Body>
AERIE_INLINE void for_lanes(int64_t k, const Body& body) {
  for (int64_t i = 0; i < k; i += kLanes) {
    const int64_t left = k - i;
    body(i, left < kLanes ? static_cast<int>(left) : kLanes);
  }
}

// Below it 127 / x would be infinite, or x / 127 subnormal.
constexpr float kNegligible = 1e-35f;

void quantize(const ActivationRow& row) {
  if (row.codes == nullptr) return;
  for (int64_t g = 0; g < row.k / kGroup; ++g) {
    const float* x = row.floats + g * kGroup;
    int8_t* codes = row.codes + g * kGroup;
    const Floats a = load(x), b = load(x + kLanes);
    const float largest = reduce_max(max(abs(a), abs(b)));
    // 0, or NaN if a value is infinite or NaN.
    const float zero_or_nan = reduce_add(fma(a, zero(), mul(b, zero())));
    if (zero_or_nan != 0.0f || largest < kNegligible) {
      // No codes stand for such values; a scale of NaN keeps the products from looking like
      // numbers.
      store_i8(codes, set1(0));
      store_i8(codes + kLanes, set1(0));
      row.scales[g] = zero_or_nan != 0.0f ? zero_or_nan : 0.0f;
      row.sums[2 * g] = row.sums[2 * g + 1] = 0;
      continue;
    }
    const Floats inverse = set1(127.0f / largest);
    const Ints first = to_ints(mul(a, inverse)), second = to_ints(mul(b, inverse));
    store_i8(codes, first);
    store_i8(codes + kLanes, second);
    row.scales[g] = largest / 127.0f;
    row.sums[2 * g] = reduce_add(first);
    row.sums[2 * g + 1] = row.sums[2 * g] + reduce_add(second);
  }
}

void rms_norm(const float* x, const float* weight, double eps, const ActivationRow& out) {
  Floats squares = zero();
  for_lanes(out.k, [&](int64_t i, int lanes) {
    const Floats v = load_first(x + i, lanes);
    squares = fma(v, v, squares);
  });
  const double mean = static_cast<double>(reduce_add(squares)) / static_cast<double>(out.k);
  const Floats inverse = set1(static_cast<float>(1.0 / __builtin_sqrt(mean + eps)));
  for_lanes(out.k, [&](int64_t i, int lanes) {
    const Floats v = mul(load_first(x + i, lanes), inverse);
    store_first(out.floats + i, mul(v, load_first(weight + i, lanes)), lanes);
  });
  quantize(out);
}

void silu_mul(const float* gate, const float* up, const ActivationRow& out) {
  for_lanes(out.k, [&](int64_t i, int lanes) {
    const Floats g = load_first(gate + i, lanes);
    const Floats e = exp_nonpositive(sub(zero(), abs(g)));
    // sigmoid(g) is 1 / (1 + e) or e / (1 + e), whichever keeps e from overflowing.
    const Floats sigmoid = div(select_nonnegative(g, set1(1.0f), e), add(set1(1.0f), e));
    const Floats silu = mul(g, sigmoid);
    store_first(out.floats + i, mul(silu, load_first(up + i, lanes)), lanes);
  });
  quantize(out);
}

void rope(float* x, int heads, int head_dim, int dimensions, const float* cos, const float* sin) {
  for (int h = 0; h < heads; ++h) {
    float* head = x + static_cast<int64_t>(h) * head_dim;
    for (int i = 0; i < dimensions / 2; ++i) {
      const float a = head[2 * i], b = head[2 * i + 1];
      head[2 * i] = a * cos[i] - b * sin[i];
      head[2 * i + 1] = a * sin[i] + b * cos[i];
    }
  }
}

void store_kv(const KvLayout& layout, const float* k, const float* v, int32_t slot, uint16_t* kv) {
  const int64_t page = slot / kPagePositions;
  const int offset = slot % kPagePositions;
  for (int h = 0; h < layout.kv_heads; ++h) {
    const float* key = k + static_cast<int64_t>(h) * layout.head_dim;
    const float* value = v + static_cast<int64_t>(h) * layout.head_dim;
    uint16_t* keys = kv + layout.keys(page, h);
    uint16_t* values = kv + layout.values(page, h) + static_cast<int64_t>(offset) * layout.head_dim;
    for (int d = 0; d < layout.head_dim; d += kLanes) {
      store_half(values + d, load(value + d));
      uint16_t rounded[kLanes];
      store_half(rounded, load(key + d));
      for (int i = 0; i < kLanes; ++i) keys[layout.key_element(offset, d + i)] = rounded[i];
    }
  }
}

}  // namespace
}  // namespace aerie::kernels::AERIE_CPU_NAMESPACE
