// The tensor cores' product: where each lane has its numbers, and the sums, bit for bit, as
// integers give them.
#include <cmath>
#include <random>

#include "kernels/simt/tensor_core.h"
#include "tests/kernels/simt/simt_testing.h"

namespace aerie::tensor_core_test {

using simt_testing::Numbers;
using simt_testing::Stream;

constexpr int kM = 16, kN = 8, kK = 16;

// Matrices as they lie in memory, row by row; b by columns.
struct Matrices {
  uint16_t a[kM][kK], b[kN][kK];
  float d[kM][kN];
};

struct Format {
  bool binary16;
  int fraction_bits, bias, top;
};
constexpr Format kBFloat16{false, 7, 127, 255}, kBinary16{true, 10, 15, 31};

__int128 shifted(__int128 size, int left) {  // towards 0
  if (left >= 0) return size << left;
  return left < -120 ? 0 : size >> -left;
}

struct Term {
  __int128 size = 0;  // in units of 2^unit
  int unit = 0;
  int exponent = 0;  // that it is aligned by
  bool negative = false;
};

// The product of a number of each matrix.
Term product(const Format& f, uint16_t x, uint16_t y) {
  Term term;
  term.size = 1;
  term.negative = ((x ^ y) & 0x8000) != 0;
  for (const int h : {x, y}) {
    const int field = h >> f.fraction_bits & f.top;
    const int fraction = h & ((1 << f.fraction_bits) - 1);
    term.size *= field == 0 ? fraction : fraction + (1 << f.fraction_bits);
    term.exponent += (field == 0 ? 1 : field) - f.bias;
    term.unit += (field == 0 ? 1 : field) - f.bias - f.fraction_bits;
  }
  return term;
}

Term addend(float c) {
  const uint32_t u = simt::bits_of(c);
  const int field = static_cast<int>(u >> 23 & 255);
  const int fraction = static_cast<int>(u & 0x7fffff);
  const int exponent = (field == 0 ? 1 : field) - 127;
  return {field == 0 ? fraction : fraction + 0x800000, exponent - 23, exponent, u >> 31 != 0};
}

// The exact sum of whole units, cut to binary32.
float cut(__int128 sum, int unit) {
  if (sum == 0) return 0.0f;
  const uint32_t sign = sum < 0 ? 0x80000000u : 0;
  __int128 size = sum < 0 ? -sum : sum;
  while (size >= 1 << 24 || unit < -149) {
    size >>= 1;
    ++unit;
  }
  while (size < 1 << 23 && unit > -149) {
    size <<= 1;
    --unit;
  }
  const int field = size < 1 << 23 ? 0 : unit + 150;
  if (field > 254) return simt::float_of(sign | 0x7f800000u);
  return simt::float_of(sign | static_cast<uint32_t>(field) << 23 |
                        (static_cast<uint32_t>(size) & 0x7fffff));
}

float step(const Format& f, const simt::TensorCore& core, const uint16_t* a, const uint16_t* b,
           float c) {
  if (std::isinf(c)) return c;
  std::vector<Term> terms = {addend(c)};
  for (int k = 0; k < core.terms; ++k) terms.push_back(product(f, a[k], b[k]));
  int largest = -100000;
  for (const Term& term : terms) {
    if (term.size != 0) largest = std::max(largest, term.exponent);
  }
  const int unit = largest - core.fraction;
  __int128 sum = 0;
  for (const Term& term : terms) {
    if (term.size == 0) continue;
    const __int128 size = shifted(term.size, term.unit - unit);
    sum += term.negative ? -size : size;
  }
  return cut(sum, unit);
}

void multiply(const Format& f, const simt::TensorCore& core, Matrices& m) {
  for (int row = 0; row < kM; ++row) {
    for (int column = 0; column < kN; ++column) {
      for (int k = 0; k < kK; k += core.terms) {
        m.d[row][column] = step(f, core, m.a[row] + k, m.b[column] + k, m.d[row][column]);
      }
    }
  }
}

// Each lane's part as the PTX manual draws it for m16n8k16.
template <bool kBinary16>
__global__ void multiply_kernel(Matrices* matrices) {
  Matrices& m = matrices[blockIdx.x];
  const int lane = static_cast<int>(threadIdx.x), group = lane / 4, place = lane % 4 * 2;
  const auto pair = [](const uint16_t* two) {
    return two[0] | static_cast<uint32_t>(two[1]) << 16;
  };
  const uint32_t a[4] = {pair(&m.a[group][place]), pair(&m.a[group + 8][place]),
                         pair(&m.a[group][place + 8]), pair(&m.a[group + 8][place + 8])};
  const uint32_t b[2] = {pair(&m.b[group][place]), pair(&m.b[group][place + 8])};
  float* upper = &m.d[group][place];
  float* lower = &m.d[group + 8][place];
  float d[4] = {upper[0], upper[1], lower[0], lower[1]};
  if constexpr (kBinary16) {
    simt::mma_f16(d, a, b);
  } else {
    simt::mma_bf16(d, a, b);
  }
  upper[0] = d[0];
  upper[1] = d[1];
  lower[0] = d[2];
  lower[1] = d[3];
}

void compare(const Format& f, std::vector<Matrices> matrices) {
  const Stream stream;
  for (const simt::TensorCore& core : {simt::kHopper, simt::kAmpere}) {
    simt::set_tensor_core(core);
    const Numbers<Matrices> numbers(stream, matrices);
    EXPECT_CUDA(simt::launch(f.binary16 ? multiply_kernel<true> : multiply_kernel<false>,
                             {.grid = static_cast<unsigned>(matrices.size())}, stream,
                             numbers.data()));
    const auto got = numbers.read();
    for (size_t i = 0; i < matrices.size(); ++i) {
      Matrices expected = matrices[i];
      multiply(f, core, expected);
      for (int e = 0; e < kM * kN; ++e) {
        const float d = got[i].d[e / kN][e % kN], right = expected.d[e / kN][e % kN];
        ASSERT_EQ(simt::bits_of(d), simt::bits_of(right))
            << "matrix " << i << ", element " << e << ": " << d << " for " << right << ", "
            << core.terms << " terms";
      }
    }
  }
}

// Finite numbers whose exponents have so many values below the top one.
std::vector<Matrices> random_matrices(const Format& f, int exponents, int top, int count) {
  std::mt19937 random(static_cast<unsigned>(exponents * 1000 + top));
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  std::vector<Matrices> matrices(static_cast<size_t>(count));
  for (Matrices& m : matrices) {
    const auto number = [&](uint16_t& h) {
      const int field = std::max(top - below(exponents), 0);
      h = static_cast<uint16_t>(below(2) << 15 | field << f.fraction_bits |
                                below(1 << f.fraction_bits));
      if (below(16) == 0) h &= 0x8000;
    };
    for (auto& row : m.a) {
      for (uint16_t& h : row) number(h);
    }
    for (auto& column : m.b) {
      for (uint16_t& h : column) number(h);
    }
    const int middle = std::clamp(2 * (top - exponents / 2 - f.bias) + 127, 1, 254);
    for (auto& row : m.d) {
      for (float& d : row) {
        const int field = std::clamp(middle + below(2 * exponents + 40) - exponents - 20, 0, 254);
        d = simt::float_of((random() & 0x807fffffu) | static_cast<uint32_t>(field) << 23);
        if (below(8) == 0) d = 0;
      }
    }
  }
  return matrices;
}

TEST(TensorCore, SumsOfBFloat16) {
  compare(kBFloat16, random_matrices(kBFloat16, 3, 128, 40));    // all of a size
  compare(kBFloat16, random_matrices(kBFloat16, 16, 132, 40));   // much is cut
  compare(kBFloat16, random_matrices(kBFloat16, 255, 254, 40));  // anything
  compare(kBFloat16, random_matrices(kBFloat16, 60, 70, 40));    // sums that are subnormal
  compare(kBFloat16, random_matrices(kBFloat16, 5, 3, 10));      // numbers that are
  compare(kBFloat16, random_matrices(kBFloat16, 10, 194, 40));   // sums up to infinity
}

TEST(TensorCore, SumsOfBinary16) {
  compare(kBinary16, random_matrices(kBinary16, 3, 16, 40));
  compare(kBinary16, random_matrices(kBinary16, 31, 30, 60));
  compare(kBinary16, random_matrices(kBinary16, 4, 2, 20));  // many are subnormal
}

TEST(TensorCore, NothingButZeros) {
  std::vector<Matrices> one(1);
  std::memset(one.data(), 0, sizeof(Matrices));
  one[0].d[3][3] = -0.0f;
  compare(kBFloat16, one);
  compare(kBinary16, one);
}

// Infinite numbers and NaNs spread as they do in any sum; other elements stay as they are.
TEST(TensorCore, WhatIsNotFinite) {
  const Stream stream;
  auto matrices = random_matrices(kBFloat16, 3, 128, 1);
  Matrices& m = matrices[0];
  m.a[2][5] = 0x7f80;
  for (auto& column : m.b) column[5] = 0x3f80;
  m.a[9][0] = 0x7fc0;
  m.d[4][4] = -INFINITY;
  Matrices finite = m;
  multiply(kBFloat16, simt::kHopper, finite);
  const Numbers<Matrices> numbers(stream, matrices);
  EXPECT_CUDA(simt::launch(multiply_kernel<false>, {}, stream, numbers.data()));
  const auto got = numbers.read();
  for (int row = 0; row < kM; ++row) {
    for (int column = 0; column < kN; ++column) {
      const float d = got[0].d[row][column];
      if (row == 2) {
        EXPECT_EQ(d, INFINITY);
      } else if (row == 9) {
        EXPECT_EQ(simt::bits_of(d), 0x7fffffffu);
      } else if (row == 4 && column == 4) {
        EXPECT_EQ(d, -INFINITY);
      } else {
        EXPECT_EQ(d, finite.d[row][column]);
      }
    }
  }
}

// What the models' authors found: a product that is 2^25 times smaller is lost, the others are cut.
TEST(TensorCore, Cuts) {
  std::vector<Matrices> one(1);
  std::memset(one.data(), 0, sizeof(Matrices));
  one[0].a[0][0] = one[0].b[0][0] = 0x3f80;  // 1
  one[0].a[0][1] = 0x3f80;
  one[0].b[0][1] = 0x3380;  // 2^-24
  one[0].a[0][2] = 0x3f80;
  one[0].b[0][2] = 0x3380;
  one[0].a[0][3] = 0x3f80;
  one[0].b[0][3] = 0x3300;  // 2^-25
  one[0].a[0][4] = 0x3f80;
  one[0].b[0][4] = 0x3300;
  const Stream stream;
  for (const auto& [core, expected] :
       {std::pair{simt::kHopper, 1 + 0x1p-23f}, {simt::kAmpere, 1 + 0x1p-23f}}) {
    simt::set_tensor_core(core);
    const Numbers<Matrices> numbers(stream, one);
    EXPECT_CUDA(simt::launch(multiply_kernel<false>, {}, stream, numbers.data()));
    EXPECT_EQ(numbers.read()[0].d[0][0], expected);
  }
  // With two more of 2^-25 there is one more unit in the last place, where 25 bits are kept.
  one[0].a[0][5] = one[0].a[0][6] = 0x3f80;
  one[0].b[0][5] = one[0].b[0][6] = 0x3300;
  for (const auto& [core, expected] :
       {std::pair{simt::kHopper, 1 + 0x1p-22f}, {simt::kAmpere, 1 + 0x1p-23f}}) {
    simt::set_tensor_core(core);
    const Numbers<Matrices> numbers(stream, one);
    EXPECT_CUDA(simt::launch(multiply_kernel<false>, {}, stream, numbers.data()));
    EXPECT_EQ(numbers.read()[0].d[0][0], expected);
  }
}

}  // namespace aerie::tensor_core_test
