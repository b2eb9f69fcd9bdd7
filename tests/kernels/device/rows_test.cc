// Operations on rows for draft heads: roundings, sums, and the best few of rows of logits. On the
// emulated device, or on the one that AERIE_TEST_DEVICE names.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/backend.h"
#include "tensor/dtype.h"
#include "tests/testing/device/device_array.h"
#include "tests/testing/device/test_device.h"

namespace aerie::device::rows_test {

using test::device_of_tests;
using test::DeviceArray;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> random_numbers(size_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  std::vector<float> values(count);
  for (float& value : values) value = normal(engine);
  return values;
}

struct Found {
  std::vector<int32_t> ids;
  std::vector<float> values;
  std::vector<double> log_sums;
};

// The k best of each of rows * each rows of n logits.
Found top(const std::vector<float>& logits, int rows, int each, int n, int k) {
  const size_t all = static_cast<size_t>(rows * each), parts = all * kBestParts;
  const DeviceArray<float> x(logits);
  const DeviceArray<int32_t> count({rows});
  const DeviceArray<float> values(std::vector<float>(parts * static_cast<size_t>(k)));
  const DeviceArray<int32_t> ids(std::vector<int32_t>(parts * static_cast<size_t>(k)));
  const DeviceArray<float> sums((std::vector<float>(parts)));
  const DeviceArray<unsigned> arrived((std::vector<unsigned>(all)));
  const int64_t width = int64_t{2} * k + 1;
  const DeviceArray<float> out(std::vector<float>(all * static_cast<size_t>(width)));
  Top args;
  args.rows = count.data();
  args.most_rows = rows + 1;  // more is launched than there is
  args.each = each;
  args.logits = x.data();
  args.stride = int64_t{n} * each;
  args.apart = n;
  args.n = n;
  args.k = k;
  args.part_values = values.data();
  args.part_ids = ids.data();
  args.part_sums = sums.data();
  args.arrived = arrived.data();
  args.out = out.data();
  args.out_stride = width * each;
  device_of_tests().top(args);
  device_of_tests().top(args);  // counters have to be zeros again
  const std::vector<float> got = out.values();
  Found found;
  for (size_t r = 0; r < all; ++r) {
    const float* row = got.data() + r * static_cast<size_t>(width);
    for (int i = 0; i < k; ++i) {
      int32_t id = 0;
      std::memcpy(&id, row + i, sizeof id);
      found.ids.push_back(id);
      found.values.push_back(row[k + i]);
    }
    found.log_sums.push_back(double{row[k]} + std::log(double{row[2 * k]}));
  }
  return found;
}

void expect_as_reference(const std::vector<float>& logits, int rows, int each, int n, int k) {
  const Found actual = top(logits, rows, each, n, k);
  const auto all = static_cast<size_t>(rows * each);
  std::vector<int32_t> ids(all * static_cast<size_t>(k));
  std::vector<float> values(ids.size()), log_sums(all);
  ThreadPool pool(1);
  kernels::backend(kernels::Isa::kReference)
      ->top_k(pool, logits.data(), n, rows * each, n, k, ids.data(), values.data(),
              log_sums.data());
  EXPECT_EQ(actual.ids, ids);
  EXPECT_EQ(actual.values, values);
  for (size_t r = 0; r < all; ++r) EXPECT_NEAR(actual.log_sums[r], log_sums[r], 2e-5) << r;
}

TEST(DeviceTop, FindsWhatTheReferenceFinds) {
  for (const int n : {1, 3, 48, 255, 256, 257, 5000, 20000}) {
    for (const int k : {1, 2, 8, 16}) {
      if (k > n) continue;
      SCOPED_TRACE(testing::Message() << n << " logits, the best " << k);
      expect_as_reference(random_numbers(static_cast<size_t>(2 * n), 7), 2, 1, n, k);
    }
  }
  expect_as_reference(random_numbers(6 * 300, 9), 2, 3, 300, 4);
}

// Of equals the first ones, wherever they are; -infinity comes last.
TEST(DeviceTop, OrdersEqualsByTheirPlace) {
  std::vector<float> logits(9000, 1.0f);
  expect_as_reference(logits, 1, 1, 9000, 16);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i % 3);
  expect_as_reference(logits, 1, 1, 9000, 16);
  std::ranges::fill(logits, -kInfinity);
  logits[8000] = 2.0f;
  logits[20] = -1.0f;
  expect_as_reference(logits, 1, 1, 9000, 5);
}

// Rows that are no numbers give ids that are there.
TEST(DeviceTop, GivesTokensOfAnyRow) {
  for (const float value : {std::nanf(""), kInfinity, -kInfinity}) {
    const Found found = top(std::vector<float>(700, value), 1, 1, 700, 6);
    for (const int32_t id : found.ids) EXPECT_TRUE(id >= 0 && id < 700) << id;
  }
  std::vector<float> one(700, std::nanf(""));
  one[650] = 1.0f;
  EXPECT_EQ(top(one, 1, 1, 700, 2).ids[0], 650);
}

