// Operations on one row of activations, written over the sixteen lanes of simd_*.h.
#pragma once

#include "kernels/cpu/isa/math_impl.h"

namespace aerie::kernels::AERIE_CPU_NAMESPACE {
namespace {

// Full vectors apart from the rest, so that they need no mask.
template <typename Body>
AERIE_INLINE void for_lanes(int64_t k, const Body& body) {
  int64_t i = 0;
  for (; i + kLanes <= k; i += kLanes) body(i, kLanes);
  if (i < k) body(i, static_cast<int>(k - i));
}

// Below it 127 / x would be infinite, or x / 127 subnormal.
constexpr float kNegligible = 1e-35f;

void write_scale(const ActivationRow& row, int64_t group, float scale, int32_t first,
                 int32_t second) {
  const int32_t sums[kGroupSums] = {first, second, first + second};
  row.scales[group * row.tile_rows] = scale;
  for (int i = 0; i < kGroupSums; ++i) {
    const int64_t at = (i * (row.k / kGroup) + group) * row.tile_rows;
    row.sums[at] = -sums[i];
    row.scaled_sums[at] = scale * static_cast<float>(sums[i]);
  }
}

void quantize(const ActivationRow& row) {
  if (row.ordered != nullptr) {
    for (int64_t i = 0; i < row.k; ++i) row.ordered[i * row.ordered_rows] = row.floats[i];
  }
  if (row.codes == nullptr) return;
  for (int64_t g = 0; g < row.k / kGroup; ++g) {
    const float* x = row.floats + g * kGroup;
    int8_t* codes = row.codes + g * row.tile_rows * kGroup;
    const Floats a = load(x), b = load(x + kLanes);
    const float largest = reduce_max(max(abs(a), abs(b)));
    // 0, or NaN if a value is infinite or NaN.
    const float zero_or_nan = reduce_add(fma(a, zero(), mul(b, zero())));
    if (zero_or_nan != 0.0f || largest < kNegligible) {
      // No codes stand for such values; a scale of NaN keeps the products from looking like
      // numbers.
      store_i8(codes, set1(0));
      store_i8(codes + kLanes, set1(0));
      write_scale(row, g, zero_or_nan != 0.0f ? zero_or_nan : 0.0f, 0, 0);
      continue;
    }
    const Floats inverse = set1(127.0f / largest);
    const Ints first = to_ints(mul(a, inverse)), second = to_ints(mul(b, inverse));
    store_i8(codes, first);
    store_i8(codes + kLanes, second);
    write_scale(row, g, largest / 127.0f, reduce_add(first), reduce_add(second));
  }
}

// 1 / sqrt(mean(x^2) + eps).
float inverse_rms(const float* x, int64_t k, double eps) {
  Floats squares = zero();
  for_lanes(k, [&](int64_t i, int lanes) {
    const Floats v = load_first(x + i, lanes);
    squares = fma(v, v, squares);
  });
  const double mean = static_cast<double>(reduce_add(squares)) / static_cast<double>(k);
  return static_cast<float>(1.0 / __builtin_sqrt(mean + eps));
}

// `out` may be x.
void scale_by_weight(const float* x, float factor, const float* weight, int64_t k, float* out) {
  for_lanes(k, [&](int64_t i, int lanes) {
    const Floats v = mul(load_first(x + i, lanes), set1(factor));
    store_first(out + i, mul(v, load_first(weight + i, lanes)), lanes);
  });
}

void rms_norm(const float* x, const float* weight, double eps, const ActivationRow& out) {
  scale_by_weight(x, inverse_rms(x, out.k, eps), weight, out.k, out.floats);
  quantize(out);
}

void rms_norm_heads(float* x, int heads, int head_dim, const float* weight, double eps) {
  for (int h = 0; h < heads; ++h, x += head_dim) {
    scale_by_weight(x, inverse_rms(x, head_dim, eps), weight, head_dim, x);
  }
}

void add_rms_norm(const float* y, int64_t n, const float* weight, double eps, float* residual) {
  const Floats inverse = set1(inverse_rms(y, n, eps));
  for_lanes(n, [&](int64_t i, int lanes) {
    const Floats normed =
        mul(mul(load_first(y + i, lanes), inverse), load_first(weight + i, lanes));
    store_first(residual + i, add(load_first(residual + i, lanes), normed), lanes);
  });
}

void add_scaled(const float* x, float factor, int64_t n, float* y) {
  const Floats factors = set1(factor);
  for_lanes(n, [&](int64_t i, int lanes) {
    store_first(y + i, fma(factors, load_first(x + i, lanes), load_first(y + i, lanes)), lanes);
  });
}

void layer_norm(const float* x, const float* weight, const float* bias, double eps,
                const ActivationRow& out) {
  const auto k = static_cast<double>(out.k);
  Floats sum = zero();
  for_lanes(out.k, [&](int64_t i, int lanes) { sum = add(sum, load_first(x + i, lanes)); });
  const Floats mean = set1(static_cast<float>(static_cast<double>(reduce_add(sum)) / k));
  Floats squares = zero();
  for_lanes(out.k, [&](int64_t i, int lanes) {
    const Floats v = sub(load_first(x + i, lanes), mean);
    // Lanes past the end would count the mean.
    const Floats counted = select_first(lanes, v, zero());
    squares = fma(counted, counted, squares);
  });
  const double variance = static_cast<double>(reduce_add(squares)) / k;
  const Floats inverse = set1(static_cast<float>(1.0 / __builtin_sqrt(variance + eps)));
  for_lanes(out.k, [&](int64_t i, int lanes) {
    const Floats v = mul(sub(load_first(x + i, lanes), mean), inverse);
    const Floats shift = bias != nullptr ? load_first(bias + i, lanes) : zero();
    store_first(out.floats + i, fma(v, load_first(weight + i, lanes), shift), lanes);
  });
  quantize(out);
}

template <Activation kActivation>
void activate_floats(const float* x, const float* factor, int64_t k, float* out) {
  if (factor == nullptr) {
    for_lanes(k, [&](int64_t i, int lanes) {
      store_first(out + i, activation<kActivation>(load_first(x + i, lanes)), lanes);
    });
    return;
  }
  for_lanes(k, [&](int64_t i, int lanes) {
    const Floats active = activation<kActivation>(load_first(x + i, lanes));
    const Floats times = activated_factor<kActivation>(load_first(factor + i, lanes));
    store_first(out + i, mul(active, times), lanes);
  });
}

void activate(Activation kind, const float* x, const float* factor, const ActivationRow& out) {
  switch (kind) {
    case Activation::kSilu:
      activate_floats<Activation::kSilu>(x, factor, out.k, out.floats);
      break;
    case Activation::kGeluTanh:
      activate_floats<Activation::kGeluTanh>(x, factor, out.k, out.floats);
      break;
    case Activation::kGelu:
      activate_floats<Activation::kGelu>(x, factor, out.k, out.floats);
      break;
    case Activation::kClampedSilu:
      activate_floats<Activation::kClampedSilu>(x, factor, out.k, out.floats);
      break;
  }
  quantize(out);
}

void soft_cap(float* x, int64_t count, float cap) {
  for_lanes(count, [&](int64_t i, int lanes) {
    store_first(x + i, soft_capped(load_first(x + i, lanes), cap), lanes);
  });
}

void rope_pairs(float* x, int heads, int head_dim, int turns, const float* cos, const float* sin) {
  for (int h = 0; h < heads; ++h) {
    float* head = x + static_cast<int64_t>(h) * head_dim;
    for (int i = 0; i < turns; ++i) {
      const float a = head[2 * i], b = head[2 * i + 1];
      head[2 * i] = a * cos[i] - b * sin[i];
      head[2 * i + 1] = a * sin[i] + b * cos[i];
    }
  }
}

void rope_halves(float* x, int heads, int head_dim, int turns, const float* cos, const float* sin) {
  for (int h = 0; h < heads; ++h) {
    float* first = x + static_cast<int64_t>(h) * head_dim;
    float* second = first + turns;
    for_lanes(turns, [&](int64_t i, int lanes) {
      const Floats a = load_first(first + i, lanes), b = load_first(second + i, lanes);
      const Floats c = load_first(cos + i, lanes), s = load_first(sin + i, lanes);
      store_first(first + i, sub(mul(a, c), mul(b, s)), lanes);
      store_first(second + i, add(mul(a, s), mul(b, c)), lanes);
    });
  }
}

void rope(float* x, int heads, int head_dim, int dimensions, RopeStyle style, const float* cos,
          const float* sin) {
  const auto turn = style == RopeStyle::kPairs ? rope_pairs : rope_halves;
  turn(x, heads, head_dim, dimensions / 2, cos, sin);
}

// The best first; of equals the one that came first.
AERIE_INLINE int keep_best(float value, int32_t id, int have, int k, int32_t* ids, float* values) {
  int place = have;
  while (place > 0 && value > values[place - 1]) --place;
  if (place == k) return have;
  const int last = have < k ? have : k - 1;
  for (int i = last; i > place; --i) {
    values[i] = values[i - 1];
    ids[i] = ids[i - 1];
  }
  values[place] = value;
  ids[place] = id;
  return last + 1;
}

float top_k(const float* x, int64_t n, int k, int32_t* ids, float* values) {
  constexpr int kBlock = 4 * kLanes;
  constexpr float kLowest = -__builtin_inff();
  int have = 0;
  const auto scan = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float value = x[i] == x[i] ? x[i] : kLowest;
      if (have == k && !(value > values[k - 1])) continue;
      have = keep_best(value, static_cast<int32_t>(i), have, k, ids, values);
    }
  };
  int64_t i = 0;
  for (; i + kBlock <= n; i += kBlock) {
    const Floats first = max(load(x + i), load(x + i + kLanes));
    const Floats second = max(load(x + i + 2 * kLanes), load(x + i + 3 * kLanes));
    if (have < k || reduce_max(max(first, second)) > values[k - 1]) scan(i, i + kBlock);
  }
  scan(i, n);
  const Floats largest = set1(values[0] > kLowest ? values[0] : 0.0f);
  Floats sum = zero();
  for_lanes(n, [&](int64_t at, int lanes) {
    const Floats e = exp_nonpositive(sub(load_first(x + at, lanes), largest));
    sum = add(sum, select_first(lanes, e, zero()));
  });
  return reduce_add(sum);
}

