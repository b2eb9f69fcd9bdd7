// The best of a row and its softmax's denominator against their definitions, computed in double.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/kernels/row_ops_testing.h"

namespace aerie::kernels::top_k_test {

using TopKTest = IsaTest;

struct Expected {
  std::vector<int32_t> indices;
  double log_sum;
};

Expected expected_of(const float* x, int64_t n, int k) {
  Expected e;
  e.indices.resize(static_cast<size_t>(n));
  std::iota(e.indices.begin(), e.indices.end(), 0);
  std::stable_sort(e.indices.begin(), e.indices.end(),
                   [&](int32_t a, int32_t b) { return x[a] > x[b]; });
  const double largest = x[e.indices[0]];
  double sum = 0.0;
  for (int64_t i = 0; i < n; ++i) sum += std::exp(double{x[i]} - largest);
  e.log_sum = largest + std::log(sum);
  e.indices.resize(static_cast<size_t>(k));
  return e;
}

TEST_P(TopKTest, IsWhatSortingGives) {
  Random random(61);
  constexpr int64_t kRows = 5;
  for (const int64_t n : {1, 5, 16, 63, 64, 65, 1000, 8192, 49152}) {
    for (const int most : {1, 3, 10, kMostTop}) {
      const int k = static_cast<int>(std::min<int64_t>(n, most));
      const int64_t stride = n + 3;
      std::vector<float> values = uniform_floats(random, (kRows - 1) * stride + n, -20.0f, 20.0f);
      // Equal ones, and a row with a peak.
      for (size_t i = 0; i < values.size(); i += 7) values[i] = std::round(values[i]);
      values[static_cast<size_t>(stride * 2 % (kRows * n))] = 90.0f;
      const Fenced<float> x(values);
      std::vector<int32_t> indices(kRows * static_cast<size_t>(k));
      std::vector<float> best(indices.size()), log_sums(kRows);
      backend().top_k(pool_of(3), x.data(), stride, kRows, n, k, indices.data(), best.data(),
                      log_sums.data());
      for (int64_t r = 0; r < kRows; ++r) {
        const float* row = x.data() + r * stride;
        const Expected e = expected_of(row, n, k);
        for (int i = 0; i < k; ++i) {
          const auto at = static_cast<size_t>(r * k + i);
          EXPECT_EQ(indices[at], e.indices[static_cast<size_t>(i)]) << n << " " << k << " " << i;
          EXPECT_EQ(best[at], row[indices[at]]);
        }
        EXPECT_NEAR(log_sums[static_cast<size_t>(r)], e.log_sum, 2e-5) << n;
      }
    }
  }
}

TEST_P(TopKTest, TokensThatCannotComeAreLast) {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  std::vector<float> x(100, kNever);
  x[70] = 1.0f;
  x[3] = 0.0f;
  int32_t indices[4];
  float values[4], log_sum;
  backend().top_k(pool_of(1), x.data(), 100, 1, 100, 4, indices, values, &log_sum);
  EXPECT_EQ(indices[0], 70);
  EXPECT_EQ(indices[1], 3);
  EXPECT_EQ(values[2], kNever);
  EXPECT_NEAR(log_sum, std::log(std::exp(1.0) + 1.0), 1e-6);
  // What is no number does no harm beyond its row.
  x[5] = std::numeric_limits<float>::quiet_NaN();
  backend().top_k(pool_of(1), x.data(), 100, 1, 100, 4, indices, values, &log_sum);
  for (const int32_t index : indices) EXPECT_TRUE(index >= 0 && index < 100);
}

INSTANTIATE_TEST_SUITE_P(All, TopKTest, testing::ValuesIn(kAllIsas), isa_test_name);

}  // namespace aerie::kernels::top_k_test
