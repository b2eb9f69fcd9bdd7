// What the target's noise makes of chances that were estimated without it.
#include <gtest/gtest.h>

#include <algorithm>

#include "draft/auto/draft_record.h"
#include "tests/testing/test_drafters.h"

namespace aerie::unseen_noise_test {

class Knowing final : public test::TestDrafter {
 public:
  Knowing() { needs_.knows_noise = true; }
};

DraftSequence sequence_at(double temperature, DraftNoise noise = DraftNoise::kTarget) {
  DraftSequence sequence;
  sequence.sampling.temperature = temperature;
  sequence.sampling.seed = 42;
  sequence.noise = noise;
  return sequence;
}

TEST(UnseenNoise, LeavesChancesAsTheyAreOnAverage) {
  const UnseenNoise noise(sequence_at(1.0), test::TestDrafter());
  for (const double usual : {0.03, 0.2, 0.5, 0.9}) {
    double sum = 0.0;
    constexpr int kPositions = 20'000;
    for (int i = 0; i < kPositions; ++i) sum += noise.chance(usual, static_cast<uint64_t>(i), 7);
    EXPECT_NEAR(sum / kPositions, usual, 0.003 + 0.12 * usual) << usual;
  }
  EXPECT_EQ(noise.chance(0.0, 3, 7), 0.0);
  EXPECT_EQ(noise.chance(1.0, 3, 7), 1.0);
}

TEST(UnseenNoise, RaisesThemWithTheNoiseThatTheTargetAdds) {
  const UnseenNoise noise(sequence_at(1.0), test::TestDrafter());
  const NoiseKey key = {42, 0};
  for (int32_t token = 1; token < 500; ++token) {
    const bool more = target_gumbel(key, 11, token) > target_gumbel(key, 11, token - 1);
    EXPECT_EQ(noise.chance(0.3, 11, token) > noise.chance(0.3, 11, token - 1), more);
  }
}

TEST(UnseenNoise, TellsLessTheColderItIs) {
  const test::TestDrafter drafter;
  const auto spread = [&](double temperature) {
    const UnseenNoise noise(sequence_at(temperature), drafter);
    double least = 1.0, most = 0.0;
    for (int32_t token = 0; token < 100; ++token) {
      least = std::min(least, noise.chance(0.3, 11, token));
      most = std::max(most, noise.chance(0.3, 11, token));
    }
    return most - least;
  };
  EXPECT_GT(spread(1.0), 0.2);
  EXPECT_EQ(spread(2.0), spread(1.0));
  EXPECT_LT(spread(0.3), 0.7 * spread(1.0));
  EXPECT_EQ(spread(0.0), 0.0);
}

// Under rules that compare with the proposal nobody may look at it, nobody looks twice, and where
// one token is left it decides nothing.
TEST(UnseenNoise, IsLookedAtOnceAndWhereItMayBe) {
  const UnseenNoise forbidden(sequence_at(1.0, DraftNoise::kOwn), test::TestDrafter());
  const UnseenNoise seen(sequence_at(1.0), Knowing());
  DraftSequence one_choice = sequence_at(1.0);
  one_choice.sampling.top_k = 1;
  const UnseenNoise useless(one_choice, test::TestDrafter());
  for (int32_t token = 0; token < 20; ++token) {
    EXPECT_EQ(useless.chance(0.3, 11, token), 0.3);
    EXPECT_EQ(forbidden.chance(0.3, 11, token), 0.3);
    EXPECT_EQ(seen.chance(0.3, 11, token), 0.3);
  }
}

// A node is for the position behind the tokens that are known and those above it.
TEST(UnseenNoise, IsThatOfANodesPosition) {
  DraftRecord record;
  record.noise = UnseenNoise(sequence_at(1.0), test::TestDrafter());
  const int root_child = record.tree.add(5, -1, nullptr, 0.6f);
  record.tree.add(6, root_child, nullptr, 0.3f);
  calibrate(record, TenantRecord(), 100);
  const double first = record.noise.chance(0.6, 100, 5);
  EXPECT_NEAR(record.tree.nodes[0].probability, first, 1e-6);
  EXPECT_NEAR(record.tree.nodes[1].probability, first * record.noise.chance(0.5, 101, 6), 1e-6);
}

}  // namespace aerie::unseen_noise_test