// ---- Linear attention ----

void short_conv(const ShortConvRow& row) {
  for_lanes(row.count, [&](int64_t i, int lanes) {
    Floats sum = row.bias != nullptr ? load_first(row.bias + row.begin + i, lanes) : zero();
    for (int t = 0; t < row.taps; ++t) {
      if (row.inputs[t] == nullptr) continue;
      const Floats weight = load_first(row.weights + t * row.stride + row.begin + i, lanes);
      sum = fma(weight, load_first(row.inputs[t] + row.begin + i, lanes), sum);
    }
    store_first(row.y + i, row.silu ? activation<Activation::kSilu>(sum) : sum, lanes);
  });
}

// What the state has for keys[0] (and keys[1]), each in four sums, so that one need not wait for
// the other.
template <int kKeys>
AERIE_INLINE void read_state(const float* state, const float* const* keys, int key_dim,
                             Floats* out) {
  Floats sums[kKeys][4];
  for (auto& of_key : sums) {
    for (Floats& sum : of_key) sum = zero();
  }
  for (int i = 0; i < key_dim; i += 4) {
    for (int j = 0; j < 4; ++j) {
      const Floats at = load(state + (i + j) * kLanes);
      for (int n = 0; n < kKeys; ++n) sums[n][j] = fma(at, set1(keys[n][i + j]), sums[n][j]);
    }
  }
  for (int n = 0; n < kKeys; ++n) {
    out[n] = add(add(sums[n][0], sums[n][1]), add(sums[n][2], sums[n][3]));
  }
}

