#include "tests/kernels/matmul/matmul_testing.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "tensor/grids.h"

namespace aerie::kernels {
namespace {

constexpr float kGapValue = -12345.678f;

float half_at(const uint8_t* p) {
  return f16_to_f32(static_cast<uint16_t>(p[0] | p[1] << 8));
}

int signed_byte(uint8_t byte) {
  return byte < 128 ? byte : byte - 256;
}

// Element i of a block of 32 whose low four bits lie at `qs` and whose fifth, if any, at `qh`.
int small_code(const uint8_t* qs, const uint8_t* qh, int i) {
  int code = i < 16 ? qs[i] & 15 : qs[i - 16] >> 4;
  if (qh != nullptr && (qh[i / 8] >> (i % 8) & 1) != 0) code += 16;
  return code;
}

constexpr int kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                1,    13,   25,  38,  53,  69,  89,  113};
constexpr int kDoubledFp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Of doubled values.
float mxfp4_scale(uint8_t exponent) {
  return exponent == 255 ? std::nanf("") : std::ldexp(0.5f, exponent - 127);
}

WeightGroup small_group(DType dtype, const uint8_t* b) {
  WeightGroup g;
  g.d = dtype == DType::kMXFP4 ? mxfp4_scale(b[0]) : half_at(b);
  g.has_min = dtype == DType::kQ4_1 || dtype == DType::kQ5_1;
  if (g.has_min) g.m = half_at(b + 2);
  for (int i = 0; i < kActivationGroup; ++i) {
    switch (dtype) {
      case DType::kQ4_0:
        g.codes[i] = small_code(b + 2, nullptr, i) - 8;
        break;
      case DType::kQ4_1:
        g.codes[i] = small_code(b + 4, nullptr, i);
        break;
      case DType::kQ5_0:
        g.codes[i] = small_code(b + 6, b + 2, i) - 16;
        break;
      case DType::kQ5_1:
        g.codes[i] = small_code(b + 8, b + 4, i);
        break;
      case DType::kIQ4_NL:
        g.codes[i] = kIq4Values[small_code(b + 2, nullptr, i)];
        break;
      case DType::kMXFP4:
        g.codes[i] = kDoubledFp4Values[small_code(b + 1, nullptr, i)];
        break;
      default:
        g.codes[i] = static_cast<int8_t>(b[2 + i]);
        break;
    }
  }
  return g;
}

// Sub-block j of Q4_K or Q5_K: its scale goes into d before anything is multiplied.
WeightGroup affine_super_group(DType dtype, const uint8_t* b, int j) {
  const uint8_t* packed = b + 4;
  const int scale = j < 4 ? packed[j] & 63 : (packed[j + 4] & 15) + (packed[j - 4] >> 6) * 16;
  const int min = j < 4 ? packed[j + 4] & 63 : (packed[j + 4] >> 4) + (packed[j] >> 6) * 16;
  WeightGroup g;
  g.d = half_at(b) * static_cast<float>(scale);
  g.m = (0.0f - half_at(b + 2)) * static_cast<float>(min);
  g.has_min = true;
  const uint8_t* qs = b + (dtype == DType::kQ4_K ? 16 : 48) + j / 2 * 32;
  for (int l = 0; l < kActivationGroup; ++l) {
    g.codes[l] = j % 2 == 0 ? qs[l] & 15 : qs[l] >> 4;
    if (dtype == DType::kQ5_K && (b[16 + l] >> j & 1) != 0) g.codes[l] += 16;
  }
  return g;
}

WeightGroup q2_group(const uint8_t* b, int j) {
  WeightGroup g;
  g.d = half_at(b + 80);
  g.has_halves = true;
  g.m = 0.0f - half_at(b + 82);
  g.has_min = true;
  for (int l = 0; l < kActivationGroup; ++l) {
    g.codes[l] = b[16 + j / 4 * 32 + l] >> (j % 4 * 2) & 3;
  }
  for (int h = 0; h < 2; ++h) {
    g.sub[h] = b[2 * j + h] & 15;
    g.min[h] = b[2 * j + h] >> 4;
  }
  return g;
}

WeightGroup q3_group(const uint8_t* b, int j) {
  WeightGroup g;
  g.d = half_at(b + 108);
  g.has_halves = true;
  for (int l = 0; l < kActivationGroup; ++l) {
    g.codes[l] = (b[32 + j / 4 * 32 + l] >> (j % 4 * 2) & 3) - ((b[l] >> j & 1) != 0 ? 0 : 4);
  }
  const uint8_t* s = b + 96;
  for (int h = 0; h < 2; ++h) {
    const int i = 2 * j + h;
    const int low = i < 8 ? s[i] & 15 : s[i - 8] >> 4;
    g.sub[h] = low + 16 * (s[8 + i % 4] >> (i / 4 * 2) & 3) - 32;
  }
  return g;
}

// The scale goes into d, as in Q4_K.
WeightGroup iq4_xs_group(const uint8_t* b, int j) {
  WeightGroup g;
  const int high = b[2 + j / 4] >> (j % 4 * 2) & 3;
  const int scale = (b[4 + j / 2] >> (j % 2 * 4) & 15) + 16 * high - 32;
  g.d = half_at(b) * static_cast<float>(scale);
  for (int l = 0; l < kActivationGroup; ++l) {
    g.codes[l] = kIq4Values[small_code(b + 8 + 16 * j, nullptr, l)];
  }
  return g;
}

WeightGroup q6_group(const uint8_t* b, int j) {
  WeightGroup g;
  g.d = half_at(b + 208);
  g.has_halves = true;
  for (int l = 0; l < kActivationGroup; ++l) {
    const uint8_t low = b[j / 4 * 64 + j % 2 * 32 + l];
    const uint8_t high = b[128 + j / 4 * 32 + l];
    g.codes[l] = (j % 4 < 2 ? low & 15 : low >> 4) + (high >> (j % 4 * 2) & 3) * 16 - 32;
  }
  for (int h = 0; h < 2; ++h) g.sub[h] = signed_byte(b[192 + 2 * j + h]);
  return g;
}

unsigned read_bytes(const uint8_t* p, int count) {
  unsigned number = 0;
  while (count-- > 0) number = number * 256 + p[count];
  return number;
}

// Of the formats with grids: which point weight i of group j belongs to, its sign, and the nibble
// of its scale.
struct GridPlace {
  unsigned point = 0;
  bool negative = false;
  unsigned scale = 0;
};

// Seven signs that are followed by the one that makes the number of negative ones even.
bool even_sign(unsigned seven, int i) {
  return i < 7 ? (seven >> i & 1) != 0 : __builtin_parity(seven) != 0;
}

GridPlace iq2_place(DType dtype, const uint8_t* b, int j, int i) {
  if (dtype == DType::kIQ2_XXS) {
    const unsigned rest = read_bytes(b + 2 + 8 * j + 4, 4);
    return {b[2 + 8 * j + i / 8], even_sign(rest >> (i / 8 * 7) & 127, i % 8), rest >> 28};
  }
  const unsigned nibbles = b[(dtype == DType::kIQ2_XS ? 66 : 74) + j];
  const unsigned scale = i < 16 ? nibbles & 15 : nibbles >> 4;
  if (dtype == DType::kIQ2_XS) {
    const unsigned both = read_bytes(b + 2 + 8 * j + i / 8 * 2, 2);
    return {both & 511, even_sign(both >> 9, i % 8), scale};
  }
  const unsigned high = b[66 + j] >> (i / 8 * 2) & 3;
  return {b[2 + 4 * j + i / 8] + 256 * high, (b[34 + 4 * j + i / 8] >> (i % 8) & 1) != 0, scale};
}

GridPlace iq3_place(DType dtype, const uint8_t* b, int j, int i) {
  const unsigned low = b[2 + 8 * j + i / 4];
  if (dtype == DType::kIQ3_XXS) {
    const unsigned rest = read_bytes(b + 66 + 4 * j, 4);
    return {low, even_sign(rest >> (i / 8 * 7) & 127, i % 8), rest >> 28};
  }
  const unsigned high = b[66 + j] >> (i / 4) & 1;
  return {low + 256 * high, (b[74 + 4 * j + i / 8] >> (i % 8) & 1) != 0,
          b[106 + j / 2] >> (j % 2 * 4) & 15u};
}

constexpr int kIq2Magnitudes[3] = {8, 25, 43};
constexpr int kIq3XxsMagnitudes[8] = {4, 12, 20, 28, 36, 44, 52, 62};

// The points themselves are the engine's: golden values hold it to them.
int grid_magnitude(DType dtype, unsigned point, int i) {
  switch (dtype) {
    case DType::kIQ2_XXS:
      return kIq2Magnitudes[kIq2XxsGrid.at(point) >> (8 * (i % 8)) & 255];
    case DType::kIQ2_XS:
      return kIq2Magnitudes[kIq2XsGrid.at(point) >> (8 * (i % 8)) & 255];
    case DType::kIQ2_S:
      return kIq2Magnitudes[kIq2SGrid.at(point) >> (8 * (i % 8)) & 255];
    case DType::kIQ3_XXS:
      return kIq3XxsMagnitudes[kIq3XxsGrid.at(point) >> (8 * (i % 4)) & 255];
    default:
      return 2 * static_cast<int>(kIq3SGrid.at(point) >> (8 * (i % 4)) & 255) + 1;
  }
}

// A scale goes with each half, in units that make them integers: 2^-10.
WeightGroup nvfp4_group(const uint8_t* b, int j) {
  WeightGroup g;
  g.d = 0x1.0p-10f;
  g.has_halves = true;
  for (int h = 0; h < 2; ++h) {
    const int bits = b[2 * j + h] & 127, exponent = bits >> 3, mantissa = bits & 7;
    g.sub[h] = exponent == 0 ? mantissa : (8 + mantissa) << (exponent - 1);
    if (b[2 * j + h] == 127) g.sub[h] = 0;
    for (int i = 0; i < 16; ++i) {
      const uint8_t pair = b[4 + 16 * j + 8 * h + i % 8];
      g.codes[16 * h + i] = kDoubledFp4Values[i < 8 ? pair & 15 : pair >> 4];
    }
  }
  return g;
}

bool has_grid(DType dtype) {
  return dtype == DType::kIQ2_XXS || dtype == DType::kIQ2_XS || dtype == DType::kIQ2_S ||
         dtype == DType::kIQ3_XXS || dtype == DType::kIQ3_S;
}

WeightGroup grid_group(DType dtype, const uint8_t* b, int j) {
  const bool iq3 = dtype == DType::kIQ3_XXS || dtype == DType::kIQ3_S;
  WeightGroup g;
  g.has_halves = dtype == DType::kIQ2_XS || dtype == DType::kIQ2_S;
  g.d = half_at(b) / (dtype == DType::kIQ3_S ? 1.0f : iq3 ? 4.0f : 8.0f);
  for (int i = 0; i < kActivationGroup; ++i) {
    const GridPlace at = iq3 ? iq3_place(dtype, b, j, i) : iq2_place(dtype, b, j, i);
    const int magnitude = grid_magnitude(dtype, at.point, i);
    g.codes[i] = at.negative ? -magnitude : magnitude;
    g.sub[i / 16] = 2 * static_cast<int>(at.scale) + 1;
  }
  // One scale goes into d, as in Q4_K.
  if (!g.has_halves) {
    g.d *= static_cast<float>(g.sub[0]);
    g.sub[0] = g.sub[1] = 1;
  }
  return g;
}

WeightGroup super_group(DType dtype, const uint8_t* b, int j) {
  if (has_grid(dtype)) return grid_group(dtype, b, j);
  if (dtype == DType::kNVFP4) return nvfp4_group(b, j);
  switch (dtype) {
    case DType::kQ2_K:
      return q2_group(b, j);
    case DType::kQ3_K:
      return q3_group(b, j);
    case DType::kQ6_K:
      return q6_group(b, j);
    case DType::kIQ4_XS:
      return iq4_xs_group(b, j);
    default:
      return affine_super_group(dtype, b, j);
  }
}

float float_at(DType dtype, const std::byte* p) {
  float value;
  dequantize(dtype, p, 1, &value);
  return value;
}

float float_product(const std::vector<float>& w, const float* x) {
  float sum = 0.0f;
  for (size_t k = 0; k < w.size(); ++k) sum = std::fma(x[k], w[k], sum);
  return sum;
}

float group_product(const std::vector<WeightGroup>& groups, const int8_t* x, const float* scales) {
  float acc = 0.0f;
  for (size_t g = 0; g < groups.size(); ++g) {
    const WeightGroup& w = groups[g];
    const int parts = w.has_halves ? 2 : 1;
    for (int part = 0; part < parts; ++part) {
      int dot = 0, sum = 0;
      for (int i = part * 16; i < kActivationGroup / parts * (part + 1); ++i) {
        dot += w.codes[i] * x[i];
        sum += x[i];
      }
      const float d = w.d * static_cast<float>(w.sub[part]);
      acc = std::fma(static_cast<float>(dot), d * scales[g], acc);
      const float m = w.m * static_cast<float>(w.min[part]);
      if (w.has_min) acc = std::fma(m, scales[g] * static_cast<float>(sum), acc);
    }
    x += kActivationGroup;
  }
  return acc;
}

}  // namespace

