#include "measure/passes/rank_bench.h"

#include <gtest/gtest.h>

namespace aerie::rank_bench_test {

using measure::choose_ranks;
using measure::RankChoice;
using measure::RankPoint;

// One rank of one thread: a row takes 10 ms, a further one 1 ms; a tenth of it everybody computes.
std::vector<RankPoint> points() {
  std::vector<RankPoint> points;
  for (const int rows : {1, 2, 4, 8}) {
    const double seconds = 10e-3 + 1e-3 * (rows - 1);
    RankPoint point;
    point.rows = rows;
    point.pass = {1, 0.1 * seconds, 0.9 * seconds, 80, rows * int64_t{1'000'000}};
    points.push_back(point);
  }
  return points;
}

TEST(RankBench, ChoosesByTokensAndCosts) {
  const auto choices = choose_ranks(points(), {1, 4}, {0.0, 1e18}, 0.5);
  ASSERT_EQ(choices.size(), 2u);
  EXPECT_NEAR(choices[0].plain, 100.0, 1e-6);
  // 1 + 1/2 + 1/4 tokens in 12 ms; a third draft would bring 1/8 in 1 ms, which is less.
  EXPECT_EQ(choices[0].drafted, 2);
  EXPECT_NEAR(choices[0].drafting, 1.75 / 12e-3, 1e-6);
  // 1 + 9 / 4 ms.
  EXPECT_NEAR(choices[1].plain, 1.0 / 3.25e-3, 1e-6);
  EXPECT_EQ(choices[1].drafted, 2);
}

TEST(RankBench, DraftsMoreWhereMessagesAreDear) {
  // Whatever the rows, 80 messages of a millisecond; rows are next to free beside them.
  const auto near = choose_ranks(points(), {4}, {0.0, 1e18}, 0.8);
  const auto far = choose_ranks(points(), {4}, {1e-3, 1e18}, 0.8);
  EXPECT_LT(far[0].plain, near[0].plain / 20);
  EXPECT_GT(far[0].drafted, near[0].drafted);
  EXPECT_GT(far[0].drafting / far[0].plain, near[0].drafting / near[0].plain);
}

TEST(RankBench, DraftsNothingWhereNothingStands) {
  EXPECT_EQ(choose_ranks(points(), {2}, {1e-5, 1e9}, 0.0)[0].drafted, 0);
}

TEST(RankBench, RefusesWhatCannotBe) {
  const auto report = measure::bench_ranks({});
  ASSERT_FALSE(report.ok());
  EXPECT_NE(report.status().message().find("mpirun -np 2"), std::string::npos);
}

}  // namespace aerie::rank_bench_test
