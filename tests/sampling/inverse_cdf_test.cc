#include "sampling/inverse_cdf.h"

#include <gtest/gtest.h>

namespace aerie::inverse_cdf_test {

TEST(InverseCdf, CutsTheUnitIntervalInTheOrderOfIds) {
  const Distribution d{{2, 5, 9}, {0.25, 0.5, 0.25}};
  EXPECT_EQ(inverse_cdf(d, 0x1p-53), 2);
  EXPECT_EQ(inverse_cdf(d, 0.2499), 2);
  EXPECT_EQ(inverse_cdf(d, 0.25), 5);
  EXPECT_EQ(inverse_cdf(d, 0.7499), 5);
  EXPECT_EQ(inverse_cdf(d, 0.75), 9);
  EXPECT_EQ(inverse_cdf(d, 1 - 0x1p-53), 9);
}

TEST(InverseCdf, StaysWithinTheListWhateverTheSum) {
  const Distribution low{{1, 4}, {0.25, 0.7499999}};
  EXPECT_EQ(inverse_cdf(low, 1 - 0x1p-53), 4);
  const Distribution high{{1, 4, 6}, {0.5, 0.5000001, 1e-300}};
  EXPECT_EQ(inverse_cdf(high, 1 - 0x1p-53), 4);
  EXPECT_EQ(inverse_cdf({{3}, {1.0}}, 0.999), 3);
}

TEST(InverseCdf, WithoutWhatIsTaken) {
  const Distribution d{{2, 5, 9}, {0.25, 0.5, 0.25}};
  const int32_t middle[] = {5};
  EXPECT_EQ(inverse_cdf_without(d, middle, 0.499), 2);
  EXPECT_EQ(inverse_cdf_without(d, middle, 0.501), 9);
  EXPECT_EQ(inverse_cdf_without(d, middle, 1 - 0x1p-53), 9);
  const int32_t last[] = {9, 2};
  EXPECT_EQ(inverse_cdf_without(d, last, 0.001), 5);
  EXPECT_EQ(inverse_cdf_without(d, last, 1 - 0x1p-53), 5);
  EXPECT_EQ(inverse_cdf_without(d, d.ids, 0.5), -1);
  for (double u = 0.05; u < 1; u += 0.1)
    EXPECT_EQ(inverse_cdf_without(d, {}, u), inverse_cdf(d, u));
}

}  // namespace aerie::inverse_cdf_test