void delta_row(const DeltaRow& row) {
  Floats products = zero();
  for (int i = 0; i < row.key_dim; i += kLanes) {
    products = fma(load(row.key + i), load(row.query + i), products);
  }
  const Floats decay = set1(row.decay);
  const float* const keys[] = {row.key, row.query};
  Floats reads[2] = {zero(), zero()};
  if (!row.subtract) {
    read_state<1>(row.state, keys + 1, row.key_dim, reads + 1);
  } else if constexpr (kSumsTogether >= 8) {
    read_state<2>(row.state, keys, row.key_dim, reads);
  } else {
    read_state<1>(row.state, keys, row.key_dim, reads);
    read_state<1>(row.state, keys + 1, row.key_dim, reads + 1);
  }
  Floats rest = load(row.value);
  if (row.subtract) rest = sub(rest, mul(decay, reads[0]));
  const Floats change = mul(set1(row.beta), rest);
  store(row.change, change);
  store(row.out, fma(set1(reduce_add(products)), change, mul(decay, reads[1])));
}

void advance_state(const float* from, int key_dim, float decay, const float* key,
                   const float* change, float* to) {
  const Floats decays = set1(decay), changes = load(change);
  for (int i = 0; i < key_dim; ++i) {
    store(to + i * kLanes, fma(set1(key[i]), changes, mul(decays, load(from + i * kLanes))));
  }
}

}  // namespace
}  // namespace aerie::kernels::AERIE_CPU_NAMESPACE
