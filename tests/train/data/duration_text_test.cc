#include "train/data/duration_text.h"

#include <gtest/gtest.h>

#include <limits>

namespace aerie::train::duration_text_test {

TEST(DurationText, RoundsUp) {
  EXPECT_EQ(duration_text(0.0), "0 s");
  EXPECT_EQ(duration_text(12.1), "13 s");
  EXPECT_EQ(duration_text(59.5), "1 min 00 s");
  EXPECT_EQ(duration_text(200), "3 min 20 s");
  EXPECT_EQ(duration_text(7500), "2 h 05 min");
  EXPECT_EQ(duration_text(std::numeric_limits<double>::infinity()), "a long time");
  EXPECT_EQ(duration_text(std::numeric_limits<double>::quiet_NaN()), "a long time");
}

}  // namespace aerie::train::duration_text_test
