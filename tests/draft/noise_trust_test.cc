// What a drafter learns of how its logits and the target's noise decide.
#include "draft/network/noise_trust.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

namespace aerie::noise_trust_test {

using Seen = NoiseTrust::Seen;

// What a drafter makes of the target's logit, and of a number that has nothing to do with it.
using Known = double (*)(double logit, double error);

double perfect(double logit, double /*error*/) {
  return logit;
}
double flat(double logit, double error) {
  return 0.5 * logit + 0.5 * error;
}
double ignorant(double /*logit*/, double error) {
  return error;
}

// Targets of random logits, and a drafter's first choices.
class Draws {
 public:
  Draws(Known known, bool learns) : known_(known), learns_(learns) {}

  // How often the drafter is right on 4,000 tokens behind as many to learn from.
  double hits(NoiseTrust& trust) {
    constexpr int kTokens = 4000;
    for (int i = 0; i < kTokens; ++i) is_right(trust);
    int right = 0;
    for (int i = 0; i < kTokens; ++i) right += is_right(trust) ? 1 : 0;
    return static_cast<double>(right) / kTokens;
  }

 private:
  struct Token {
    double target, drawn_by;  // its logit, and that with the noise
    Seen seen;                // by the drafter
  };

  bool is_right(NoiseTrust& trust) {
    std::vector<Token> tokens(40);
    for (Token& token : tokens) {
      const double noise = -std::log(-std::log(uniform_(random_)));
      token.target = 3.0 * normal_(random_);
      token.drawn_by = token.target + noise;
      token.seen = {known_(token.target, normal_(random_)), noise};
    }
    const double drawn = std::ranges::max(tokens, {}, &Token::drawn_by).drawn_by;
    const double sharpness = trust.sharpness();
    std::ranges::sort(tokens, std::greater<>(), [sharpness](const Token& token) {
      return sharpness * token.seen.logit + token.seen.noise;
    });
    tokens.resize(4);
    const auto found = std::ranges::find(tokens, drawn, &Token::drawn_by);
    if (learns_) {
      std::vector<Seen> seen;
      for (const Token& token : tokens) seen.push_back(token.seen);
      trust.learn(seen, static_cast<size_t>(found - tokens.begin()));
    }
    return found == tokens.begin();
  }

  Known known_;
  bool learns_;
  std::mt19937_64 random_{7};
  std::normal_distribution<double> normal_{0.0, 1.0};
  std::uniform_real_distribution<double> uniform_{1e-12, 1.0};
};

TEST(NoiseTrust, TakesADrafterThatIsRightAtItsWord) {
  NoiseTrust trust;
  EXPECT_EQ(Draws(perfect, true).hits(trust), 1.0);
  EXPECT_EQ(trust.sharpness(), 1.0);
  EXPECT_LT(trust.odds(1.0), 0.05);
}

// It drew a token that nobody thought of, once.
TEST(NoiseTrust, ComesToTrustOneThatHasBeenWrong) {
  NoiseTrust trust;
  trust.learn({}, 0);
  trust.learn(std::vector<Seen>{{0.0, 1.0}, {-1.0, 1.0}}, 2);
  EXPECT_GT(trust.sharpness(), 1.1);
  EXPECT_GT(Draws(perfect, true).hits(trust), 0.98);
  EXPECT_NEAR(trust.sharpness(), 1.0, 0.02);
}

TEST(NoiseTrust, SharpensADrafterThatIsFlat) {
  NoiseTrust learned, kept;
  EXPECT_GT(Draws(flat, true).hits(learned), Draws(flat, false).hits(kept) + 0.02);
  EXPECT_GT(learned.sharpness(), 1.5);
}

TEST(NoiseTrust, PromisesLittleWhereNothingIsKnown) {
  NoiseTrust trust;
  Draws(ignorant, true).hits(trust);
  EXPECT_GT(trust.odds(1.0), 0.5);
}

TEST(NoiseTrust, FindsTheOddsThatThereAre) {
  for (const double by_noise : {0.5, 1.0, 2.0}) {
    std::mt19937_64 random(5);
    std::uniform_real_distribution<double> uniform(0.0, 1.0);
    NoiseTrust trust;
    for (int i = 0; i < 10000; ++i) {
      const Seen seen = {6.0 * uniform(random) - 3.0, 6.0 * uniform(random) - 3.0};
      const double ahead = 1.5 * by_noise * seen.logit + by_noise * seen.noise;
      const bool drawn = uniform(random) < 1.0 / (1.0 + std::exp(-ahead));
      trust.learn(std::vector<Seen>{seen, {0.0, 0.0}}, drawn ? 0 : 1);
    }
    EXPECT_NEAR(trust.sharpness(), 1.5, 0.15) << by_noise;
    EXPECT_NEAR(-std::log(trust.odds(1.0)), by_noise, 0.15 * by_noise);
  }
}

// Temperatures near 0 put logits as far apart as numbers go.
TEST(NoiseTrust, StandsWhatIsFarApart) {
  constexpr double kMost = std::numeric_limits<double>::max();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::vector<Seen> seen = {{0.0, 1.0}, {-1e300, 40.0},    {-kMost, -3.0},
                                  {1e9, 0.0}, {-kInfinity, 2.0}, {-kInfinity, 0.5}};
  NoiseTrust trust;
  for (int i = 0; i < 3000; ++i) {
    trust.learn(seen, static_cast<size_t>(i % 6));
    ASSERT_GE(trust.sharpness(), 1.0);
    ASSERT_LE(trust.sharpness(), 100.0);
    ASSERT_TRUE(trust.odds(1.0) > 0.0 && trust.odds(1.0) < 1.0);
  }
}

TEST(NoiseTrust, LearnsNothingOfOneTokenAlone) {
  NoiseTrust trust;
  const double before = trust.odds(1.0);
  trust.learn(std::vector<Seen>{{-5.0, 2.0}}, 0);
  EXPECT_EQ(trust.odds(1.0), before);
}

}  // namespace aerie::noise_trust_test
