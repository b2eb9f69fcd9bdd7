#include "verify/dice.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/verify/chi_square.h"
#include "tests/verify/synthetic.h"

namespace aerie::dice_test {

TEST(NoiseDice, IsSureAtTheEnds) {
  for (uint64_t position = 0; position < 1000; ++position) {
    NoiseDice dice({1, 0}, position);
    EXPECT_TRUE(dice.accept(3, 0, 1.0));
    EXPECT_FALSE(dice.accept(3, 0, 0.0));
  }
}

// Three trials and a draw of one round, jointly: each with its probability and independent.
TEST(NoiseDice, IsFairAndIndependent) {
  const Distribution d{{0, 1, 2}, {0.5, 0.2, 0.3}};
  std::vector<double> cells;
  for (const double a : {0.7, 0.3}) {
    for (const double b : {0.1, 0.9}) {
      for (const double c : {0.5, 0.5}) {
        for (const double p : d.probs) cells.push_back(a * b * c * p);
      }
    }
  }
  stats::ChiSquareTest test(cells);
  for (int64_t i = 0; i < test.samples(); ++i) {
    NoiseDice dice({42, 1}, static_cast<uint64_t>(i));
    const size_t a = dice.accept(0, 0, 0.3) ? 1 : 0;
    const size_t b = dice.accept(1, 0, 0.9) ? 1 : 0;
    const size_t c = dice.accept(1, 1, 0.5) ? 1 : 0;
    test.add((4 * a + 2 * b + c) * 3 + static_cast<size_t>(dice.draw(0, d)));
  }
  EXPECT_FALSE(test.result().rejected) << test.result().p_value;
}

TEST(EnumeratingDice, PlaysEveryOutcomeOnce) {
  const Distribution d{{4, 7}, {0.25, 0.75}};
  EnumeratingDice dice;
  std::map<Tokens, double> seen;
  dice.for_each([&] {
    Tokens outcome;
    outcome.push_back(dice.accept(0, 0, 0.5) ? 1 : 0);
    if (outcome[0] == 1) outcome.push_back(dice.draw(0, d));
    outcome.push_back(dice.accept(1, 0, 1.0) ? 1 : 0);
    EXPECT_EQ(seen.count(outcome), 0u);
    seen[outcome] = dice.probability();
  });
  const std::map<Tokens, double> expected = {{{0, 1}, 0.5}, {{1, 4, 1}, 0.125}, {{1, 7, 1}, 0.375}};
  EXPECT_EQ(seen, expected);
}

}  // namespace aerie::dice_test
