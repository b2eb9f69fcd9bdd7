// Products of every backend: against the reference's, and of several targets.
#include <cmath>
#include <memory>

#include "tests/kernels/matmul/matmul_testing.h"

namespace aerie::kernels::matmul_test {

using MatmulTest = IsaDTypeTest;

struct Bounds {
  double worst = 0.0;  // of the error
  double sigma = 0.0;  // its standard deviation, were roundings independent
};

// What rounding activations to 8 bits (half a step each) and sums in float may cost an output.
// `codes`: those of x, if it has them.
Bounds error_bounds(const std::vector<float>& w, const Activations& x, const RowCodes& codes,
                    int64_t row) {
  Bounds bounds;
  double magnitude = 0.0, variance = 0.0;
  for (int64_t k = 0; k < x.k; ++k) {
    const double weight = double{w[static_cast<size_t>(k)]};
    magnitude += std::fabs(weight * double{x.row(row)[k]});
    if (!x.has_int8) continue;
    const int64_t group = (row * x.k + k) / kActivationGroup;
    const double step = double{codes.scales[static_cast<size_t>(group)]};
    bounds.worst += 0.5 * step * std::fabs(weight);
    variance += step * step * weight * weight / 12.0;
  }
  const double rounding = 0x1.0p-23 * magnitude;
  bounds.worst = bounds.worst * 1.001 + rounding * static_cast<double>(x.k);
  bounds.sigma = std::sqrt(variance) + rounding;
  return bounds;
}

void expect_close(const Weights& w, const Activations& x, const std::vector<float>& y,
                  const std::vector<float>& expected) {
  std::vector<float> weights(static_cast<size_t>(w.k));
  const RowCodes codes = x.has_int8 ? read_codes(x) : RowCodes();
  for (int64_t n = 0; n < w.n; ++n) {
    dequantize(w.dtype, w.view().row(n), w.k, weights.data());
    for (int64_t r = 0; r < x.rows; ++r) {
      const auto i = static_cast<size_t>(r * w.n + n);
      const Bounds bounds = error_bounds(weights, x, codes, r);
      const double error = std::fabs(double{y[i]} - double{expected[i]});
      ASSERT_LE(error, bounds.worst) << "output " << n << " row " << r;
      ASSERT_LE(error, 7.0 * bounds.sigma) << "output " << n << " row " << r;
    }
  }
}

TEST_P(MatmulTest, NearTheReference) {
  const DType dtype = std::get<1>(GetParam());
  const Backend& reference = *aerie::kernels::backend(Isa::kReference);
  Random random(10);
  for (const int64_t k : lengths_for(dtype)) {
    for (const int64_t n : test::sampled({1, 17, 192}, 1)) {
      for (const int64_t rows : test::sampled({1, 5, 19}, 2)) {
        const Weights w = plausible_weights(dtype, n, k, random);
        const std::vector<float> values = uniform_floats(random, rows * k, -2.0f, 2.0f);
        const Activations x = activations_of(backend(), values, k, backend().wants_int8(dtype));
        const std::vector<float> y = product(backend(), 2, pack(backend(), w), x);
        expect_close(w, x, y, product(reference, 1, pack(reference, w), x));
        if (HasFatalFailure()) FAIL() << "k " << k << " n " << n << " rows " << rows;
      }
    }
  }
}

// The reference itself, in double.
TEST_P(MatmulTest, NearADoubleSum) {
  const DType dtype = std::get<1>(GetParam());
  Random random(11);
  const int64_t k = dtype_info(dtype).block_elements == 1 ? 100 : 512, n = 33, rows = 18;
  const Weights w = plausible_weights(dtype, n, k, random);
  const Activations x = activations_of(backend(), uniform_floats(random, rows * k, -1.0f, 1.0f), k,
                                       backend().wants_int8(dtype));
  std::vector<float> expected;
  std::vector<float> weights(static_cast<size_t>(n * k));
  dequantize(dtype, w.bytes.data(), n * k, weights.data());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < n; ++i) {
      double sum = 0.0;
      for (int64_t j = 0; j < k; ++j) {
        sum += double{x.row(r)[j]} * double{weights[static_cast<size_t>(i * k + j)]};
      }
      expected.push_back(static_cast<float>(sum));
    }
  }
  expect_close(w, x, product(backend(), 1, pack(backend(), w), x), expected);
}