std::vector<WeightGroup> decode_row(DType dtype, const std::byte* row, int64_t k) {
  const DTypeInfo& info = dtype_info(dtype);
  const auto* b = reinterpret_cast<const uint8_t*>(row);
  std::vector<WeightGroup> groups;
  for (int64_t at = 0; at < k; at += info.block_elements, b += info.block_bytes) {
    for (int j = 0; j < info.block_elements / kActivationGroup; ++j) {
      if (info.block_elements == kActivationGroup) {
        groups.push_back(small_group(dtype, b));
      } else {
        groups.push_back(super_group(dtype, b, j));
      }
    }
  }
  return groups;
}

namespace {

std::vector<float> computed_products(const Weights& w, const Activations& x, const RowCodes& rows) {
  std::vector<float> y(static_cast<size_t>(x.rows * w.n));
  const int64_t groups = w.k / kActivationGroup;
  for (int64_t n = 0; n < w.n; ++n) {
    const std::byte* row = w.view().row(n);
    std::vector<float> floats;
    std::vector<WeightGroup> decoded;
    if (is_float(w.dtype)) {
      for (int64_t k = 0; k < w.k; ++k) {
        floats.push_back(float_at(w.dtype, row + k * dtype_info(w.dtype).block_bytes));
      }
    } else {
      decoded = decode_row(w.dtype, row, w.k);
    }
    for (int64_t r = 0; r < x.rows; ++r) {
      y[static_cast<size_t>(r * w.n + n)] =
          is_float(w.dtype) ? float_product(floats, x.row(r))
                            : group_product(decoded, rows.codes.data() + r * w.k,
                                            rows.scales.data() + r * groups);
    }
  }
  return y;
}

}  // namespace

