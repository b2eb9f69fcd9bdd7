// The vector backends' products against their transcription, bit by bit.
#include "tests/kernels/matmul/matmul_testing.h"

namespace aerie::kernels::matmul_exact_test {

constexpr int64_t kWidths[] = {1, 15, 16, 17, 33, 192, 577};
constexpr int64_t kRowCounts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 15, 16, 17, 23, 32, 33, 49, 64};
constexpr int64_t kMostRows = 64;

// The transcription's own decoding, held to the one of tensor/.
class DecodingTest : public testing::TestWithParam<DType> {};

TEST_P(DecodingTest, AgreesWithDequantize) {
  Random random(1);
  const int64_t k = 2048;
  const Weights w = random_weights(GetParam(), 8, k, random);
  std::vector<float> expected(k);
  for (int64_t n = 0; n < w.n; ++n) {
    dequantize(w.dtype, w.view().row(n), k, expected.data());
    const std::vector<WeightGroup> groups = decode_row(w.dtype, w.view().row(n), k);
    ASSERT_EQ(groups.size(), static_cast<size_t>(k / kActivationGroup));
    for (size_t i = 0; i < expected.size(); ++i) {
      const WeightGroup& g = groups[i / 32];
      const size_t half = i % 32 / 16;
      const int code = g.codes[i % 32] * g.sub[half];
      const double value = double{g.d} * code + (g.has_min ? double{g.m} * g.min[half] : 0.0);
      ASSERT_EQ(static_cast<float>(value), expected[i]) << "element " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Blocks, DecodingTest, testing::ValuesIn(kBlockDTypes), dtype_test_name);

using MatmulExactTest = IsaDTypeTest;

TEST_P(MatmulExactTest, EveryShape) {
  const DType dtype = std::get<1>(GetParam());
  Random random(2 + static_cast<uint64_t>(dtype));
  int call = 0;
  for (const int64_t k : lengths_for(dtype)) {
    const Activations all = random_activations(backend(), kMostRows, k, !is_float(dtype), random);
    for (const int64_t n : test::sampled(kWidths, 2)) {
      const Weights w = random_weights(dtype, n, k, random);
      const PackedMatrix packed = pack(backend(), w);
      ASSERT_EQ(packed.n, n);
      ASSERT_EQ(packed.k, k);
      const std::vector<float> expected = exact_products(w, all);
      for (const int64_t rows : test::sampled(kRowCounts, 5)) {
        const Activations x = first_rows(all, rows);
        const std::span<const float> wanted(expected.data(), static_cast<size_t>(rows * n));
        ASSERT_TRUE(same_bits(product(backend(), kThreadCounts[++call % 4], packed, x), wanted))
            << "k " << k << " n " << n << " rows " << rows;
      }
    }
  }
}

TEST_P(MatmulExactTest, Accumulating) {
  const DType dtype = std::get<1>(GetParam());
  Random random(3 + static_cast<uint64_t>(dtype));
  const int64_t k = 512, rows = 9;
  const Activations x = random_activations(backend(), rows, k, !is_float(dtype), random);
  for (const int64_t n : kWidths) {
    const Weights w = random_weights(dtype, n, k, random);
    const PackedMatrix packed = pack(backend(), w);
    MatmulOutput y(rows, n, 4);
    y.randomize(random);
    std::vector<float> expected = exact_products(w, x);
    const std::vector<float> before = y.values();
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += before[i];
    const MatmulTarget target = y.target(packed, true);
    backend().matmul(pool_of(2), x, {&target, 1});
    EXPECT_TRUE(same_bits(y.values(), expected)) << "n " << n;
    EXPECT_TRUE(y.gaps_untouched()) << "n " << n;
  }
}

// No bytes of a block are wrong: they give some product, infinite or NaN where a scale is, and
// never touch what is beside them.
TEST_P(MatmulExactTest, AnyBytes) {
  const DType dtype = std::get<1>(GetParam());
  Random random(5 + static_cast<uint64_t>(dtype));
  const int64_t k = 512, rows = 9;
  const Activations x = random_activations(backend(), rows, k, !is_float(dtype), random);
  for (const int64_t n : {1, 16, 150}) {
    const Weights w = hostile_weights(dtype, n, k, random);
    EXPECT_TRUE(same_bits(product(backend(), 2, pack(backend(), w), x), exact_products(w, x)));
  }
}

using MatmulCodesTest = IsaDTypeTest;

// Codes of the largest magnitude everywhere: no intermediate sum may saturate.
TEST_P(MatmulCodesTest, LargestCodes) {
  const DType dtype = std::get<1>(GetParam());
  Random random(4);
  const int64_t k = 256, n = 17, count = 12;
  Activations x = random_activations(backend(), count, k, true, random);
  RowCodes rows = read_codes(x);
  // All 127, alternating, all -127, and so on.
  for (int64_t i = 0; i < count * k; ++i) {
    const int64_t kind = i / k % 3;
    rows.codes[static_cast<size_t>(i)] = kind == 0 || (kind == 1 && i % 2 == 0) ? 127 : -127;
  }
  write_codes(rows, x);
  for (const uint8_t byte : {0x00, 0x7F, 0x80, 0xFF}) {
    const Weights w = filled_weights(dtype, n, k, byte, random);
    EXPECT_TRUE(same_bits(product(backend(), 1, pack(backend(), w), x), exact_products(w, x)))
        << "bytes " << int{byte};
  }
}

INSTANTIATE_TEST_SUITE_P(Vector, MatmulCodesTest,
                         testing::Combine(testing::ValuesIn(kVectorIsas),
                                          testing::ValuesIn(kBlockDTypes)),
                         isa_dtype_test_name);

INSTANTIATE_TEST_SUITE_P(Vector, MatmulExactTest,
                         testing::Combine(testing::ValuesIn(kVectorIsas),
                                          testing::ValuesIn(kAllDTypes)),
                         isa_dtype_test_name);

}  // namespace aerie::kernels::matmul_exact_test
