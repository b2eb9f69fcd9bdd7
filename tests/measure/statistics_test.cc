#include "measure/statistics.h"

#include <gtest/gtest.h>

namespace aerie::measure::statistics_test {

TEST(Statistics, Quantiles) {
  EXPECT_EQ(median({}), 0.0);
  EXPECT_EQ(median({3.0}), 3.0);
  EXPECT_EQ(median({3.0, 1.0, 2.0}), 2.0);
  EXPECT_EQ(median({4.0, 1.0, 3.0, 2.0}), 2.5);
  EXPECT_EQ(quantile({10.0, 20.0, 30.0, 40.0, 50.0}, 0.25), 20.0);
  EXPECT_EQ(quantile({10.0, 20.0}, 0.25), 12.5);
}

TEST(Statistics, Spread) {
  const Spread s = spread({5.0, 1.0, 4.0, 2.0, 3.0});
  EXPECT_EQ(s.lowest, 1.0);
  EXPECT_EQ(s.first_quartile, 2.0);
  EXPECT_EQ(s.third_quartile, 4.0);
  EXPECT_EQ(s.highest, 5.0);
}

}  // namespace aerie::measure::statistics_test
