// New settings of speculation on trial: what decides, and the orders that begin and end it.

#include "server/rollout/rollout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "tests/server/running_server.h"

namespace aerie::server::rollout_test {

using ::testing::HasSubstr;

// One that takes settings.
class LiveService final : public test::FakeService {
 public:
  using test::FakeService::FakeService;
  std::vector<std::string> speculations() const override {
    const std::lock_guard lock(mutex_);
    return names_;
  }
  Expected<int> add_speculation(const SpeculativeConfig& config) override {
    const std::lock_guard lock(mutex_);
    names_.push_back(to_string(config));
    return static_cast<int>(names_.size()) - 1;
  }
  Status remove_speculation(int speculation) override {
    const std::lock_guard lock(mutex_);
    if (speculation < 1) return {StatusCode::kInvalidArgument, "it stays"};
    names_[static_cast<size_t>(speculation)].clear();
    return {};
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> names_ = {"auto"};
};

// Replies whose tokens take so long in the mean.
class Replies {
 public:
  explicit Replies(unsigned seed) : random_(seed) {}
  ReplyEnd next(double token_seconds, double accepted = 0.6) {
    ReplyEnd end;
    end.generated_tokens = 51;
    end.generation_seconds = 50 * token_seconds * spread_(random_);
    end.stats.drafted = 40;
    end.stats.accepted = static_cast<int64_t>(40 * accepted);
    return end;
  }

 private:
  std::mt19937 random_;
  std::lognormal_distribution<double> spread_{0.0, 0.25};
};

struct Trial {
  explicit Trial(uint64_t seed = 0)
      : rollout(
            service, [this](const std::string& line) { log.push_back(line); }, seed) {}

  // Requests until it is over. How many of them got the candidate.
  int run(Replies& replies, double present, double candidate, double accepted = 0.6,
          int most = 5000) {
    int tried = 0;
    for (requests = 0; requests < most && !rollout.state().candidate.empty(); ++requests) {
      const Rollout::Ticket ticket = rollout.draw();
      tried += ticket.is_candidate ? 1 : 0;
      rollout.on_end(ticket, replies.next(ticket.is_candidate ? candidate : present,
                                          ticket.is_candidate ? accepted : 0.6));
    }
    return tried;
  }

