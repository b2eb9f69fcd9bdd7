// Activations in groups, each for matrices of its own: bit for bit what a group alone gives.
#include <algorithm>

#include "tests/kernels/matmul/matmul_testing.h"

namespace aerie::kernels::groups_test {

constexpr int64_t kSource = 23;  // rows that the groups are made of
constexpr int64_t kOutputs = 37;

using GroupsTest = IsaDTypeTest;

void prepare(Activations& x, const Backend& on, DType type, int64_t rows, int64_t k) {
  x.k = k;
  x.rows = rows;
  x.has_int8 = on.wants_int8(type);
  x.has_ordered = !x.has_int8;
}

TEST_P(GroupsTest, AreWhatEachIsAlone) {
  const DType type = std::get<1>(GetParam());
  const Backend& on = backend();
  Random random(71);
  const int64_t k = 512;
  const std::vector<float> source = uniform_floats(random, kSource * k, -2.0f, 2.0f);
  // Tiles of every size, more rows than a tile has, and a row that is in several groups.
  const int64_t sizes[] = {1, 3, 17, 8, 1, 40, 9};
  std::vector<RowGroup> groups;
  std::vector<int32_t> from;
  std::vector<PackedMatrix> matrices;
  for (const int64_t size : sizes) {
    groups.push_back({static_cast<int64_t>(from.size()), size});
    for (int64_t i = 0; i < size; ++i) from.push_back(static_cast<int32_t>(random.below(kSource)));
    matrices.push_back(pack(on, plausible_weights(type, kOutputs, k, random)));
  }
  const auto rows = static_cast<int64_t>(from.size());
  for (const int threads : test::sampled({1, 2, 3}, 1)) {
    Activations x = *Activations::allocate(rows, k);
    prepare(x, on, type, rows, k);
    x.groups = groups;
    on.gather(pool_of(threads), source.data(), from, x);
    std::vector<float> y(static_cast<size_t>(rows * kOutputs), -1.0f);
    std::vector<MatmulTarget> targets;
    for (size_t g = 0; g < groups.size(); ++g) {
      targets.push_back({&matrices[g], y.data() + groups[g].begin * kOutputs, kOutputs});
      targets.back().group = g;
    }
    on.matmul(pool_of(threads), x, targets);
    for (size_t g = 0; g < groups.size(); ++g) {
      Activations alone = *Activations::allocate(groups[g].rows, k);
      prepare(alone, on, type, groups[g].rows, k);
      on.gather(pool_of(1), source.data(),
                std::span(from).subspan(static_cast<size_t>(groups[g].begin),
                                        static_cast<size_t>(groups[g].rows)),
                alone);
      const std::vector<float> expected = product(on, 1, matrices[g], alone);
      EXPECT_TRUE(
          std::equal(expected.begin(), expected.end(), y.begin() + groups[g].begin * kOutputs))
          << "group " << g << " of " << groups[g].rows << " rows, " << threads << " threads";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GroupsTest,
                         testing::Combine(testing::ValuesIn(kAllIsas),
                                          testing::ValuesIn(kAllDTypes)),
                         isa_dtype_test_name);

using AddWeightedTest = IsaTest;

TEST_P(AddWeightedTest, AddsInOrder) {
  Random random(72);
  constexpr int64_t kRows = 5, kCount = 3, kFrom = 11;
  for (const int64_t n : {1, 16, 37, 576}) {
    const std::vector<float> x = uniform_floats(random, kFrom * n, -2.0f, 2.0f);
    const std::vector<float> weights = uniform_floats(random, kRows * kCount, 0.0f, 1.0f);
    const std::vector<float> before = uniform_floats(random, kRows * n, -1.0f, 1.0f);
    std::vector<int32_t> from;
    for (int64_t i = 0; i < kRows * kCount; ++i) {
      from.push_back(static_cast<int32_t>(random.below(kFrom)));
    }
    std::vector<float> first;
    for (const int threads : {1, 3}) {
      Fenced<float> y(before);
      backend().add_weighted(pool_of(threads), x.data(), from, weights.data(), kRows, kCount, n,
                             y.data());
      for (int64_t i = 0; i < kRows * n; ++i) {
        auto sum = double{before[static_cast<size_t>(i)]};
        for (int64_t c = 0; c < kCount; ++c) {
          const auto pair = static_cast<size_t>(i / n * kCount + c);
          sum += double{weights[pair]} * double{x[static_cast<size_t>(from[pair] * n + i % n)]};
        }
        EXPECT_NEAR(double{y.data()[i]}, sum, 1e-6);
      }
      const std::vector<float> now(y.data(), y.data() + kRows * n);
      if (!first.empty()) {
        EXPECT_EQ(now, first) << threads << " threads";
      }
      first = now;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, AddWeightedTest, testing::ValuesIn(kAllIsas), isa_test_name);

}  // namespace aerie::kernels::groups_test