TEST_P(MatmulTest, SeveralTargetsAreSeparateProducts) {
  const DType dtype = std::get<1>(GetParam());
  const std::vector<DType> dtypes = {dtype, DType::kQ8_0, DType::kF16, dtype};
  const std::vector<int64_t> widths = {33, 5, 64, 1};
  Random random(12);
  const int64_t k = 256, rows = 6;
  const Activations x =
      activations_of(backend(), uniform_floats(random, rows * k, -1.0f, 1.0f), k, true);
  for (const int threads : test::sampled(kThreadCounts, 2)) {
    std::vector<PackedMatrix> packed;
    std::vector<std::unique_ptr<MatmulOutput>> together, apart;
    for (size_t i = 0; i < widths.size(); ++i) {
      packed.push_back(pack(backend(), random_weights(dtypes[i], widths[i], k, random)));
      for (auto* outputs : {&together, &apart}) {
        Random same(13 + i);
        outputs->push_back(std::make_unique<MatmulOutput>(rows, widths[i], 7));
        outputs->back()->randomize(same);
      }
    }
    std::vector<MatmulTarget> targets;
    for (size_t i = 0; i < widths.size(); ++i) {
      targets.push_back(together[i]->target(packed[i], i % 2 == 1));
      const MatmulTarget alone = apart[i]->target(packed[i], i % 2 == 1);
      backend().matmul(pool_of(1), x, {&alone, 1});
    }
    backend().matmul(pool_of(threads), x, targets);
    for (size_t i = 0; i < widths.size(); ++i) {
      EXPECT_TRUE(same_bits(together[i]->values(), apart[i]->values()))
          << "target " << i << " threads " << threads;
      EXPECT_TRUE(together[i]->gaps_untouched());
    }
  }
}

// y + (x w^T + bias), rounded in this order.
TEST_P(MatmulTest, BiasesAreAdded) {
  const DType dtype = std::get<1>(GetParam());
  for (const int64_t n : {1, 16, 45}) {
    for (const int64_t rows : {1, 3, 11}) {
      Random random(18);
      const PackedMatrix packed = pack(backend(), random_weights(dtype, n, 256, random));
      const Activations x =
          activations_of(backend(), uniform_floats(random, rows * 256, -1.0f, 1.0f), 256, true);
      const Fenced<float> bias(uniform_floats(random, n, -9.0f, 9.0f));
      MatmulOutput y(rows, n, 3), added(rows, n, 3);
      added.randomize(random);
      const std::vector<float> before = added.values(), plain = product(backend(), 1, packed, x);
      for (const bool accumulate : {false, true}) {
        MatmulTarget target = (accumulate ? added : y).target(packed, accumulate);
        target.bias = bias.data();
        backend().matmul(pool_of(2), x, {&target, 1});
      }
      const std::vector<float> sums = y.values(), totals = added.values();
      for (size_t i = 0; i < sums.size(); ++i) {
        const float sum = plain[i] + bias.data()[static_cast<int64_t>(i) % n];
        if (isa() == Isa::kReference) {  // adds up in double
          EXPECT_NEAR(sums[i], sum, 2e-7f * (std::fabs(plain[i]) + 9.0f));
          EXPECT_NEAR(totals[i], before[i] + sum,
                      2e-7f * (std::fabs(plain[i]) + std::fabs(before[i]) + 9.0f));
          continue;
        }
        ASSERT_EQ(sums[i], sum);
        ASSERT_EQ(totals[i], before[i] + sum);
      }
      EXPECT_TRUE(y.gaps_untouched() && added.gaps_untouched());
    }
  }
}

// What was summed up is multiplied once, before the bias: y = factor (x w^T) + bias.
TEST_P(MatmulTest, FactorOfTheMatrix) {
  const DType dtype = std::get<1>(GetParam());
  Random random(16);
  PackedMatrix packed = pack(backend(), random_weights(dtype, 37, 256, random));
  const std::vector<float> bias = uniform_floats(random, 37, -9.0f, 9.0f);
  for (const int64_t rows : {1, 5, 20}) {
    const Activations x =
        random_activations(backend(), rows, 256, backend().wants_int8(dtype), random);
    packed.factor = 1.0f;
    const std::vector<float> plain = product(backend(), 1, packed, x);
    packed.factor = 0.37f;
    MatmulOutput y(rows, 37, 2);
    MatmulTarget target = y.target(packed);
    target.bias = bias.data();
    backend().matmul(pool_of(2), x, {&target, 1});
    const std::vector<float> values = y.values();
    for (size_t i = 0; i < values.size(); ++i) {
      const float expected = plain[i] * 0.37f + bias[i % 37];
      if (isa() == Isa::kReference) {
        EXPECT_NEAR(values[i], expected, 2e-7f * (std::fabs(plain[i]) + 9.0f));
      } else {
        ASSERT_EQ(values[i], expected);
      }
    }
  }
}

TEST_P(MatmulTest, NoRowsWriteNothing) {
  const DType dtype = std::get<1>(GetParam());
  Random random(14);
  Activations x = random_activations(backend(), 1, 256, true, random);
  const PackedMatrix packed = pack(backend(), random_weights(dtype, 20, 256, random));
  MatmulOutput y(1, 20, 0);
  const std::vector<float> before = y.values();
  x.rows = 0;
  const MatmulTarget target = y.target(packed);
  backend().matmul(pool_of(2), x, {&target, 1});
  EXPECT_TRUE(same_bits(y.values(), before));
}

INSTANTIATE_TEST_SUITE_P(All, MatmulTest,
                         testing::Combine(testing::ValuesIn(kAllIsas),
                                          testing::ValuesIn(kAllDTypes)),
                         isa_dtype_test_name);

}  // namespace aerie::kernels::matmul_test