  LiveService service;
  std::vector<std::string> log;
  Rollout rollout;
  int requests = 0;
};

TEST(Rollout, WhatIsFasterIsPromotedByStepsAndCanBeTakenBack) {
  Trial trial;
  Replies replies(1);
  EXPECT_FALSE(trial.rollout.is_in_use());
  ASSERT_TRUE(trial.rollout.begin("ngram:gate=0", {}).ok());
  EXPECT_EQ(trial.rollout.state().share, 0.1);
  EXPECT_TRUE(trial.rollout.is_in_use());
  trial.run(replies, 0.020, 0.014);
  const Rollout::State state = trial.rollout.state();
  EXPECT_EQ(state.present, "ngram:gate=0");
  EXPECT_EQ(state.promotions, 1);
  ASSERT_EQ(trial.log.size(), 3u);
  EXPECT_THAT(trial.log[1], HasSubstr("now for 50 % of the requests"));
  EXPECT_THAT(trial.log[2], HasSubstr("in the place of auto"));
  EXPECT_EQ(trial.rollout.draw().speculation, 1);
  ASSERT_TRUE(trial.rollout.roll_back().ok());
  EXPECT_EQ(trial.rollout.draw().speculation, 0);
  EXPECT_EQ(trial.service.speculations()[1], "");
  EXPECT_EQ(trial.rollout.roll_back().code(), StatusCode::kNotFound);
  EXPECT_FALSE(trial.rollout.is_in_use());
}

TEST(Rollout, WhatIsSlowerGoesSoon) {
  for (unsigned seed = 0; seed < 10; ++seed) {
    Trial trial(seed);
    Replies replies(seed);
    ASSERT_TRUE(trial.rollout.begin("ngram:gate=0", {}).ok());
    const int tried = trial.run(replies, 0.014, 0.020);
    EXPECT_EQ(trial.rollout.state().roll_backs, 1);
    EXPECT_EQ(trial.rollout.state().present, "auto");
    EXPECT_LE(tried, 40);
    EXPECT_THAT(trial.log.back(), HasSubstr("it is slower"));
    EXPECT_EQ(trial.service.speculations()[1], "");
  }
}

// A head of random numbers, whose gate keeps its times near those of none.
TEST(Rollout, WhatIsHardlyAcceptedGoesWithinTwoHundredRequests) {
  for (unsigned seed = 0; seed < 10; ++seed) {
    Trial trial(seed);
    Replies replies(seed);
    ASSERT_TRUE(trial.rollout.begin("ngram", {}).ok());
    trial.run(replies, 0.020, 0.0201, 0.01);
    EXPECT_EQ(trial.rollout.state().roll_backs, 1);
    EXPECT_LE(trial.requests, 200);
    EXPECT_THAT(trial.log.back(), HasSubstr("drafts that stood"));
  }
}

// Looked at after each reply, what makes no difference must hardly ever be promoted (93 times in
// 10,000 trials).
TEST(Rollout, WhatMakesNoDifferenceIsNotPromoted) {
  int promoted = 0;
  for (unsigned seed = 0; seed < 100; ++seed) {
    Trial trial(seed);
    Replies replies(100 + seed);
    ASSERT_TRUE(trial.rollout.begin("ngram", {}).ok());
    trial.run(replies, 0.020, 0.020);
    promoted += trial.rollout.state().promotions > 0 ? 1 : 0;
    EXPECT_LE(trial.requests, 1000);
  }
  EXPECT_LE(promoted, 3);
}

TEST(Rollout, ALongTailGoes) {
  Trial trial;
  Replies replies(3);
  RolloutRule rule;
  rule.steps = {0.5};
  rule.most_replies = 4000;
  rule.least_gain = 10.0;  // nothing else decides
  ASSERT_TRUE(trial.rollout.begin("ngram", rule).ok());
  for (int i = 0; i < 2000 && !trial.rollout.state().candidate.empty(); ++i) {
    const Rollout::Ticket ticket = trial.rollout.draw();
    const bool stalls = ticket.is_candidate && i % 10 == 0;
    trial.rollout.on_end(ticket, replies.next(stalls ? 0.1 : 0.02));
  }
  EXPECT_EQ(trial.rollout.state().roll_backs, 1);
  EXPECT_THAT(trial.log.back(),
              ::testing::AnyOf(HasSubstr("99th percentile"), HasSubstr("slower")));
}

TEST(Rollout, RepliesOfAnEarlierTrialDoNotCount) {
  Trial trial;
  Replies replies(4);
  ASSERT_TRUE(trial.rollout.begin("ngram", {}).ok());
  EXPECT_EQ(trial.rollout.begin("ngram", {}).code(), StatusCode::kInvalidArgument);
  const Rollout::Ticket old = trial.rollout.draw();
  ASSERT_TRUE(trial.rollout.roll_back().ok());
  ASSERT_TRUE(trial.rollout.begin("ngram", {}).ok());
  trial.rollout.on_end(old, replies.next(1.0));
  const Rollout::State state = trial.rollout.state();
  EXPECT_EQ(state.present_figures.replies() + state.candidate_figures.replies(), 0);
}

TEST(Rollout, RulesThatCannotBeAreRefused) {
  Trial trial;
  const auto refused = [&](auto change) {
    RolloutRule rule;
    change(rule);
    return trial.rollout.begin("ngram", rule).code() == StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](RolloutRule& rule) { rule.steps = {}; }));
  EXPECT_TRUE(refused([](RolloutRule& rule) { rule.steps = {0.5, 0.1}; }));
  EXPECT_TRUE(refused([](RolloutRule& rule) { rule.steps = {0.0}; }));
  EXPECT_TRUE(refused([](RolloutRule& rule) { rule.steps = {1.0}; }));
  EXPECT_TRUE(refused([](RolloutRule& rule) { rule.least_replies = 1; }));
  EXPECT_TRUE(refused([](RolloutRule& rule) { rule.most_replies = 30; }));
  EXPECT_TRUE(refused([](RolloutRule& rule) { rule.least_gain = std::nan(""); }));
  EXPECT_EQ(trial.rollout.begin("nothing", {}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(trial.rollout.promote().code(), StatusCode::kNotFound);
  EXPECT_EQ(trial.service.speculations().size(), 1u);
}

TEST(ReplyTimes, WhatIsLongAgoFades) {
  ReplyTimes times;
  for (int i = 0; i < 20000; ++i) times.add_seconds(1.0 + 0.1 * (i % 2));
  for (int i = 0; i < 20000; ++i) times.add_seconds(3.0 + 0.1 * (i % 2));
  EXPECT_EQ(times.count(), 40000);
  EXPECT_NEAR(times.mean(), 3.05, 0.1);
  EXPECT_NEAR(times.quantile(0.99), 3.1, 1e-9);
  EXPECT_EQ(times.longer_than(3.05), 512);
}

TEST(Rollout, AShadowIsCounted) {
  Trial trial;
  EXPECT_EQ(trial.rollout.end_shadow().code(), StatusCode::kNotFound);
  EXPECT_EQ(trial.rollout.begin_shadow("ngram", 0.0).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(trial.rollout.begin_shadow("auto", 0.5).code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(trial.rollout.begin_shadow("ngram", 0.25).ok());
  EXPECT_EQ(trial.rollout.begin_shadow("ngram", 0.25).code(), StatusCode::kInvalidArgument);
  ReplyEnd end;
  end.stats.rounds = 10;
  end.stats.round_tokens = 20;
  end.stats.shadow = {10, 40, 15, {8, 7}, 0.5};
  int shadowed = 0;
  for (int i = 0; i < 400; ++i) {
    const Rollout::Ticket ticket = trial.rollout.draw();
    EXPECT_EQ(ticket.speculation, 0);
    shadowed += ticket.shadow == 1 ? 1 : 0;
    trial.rollout.on_end(ticket, end);
  }
  EXPECT_NEAR(shadowed, 100, 45);
  const Rollout::ShadowFigures figures = trial.rollout.state().shadow;
  EXPECT_EQ(figures.replies, shadowed);
  EXPECT_EQ(figures.on_paper.accepted, 15 * shadowed);
  EXPECT_EQ(figures.on_paper.accepted_at[1], 7 * shadowed);
  EXPECT_EQ(figures.round_tokens, 20 * shadowed);
  EXPECT_TRUE(trial.rollout.end_shadow().ok());
  EXPECT_EQ(trial.rollout.draw().shadow, -1);
}

// ---- Over HTTP ----

class AdminServer {
 public:
  AdminServer() {
    ServerOptions options;
    EXPECT_TRUE(options.gate.admin_keys.add("order").ok());
    EXPECT_TRUE(options.gate.keys.add("ask").ok());
    auto server = Server::start(service_, std::move(options));
    EXPECT_TRUE(server.ok()) << server.status().message();
    server_ = std::move(server).value();
  }
  test::Response post(const std::string& path, const std::string& body,
                      const std::string& key = "order") const {
    return test::exchange(server_->port(), "POST", path, body,
                          "Authorization: Bearer " + key + "\r\n");
  }
  Json status() const {
    return test::exchange(server_->port(), "GET", "/admin/status", "",
                          "Authorization: Bearer order\r\n")
        .json()["models"][0];
  }

 private:
  LiveService service_{test::says("one two three four five six")};
  std::unique_ptr<Server> server_;
};

TEST(Admin, OrdersWantAKeyOfTheirOwn) {
  AdminServer server;
  EXPECT_EQ(server.post("/admin/canary", R"({"speculate":"ngram"})", "ask").status, 401);
  EXPECT_EQ(server.post("/v1/completions", R"({"prompt":"x"})", "order").status, 401);
  EXPECT_EQ(server.post("/v1/completions", R"({"prompt":"x"})", "ask").status, 200);
  test::RunningServer without;
  EXPECT_EQ(without.get("/admin/status").status, 403);
  EXPECT_EQ(without.post("/admin/canary/promote", "{}").json()["error"]["code"], "no_admin_key");
}

TEST(Admin, ACanaryFromItsOrderToItsEnd) {
  AdminServer server;
  EXPECT_EQ(server.status()["canary"], nullptr);
  EXPECT_EQ(server.post("/admin/canary", "{}").status, 400);
  EXPECT_EQ(server.post("/admin/canary", R"({"speculate":"nothing"})").status, 400);
  EXPECT_EQ(server.post("/admin/canary", R"({"speculate":"ngram","steps":["a"]})").status, 400);
  EXPECT_EQ(server.post("/admin/canary", R"({"speculate":"ngram","model":"other"})").status, 404);
  EXPECT_EQ(server.post("/admin/canary/rollback", "").status, 409);
  const Json begun = server.post("/admin/canary", R"({"speculate":"ngram","steps":[0.5]})").json();
  EXPECT_EQ(begun["canary"]["speculate"], "ngram");
  EXPECT_EQ(begun["canary"]["share"], 0.5);
  for (int i = 0; i < 40; ++i) server.post("/v1/completions", R"({"prompt":"x"})", "ask");
  const Json canary = server.status()["canary"];
  const int candidate = canary["candidate"]["replies"], present = canary["present"]["replies"];
  EXPECT_EQ(candidate + present, 40);
  EXPECT_GT(candidate, 3);
  EXPECT_GT(present, 3);
  EXPECT_EQ(server.post("/admin/canary/promote", "{}").json()["present"], "ngram");
  EXPECT_EQ(server.post("/admin/canary/rollback", "{}").json()["present"], "auto");
  EXPECT_EQ(server.post("/admin/models/unload", "{}").status, 409);
  EXPECT_EQ(server.post("/admin/models/load", "{}").json()["status"], "loaded");
}

}  // namespace aerie::server::rollout_test
