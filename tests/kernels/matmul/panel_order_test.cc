// Whichever order a tile goes through panels in, and whoever chose it, the bits are the same.
#include "kernels/cpu/panel_order.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/isas.h"
#include "tests/kernels/matmul/matmul_testing.h"

namespace aerie::kernels::panel_order_test {

using PanelOrderTest = IsaDTypeTest;

TEST_P(PanelOrderTest, MakesNoDifference) {
  const DType dtype = std::get<1>(GetParam());
  const auto turns = make_cpu_backend(isa(), cpu_ops(isa()), PanelOrder::kTurns);
  const auto one_by_one = make_cpu_backend(isa(), cpu_ops(isa()), PanelOrder::kOneByOne);
  Random random(12);
  for (const int64_t k : lengths_for(dtype)) {
    // Panels that have others beside them, and some that are left over.
    const Weights w = plausible_weights(dtype, 117, k, random);
    for (const int64_t rows : test::sampled({1, 2, 3, 4, 5, 6, 7, 8, 9}, 2)) {
      const std::vector<float> values = uniform_floats(random, rows * k, -2.0f, 2.0f);
      const Activations x = activations_of(backend(), values, k, backend().wants_int8(dtype));
      const std::vector<float> y = product(*turns, 2, pack(*turns, w), x);
      EXPECT_TRUE(same_bits(product(*one_by_one, 2, pack(*one_by_one, w), x), y))
          << "k " << k << ", " << rows << " rows";
      EXPECT_TRUE(same_bits(y, product(backend(), 1, pack(backend(), w), x)))
          << "k " << k << ", " << rows << " rows";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Vector, PanelOrderTest,
                         testing::Combine(testing::ValuesIn(kVectorIsas),
                                          testing::ValuesIn(kBlockDTypes)),
                         isa_dtype_test_name);

using MeasuredOrderTest = BackendTest<Isa>;

TEST_P(MeasuredOrderTest, IsOneOfThem) {
  constexpr int64_t kK = 2048, kN = 4096;
  const auto measures = make_cpu_backend(isa(), cpu_ops(isa()));
  Random random(13);
  const Weights w = random_weights(DType::kQ4_0, kN, kK, random);
  const PackedMatrix packed = pack(*measures, w), plain = pack(backend(), w);
  for (const int64_t rows : PanelOrders::kMeasured) {
    const Activations x =
        activations_of(backend(), uniform_floats(random, rows * kK, -2.0f, 2.0f), kK, true);
    EXPECT_TRUE(same_bits(product(*measures, 2, packed, x), product(backend(), 2, plain, x)))
        << rows << " rows";
  }
}

INSTANTIATE_TEST_SUITE_P(Vector, MeasuredOrderTest, testing::ValuesIn(kVectorIsas), isa_test_name);

TEST(PanelOrders, AreThoseOfTheNextNumberOfRowsThatWasMeasured) {
  static_assert(PanelOrders::kMeasured[1] == 2 && PanelOrders::kMeasured[2] == 4);
  PanelOrders orders(PanelOrder::kTurns);
  orders.set(2, PanelOrder::kOneByOne);
  const std::vector<int64_t> others = {1, 2, 5, kMaxTile, kMaxTile + 1};
  for (const int64_t rows : others) EXPECT_EQ(orders.of(rows), PanelOrder::kTurns) << rows;
  for (const int64_t rows : {3, 4}) EXPECT_EQ(orders.of(rows), PanelOrder::kOneByOne) << rows;
}

}  // namespace aerie::kernels::panel_order_test
