#include "server/rollout/holdback.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/running_server.h"

namespace aerie::holdback_test {

using server::Holdback;
using ::testing::HasSubstr;

ReplyEnd reply_of(int tokens, double seconds) {
  ReplyEnd end;
  end.generated_tokens = tokens;
  end.generation_seconds = seconds;
  end.stats.drafted = 6;
  end.stats.accepted = 4;
  return end;
}

TEST(Holdback, DrawsItsShare) {
  Holdback none(0.0), all(1.0), some(0.2);
  int count = 0;
  for (int i = 0; i < 20000; ++i) {
    EXPECT_FALSE(none.draw({}));
    EXPECT_TRUE(all.draw({}));
    count += some.draw({}) ? 1 : 0;
  }
  // Five standard deviations of a binomial.
  EXPECT_NEAR(count, 4000, 5 * std::sqrt(20000 * 0.2 * 0.8));
}

TEST(Holdback, ComparesTimes) {
  Holdback holdback(0.1);
  std::mt19937 random(5);
  std::lognormal_distribution<double> spread(0.0, 0.3);
  for (int i = 0; i < 2000; ++i) {
    const bool held_back = i % 10 == 0;
    const double per_token = (held_back ? 0.030 : 0.020) * spread(random);
    holdback.on_end({"auto", "chat"}, held_back, reply_of(101, 100 * per_token));
  }
  const auto figures = holdback.figures();
  ASSERT_EQ(figures.size(), 1u);
  EXPECT_EQ(figures[0].held_back, 200);
  EXPECT_EQ(figures[0].speculated, 1800);
  EXPECT_EQ(figures[0].drafted, 12000);
  EXPECT_EQ(figures[0].accepted, 8000);
  EXPECT_LT(figures[0].speedup.low, 1.5);
  EXPECT_GT(figures[0].speedup.high, 1.5);
  EXPECT_NEAR(figures[0].speedup.high / figures[0].speedup.low,
              std::exp(2 * 1.96 * 0.307 / std::sqrt(200.0)), 0.02);
}

// Where it loses for certain, its own share shows when it does so no more.
TEST(Holdback, GatesWhatLoses) {
  Holdback holdback(0.1, true);
  const Holdback::Group group = {"auto", ""}, other = {"auto", "chat"};
  std::mt19937 random(6);
  std::lognormal_distribution<double> spread(0.0, 0.2);
  const auto serve = [&](double speculated, int count) {
    int plain = 0;
    for (int i = 0; i < count; ++i) {
      const bool held_back = holdback.draw(group);
      plain += held_back ? 1 : 0;
      const double per_token = (held_back ? 0.020 : speculated) * spread(random);
      holdback.on_end(group, held_back, reply_of(101, 100 * per_token));
    }
    return static_cast<double>(plain) / count;
  };
  serve(0.030, 300);
  EXPECT_TRUE(holdback.figures()[0].is_gated);
  EXPECT_NEAR(serve(0.030, 2000), 0.9, 0.05);
  int others = 0;
  for (int i = 0; i < 2000; ++i) others += holdback.draw(other) ? 1 : 0;
  EXPECT_NEAR(others / 2000.0, 0.1, 0.05);
  serve(0.010, 30000);
  EXPECT_FALSE(holdback.figures()[0].is_gated);
  EXPECT_NEAR(serve(0.010, 2000), 0.1, 0.05);
}

// The interval holds what is true in about 95 of 100 cases.
TEST(Holdback, IntervalsCover) {
  std::mt19937 random(9);
  std::lognormal_distribution<double> spread(0.0, 0.4);
  int covered = 0;
  constexpr int kTries = 400;
  for (int n = 0; n < kTries; ++n) {
    Holdback holdback(0.1);
    for (int i = 0; i < 400; ++i) {
      const bool held_back = i % 10 == 0;
      holdback.on_end({"auto", ""}, held_back,
                      reply_of(11, (held_back ? 0.3 : 0.2) * spread(random)));
    }
    const auto one = holdback.figures().front();
    covered += one.speedup.low <= 1.5 && 1.5 <= one.speedup.high ? 1 : 0;
  }
  EXPECT_GT(covered, kTries * 0.90);
  EXPECT_LT(covered, kTries * 0.99);
}

TEST(Holdback, WhatSaysNothing) {
  Holdback holdback(0.1);
  for (int i = 0; i < 50; ++i) {
    holdback.on_end({"auto", ""}, i % 2 == 0, reply_of(3, 1.0));
    ReplyEnd cancelled = reply_of(100, 1.0);
    cancelled.outcome = ReplyOutcome::kCancelled;
    holdback.on_end({"auto", ""}, i % 2 == 0, cancelled);
  }
  for (int i = 0; i < 4; ++i) holdback.on_end({"auto", ""}, i % 2 == 0, reply_of(100, 1.0));
  EXPECT_FALSE(holdback.figures()[0].speedup.known());
  EXPECT_EQ(holdback.figures()[0].held_back, 2);
}

// A client may make names up for ever.
TEST(Holdback, ClassesAreBounded) {
  Holdback holdback(0.1);
  for (int i = 0; i < 1000; ++i) {
    holdback.on_end({"auto", std::to_string(i)}, false, reply_of(100, 1.0));
  }
  EXPECT_EQ(holdback.figures().size(), Holdback::kMostClasses + 1);
}

TEST(Holdback, InTheServer) {
  server::ServerOptions options;
  options.api.holdback = 1.0;
  test::RunningServer server(test::says("Hi there, how are you?"), std::move(options));
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(server.chat(R"("traffic_class":"mail")").status, 200);
    EXPECT_FALSE(server.service().last().speculate);
  }
  EXPECT_EQ(server.chat(R"("speculation":"off")").status, 200);
  EXPECT_EQ(server.chat(R"("traffic_class":5)").status, 400);
  EXPECT_EQ(server.chat(R"("traffic_class":")" + std::string(65, 'x') + "\"").status, 400);
  EXPECT_THAT(server.get("/metrics").body,
              HasSubstr(R"(method="auto",traffic_class="mail",group="held_back"} 6)"));
}

}  // namespace aerie::holdback_test