TEST(DeviceRows, AreRoundedBehindTheirNorm) {
  constexpr int kWidth = 70, kStride = 80, kZeros = 58;
  const std::vector<float> x = random_numbers(3 * kStride, 1), weight = random_numbers(kWidth, 2);
  const DeviceArray<float> rows(x), weights(weight);
  const DeviceArray<int32_t> count({2}), from({2, 0});
  const DeviceArray<uint16_t> out(std::vector<uint16_t>(2 * 128, 7));
  NarrowRows args;
  args.rows = count.data();
  args.most_rows = 4;
  args.from = from.data();
  args.x = rows.data();
  args.x_stride = kStride;
  args.width = kWidth;
  args.weight = weights.data();
  args.eps = 1e-5f;
  args.out = out.data();
  args.out_stride = 128;
  args.zeros = kZeros;
  device_of_tests().narrow_rows(args);
  const std::vector<uint16_t> got = out.values();
  for (int r = 0; r < 2; ++r) {
    const float* of = x.data() + (r == 0 ? 2 : 0) * kStride;
    const double mean = std::inner_product(of, of + kWidth, of, 0.0) / kWidth;
    for (int i = 0; i < 128; ++i) {
      const double expected =
          i < kWidth ? of[i] / std::sqrt(mean + 1e-5) * weight[static_cast<size_t>(i)] : 0.0;
      const uint32_t bits = uint32_t{got[static_cast<size_t>(r * 128 + i)]} << 16;
      float actual = 0.0f;
      std::memcpy(&actual, &bits, sizeof actual);
      EXPECT_NEAR(actual, expected, std::abs(expected) * 0.005) << r << ", " << i;
    }
  }
}

TEST(DeviceRows, AreMappedAndAdded) {
  constexpr int kWidth = 300;
  const std::vector<float> x = random_numbers(2 * kWidth, 3), y = random_numbers(2 * kWidth, 4),
                           bias = random_numbers(kWidth, 5);
  const DeviceArray<float> from(x), to(y), by(bias);
  const DeviceArray<int32_t> count({1});
  MapRows args;
  args.rows = count.data();
  args.most_rows = 2;
  args.x = from.data();
  args.x_stride = kWidth;
  args.width = kWidth;
  args.bias = by.data();
  args.activates = true;
  args.glu = Glu::kSilu;
  args.factor = 0.5f;
  args.adds = true;
  args.out = to.data();
  args.out_stride = kWidth;
  device_of_tests().map_rows(args);
  const std::vector<float> got = to.values();
  for (size_t i = 0; i < kWidth; ++i) {
    const double v = double{x[i]} + bias[i];
    EXPECT_NEAR(got[i], y[i] + 0.5 * v / (1.0 + std::exp(-v)), 1e-4) << i;
    EXPECT_EQ(got[kWidth + i], y[kWidth + i]) << "a row that is not there";
  }
}

// What rows behind others are given: what those hand on, and the embedding of the token found
// first.
TEST(DeviceNextRows, GoOnWithTheBestToken) {
  constexpr int kTokens = 5, kWidth = 300, kHanded = 7, kFound = 3;
  constexpr int64_t kStride = kFound + kHanded, kOut = kHanded + kWidth + 2;
  const std::vector<int32_t> behind = {2, 0}, ids = {4, 1, 3};
  std::vector<float> found = random_numbers(3 * kStride, 5);
  for (size_t i = 0; i < ids.size(); ++i) std::memcpy(&found[i * kStride], &ids[i], sizeof(float));
  std::vector<uint16_t> table(kTokens * kWidth);
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<uint16_t>(0x3f00 + i % 251);
  const DeviceArray<int32_t> count({2}), from(behind);
  const DeviceArray<float> given(found), out(std::vector<float>(3 * kOut, -1.0f));
  const DeviceArray<uint16_t> embeddings(table);
  NextRows args;
  args.rows = count.data();
  args.most_rows = 3;  // more is launched than there is
  args.behind = from.data();
  args.found = given.data();
  args.found_stride = kStride;
  args.handed = given.data() + kFound;
  args.handed_width = kHanded;
  args.table = embeddings.data();
  args.tokens = kTokens;
  args.width = kWidth;
  args.out = out.data();
  args.out_stride = kOut;
  device_of_tests().next_rows(args);
  const std::vector<float> got = out.values();
  std::vector<float> expected(3 * kOut, -1.0f);
  for (size_t r = 0; r < behind.size(); ++r) {
    const auto at = static_cast<size_t>(behind[r]);
    std::copy_n(found.begin() + static_cast<std::ptrdiff_t>(at * kStride + kFound), kHanded,
                expected.begin() + static_cast<std::ptrdiff_t>(r * kOut));
    for (size_t i = 0; i < kWidth; ++i) {
      expected[r * kOut + kHanded + i] =
          bf16_to_f32(table[static_cast<size_t>(ids[at]) * kWidth + i]);
    }
  }
  EXPECT_EQ(got, expected);
}

}  // namespace aerie::device::rows_test