std::vector<float> exact_products(const Weights& w, const Activations& x) {
  const RowCodes rows = x.has_int8 ? read_codes(x) : RowCodes();
  uint64_t key = digest(w.bytes, static_cast<uint64_t>(w.dtype));
  if (is_float(w.dtype)) {
    const std::span values(x.row(0), static_cast<size_t>(x.rows * x.k));
    key = digest(std::as_bytes(values), key);
  } else {
    key = digest(std::as_bytes(std::span(rows.codes)), key);
    key = digest(std::as_bytes(std::span(rows.scales)), key);
  }
  static auto& known = *new std::map<std::pair<uint64_t, int64_t>, std::vector<float>>();
  std::vector<float>& y = known[{key, w.n}];
  if (y.empty()) y = computed_products(w, x, rows);
  return y;
}

MatmulOutput::MatmulOutput(int64_t rows, int64_t n, int64_t gap)
    : rows_(rows), n_(n), stride_(n + gap), y_(rows * (n + gap) - gap) {
  for (float& y : y_.span()) y = kGapValue;
}

void MatmulOutput::randomize(Random& random) {
  for (int64_t r = 0; r < rows_; ++r) {
    for (int64_t i = 0; i < n_; ++i) y_[r * stride_ + i] = random.uniform(-1.0f, 1.0f);
  }
}

