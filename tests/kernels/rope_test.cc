// Rotary embedding against its definition.
#include <cmath>

#include "tests/kernels/row_ops_testing.h"

namespace aerie::kernels::rope_test {

constexpr int64_t kRows = 6;
constexpr int kHeads = 3;

struct Turns {
  std::vector<float> cos, sin;  // [kRows][count]
};

Turns random_turns(Random& random, int64_t count) {
  Turns turns;
  for (int64_t i = 0; i < kRows * count; ++i) {
    const float angle = random.uniform(-4000.0f, 4000.0f);
    turns.cos.push_back(std::cos(angle));
    turns.sin.push_back(std::sin(angle));
  }
  return turns;
}

class RopeTest : public BackendTest<std::tuple<Isa, RopeStyle>> {
 protected:
  RopeStyle style() const { return std::get<1>(GetParam()); }
  std::vector<float> turn(const std::vector<float>& x, int head_dim, int dimensions, RopeStyle by,
                          const Turns& turns) const {
    Fenced<float> in_place(x);
    const Fenced<float> cos(turns.cos), sin(turns.sin);
    backend().rope(pool_of(2), in_place.data(), kRows, kHeads, head_dim, dimensions, by, cos.data(),
                   sin.data());
    return {in_place.data(), in_place.data() + x.size()};
  }
};

constexpr std::pair<int, int> kShapes[] = {{16, 16}, {32, 24},   {64, 64}, {80, 32}, {96, 96},
                                           {128, 2}, {256, 256}, {64, 0},  {48, 34}};

TEST_P(RopeTest, TurnsPairsAndKeepsTheRest) {
  Random random(46);
  for (const auto& [head_dim, dimensions] : kShapes) {
    const int64_t count = dimensions / 2;
    const Turns turns = random_turns(random, count);
    const std::vector<float> before =
        uniform_floats(random, kRows * kHeads * head_dim, -3.0f, 3.0f);
    const std::vector<float> after = turn(before, head_dim, dimensions, style(), turns);
    for (size_t head = 0; head < kRows * kHeads; ++head) {
      const size_t start = head * static_cast<size_t>(head_dim);
      for (int64_t i = 0; i < count; ++i) {
        const bool pairs = style() == RopeStyle::kPairs;
        const size_t first = start + static_cast<size_t>(pairs ? 2 * i : i);
        const size_t second = start + static_cast<size_t>(pairs ? 2 * i + 1 : i + count);
        const size_t at = head / kHeads * static_cast<size_t>(count) + static_cast<size_t>(i);
        const double c = double{turns.cos[at]}, s = double{turns.sin[at]};
        const double a = double{before[first]}, b = double{before[second]};
        EXPECT_NEAR(double{after[first]}, a * c - b * s, 1e-6);
        EXPECT_NEAR(double{after[second]}, a * s + b * c, 1e-6);
      }
      for (int i = dimensions; i < head_dim; ++i) {
        const size_t at = start + static_cast<size_t>(i);
        EXPECT_EQ(after[at], before[at]);
      }
    }
  }
}

// The styles differ in where a pair lies, and in nothing else.
TEST_P(RopeTest, StylesAreOnePermutation) {
  Random random(47);
  for (const auto& [head_dim, dimensions] : kShapes) {
    const Turns turns = random_turns(random, dimensions / 2);
    const std::vector<float> pairs = uniform_floats(random, kRows * kHeads * head_dim, -3.0f, 3.0f);
    const auto to_halves = [&](const std::vector<float>& x) {
      std::vector<float> halves = x;
      for (size_t start = 0; start < x.size(); start += static_cast<size_t>(head_dim)) {
        for (int i = 0; i < dimensions; ++i) {
          const int to = i / 2 + (i % 2 == 0 ? 0 : dimensions / 2);
          halves[start + static_cast<size_t>(to)] = x[start + static_cast<size_t>(i)];
        }
      }
      return halves;
    };
    EXPECT_TRUE(same_bits(to_halves(turn(pairs, head_dim, dimensions, RopeStyle::kPairs, turns)),
                          turn(to_halves(pairs), head_dim, dimensions, RopeStyle::kHalves, turns)))
        << head_dim << " dimensions, " << dimensions << " turned";
  }
}

INSTANTIATE_TEST_SUITE_P(All, RopeTest,
                         testing::Combine(testing::ValuesIn(kAllIsas),
                                          testing::Values(RopeStyle::kPairs, RopeStyle::kHalves)),
                         [](const testing::TestParamInfo<std::tuple<Isa, RopeStyle>>& param) {
                           const bool pairs = std::get<1>(param.param) == RopeStyle::kPairs;
                           return std::string(isa_name(std::get<0>(param.param))) +
                                  (pairs ? "_Pairs" : "_Halves");
                         });

}  // namespace aerie::kernels::rope_test