std::vector<float> MatmulOutput::values() const {
  std::vector<float> values;
  for (int64_t r = 0; r < rows_; ++r) {
    const float* row = y_.data() + r * stride_;
    values.insert(values.end(), row, row + n_);
  }
  return values;
}

bool MatmulOutput::gaps_untouched() const {
  for (int64_t r = 0; r + 1 < rows_; ++r) {
    const float* row = y_.data() + r * stride_;
    if (!std::all_of(row + n_, row + stride_, [](float y) { return y == kGapValue; })) return false;
  }
  return true;
}

std::vector<float> product(const Backend& backend, int threads, const PackedMatrix& w,
                           const Activations& x) {
  MatmulOutput y(x.rows, w.n, 3);
  const MatmulTarget target = y.target(w);
  backend.matmul(pool_of(threads), x, {&target, 1});
  EXPECT_TRUE(y.gaps_untouched());
  return y.values();
}

std::vector<int64_t> lengths_for(DType dtype) {
  if (is_float(dtype)) return {1, 7, 33, 100, 576};
  if (dtype_info(dtype).block_elements == 256) return {256, 512, 768, 2048};
  if (dtype_info(dtype).block_elements == 64) return {64, 128, 192, 576, 640, 1536};
  return {32, 64, 96, 576, 640, 1536};
}

}  // namespace aerie::kernels
