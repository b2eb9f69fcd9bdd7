// Limits of keys: what is read, what is counted, and what a client sees of it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "server/access/rate_limits.h"
#include "tests/server/running_server.h"

namespace aerie::server_keys_test {

using server::RateLimiter;
using server::RateLimits;
using test::Client;
using test::eventually;
using test::Response;
using test::RunningServer;
using test::says;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kAlice[] = "Authorization: Bearer key-a\r\n";
constexpr char kBob[] = "Authorization: Bearer key-b\r\n";

server::ServerOptions options_of(const std::string& lines) {
  server::ServerOptions options;
  const Status status = options.gate.keys.add_lines(lines, "keys");
  EXPECT_TRUE(status.ok()) << status.message();
  return options;
}

Response complete(const RunningServer& server, const std::string& more, const char* key) {
  return server.post("/v1/completions", R"({"prompt":"0123456789","max_tokens":)" + more + "}",
                     key);
}

TEST(KeyLines, NamesAndLimits) {
  server::ApiKeys keys;
  ASSERT_TRUE(
      keys.add_lines("one\tAda  Lovelace  rpm=60\ttpm=20000 concurrent=4\ntwo concurrent=1\n", "k")
          .ok());
  const auto one = keys.find("one"), two = keys.find("two");
  ASSERT_TRUE(one && two);
  EXPECT_EQ(one->name, "Ada Lovelace");
  EXPECT_EQ(one->limits.requests, 60);
  EXPECT_EQ(one->limits.tokens, 20000);
  EXPECT_EQ(one->limits.concurrent, 4);
  EXPECT_THAT(two->name, StartsWith("key-"));
  EXPECT_EQ(two->limits.requests, 0);
  EXPECT_EQ(two->limits.concurrent, 1);
}

TEST(KeyLines, SayWhoIsNotLearnedFrom) {
  server::ApiKeys keys;
  const Status added = keys.add_lines("one Ada learn=no rpm=60\nsha256:" + server::hash_key("two") +
                                          " rpm=5 learn=no\nthree\nfour learn=yes\n",
                                      "k");
  ASSERT_TRUE(added.ok()) << added.message();
  EXPECT_FALSE(keys.find("one")->learn);
  EXPECT_EQ(keys.find("one")->limits.requests, 60);
  EXPECT_FALSE(keys.find("two")->learn);
  EXPECT_TRUE(keys.find("three")->learn);
  EXPECT_TRUE(keys.find("four")->learn);
  EXPECT_THAT(keys.add_lines("five learn=perhaps\n", "k").message(),
              HasSubstr("learn= is followed by yes or no"));
}

TEST(KeyLines, SayWhatIsWrongAndWhere) {
  for (const char* bad :
       {"rpm=0", "rpm=", "rpm=-1", "rpm=1.5", "rpm=60x", "rpm=99999999999999999999", "rps=1", "=1",
        "rpm=1 rpm=2", "rpm=1 Alice", "a=b"}) {
    server::ApiKeys keys;
    const Status status = keys.add_lines(std::string("good\nthe-key name ") + bad + "\n", "file");
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(status.message(), StartsWith("file, line 2: ")) << bad;
    EXPECT_THAT(status.message(), ::testing::Not(HasSubstr("the-key"))) << bad;
  }
}

class Limiter : public ::testing::Test {
 protected:
  void pass(double seconds) {
    now_ +=
        std::chrono::duration_cast<SteadyTime::duration>(std::chrono::duration<double>(seconds));
  }
  // Of `who`, ended at once; what it would have to wait for.
  double ask(const RateLimits& limits, const std::string& who = "a") {
    const auto refusal = limiter_.enter(who, limits, now_);
    if (refusal) return refusal->wait_seconds;
    limiter_.leave(who);
    return 0.0;
  }
  double take(int64_t tokens, const RateLimits& limits) {
    const auto refusal = limiter_.take_tokens("a", limits, tokens, now_);
    return refusal ? refusal->wait_seconds : 0.0;
  }

  RateLimiter limiter_;
  SteadyTime now_ = steady_now();
};

TEST_F(Limiter, WhatAMinuteAllowsComesBackEvenly) {
  const RateLimits limits{.requests = 6};
  for (int i = 0; i < 6; ++i) EXPECT_EQ(ask(limits), 0.0) << i;
  EXPECT_NEAR(ask(limits), 10.0, 1e-6);
  EXPECT_EQ(ask(limits, "b"), 0.0);
  pass(4.0);
  EXPECT_NEAR(ask(limits), 6.0, 1e-6);  // what was refused has taken nothing
  EXPECT_EQ(limiter_.levels("a", limits, now_).requests, 0);
  EXPECT_NEAR(limiter_.levels("a", limits, now_).requests_full, 56.0, 1e-6);
  pass(6.0);
  EXPECT_EQ(ask(limits), 0.0);
  EXPECT_GT(ask(limits), 0.0);
  pass(3600.0);
  EXPECT_EQ(limiter_.levels("a", limits, now_).requests, 6);
  // Another limit goes by what was taken.
  for (int i = 0; i < 4; ++i) ask(limits);
  EXPECT_EQ(limiter_.levels("a", RateLimits{.requests = 10}, now_).requests, 6);
}

TEST_F(Limiter, NobodyGetsMoreInTheLongRun) {
  const RateLimits limits{.requests = 7, .tokens = 1000};
  int requests = 0;
  int64_t tokens = 0;
  constexpr int kMinutes = 50;
  for (int i = 0; i < kMinutes * 600; ++i) {
    pass(0.1);
    if (ask(limits) > 0.0) continue;
    ++requests;
    if (take(300, limits) > 0.0) continue;
    // Each takes another number than it was thought to.
    const int64_t used = i % 3 == 0 ? 450 : 20;
    limiter_.correct_tokens("a", 300 - used);
    tokens += used;
  }
  EXPECT_LE(requests, 7 * (kMinutes + 1));
  EXPECT_GE(requests, 7 * kMinutes);
  EXPECT_LE(tokens, 1000 * (kMinutes + 1) + 150);
}

TEST_F(Limiter, TokensMayBeOwed) {
  const RateLimits limits{.tokens = 600};
  EXPECT_EQ(take(600, limits), 0.0);
  limiter_.correct_tokens("a", -300);
  EXPECT_EQ(limiter_.levels("a", limits, now_).tokens, 0);
  EXPECT_NEAR(take(10, limits), 31.0, 1e-6);
  pass(31.0);
  EXPECT_EQ(take(10, limits), 0.0);
  const auto never = limiter_.take_tokens("a", limits, 601, now_);
  ASSERT_TRUE(never);
  EXPECT_EQ(never->wait_seconds, 0.0);
}

TEST_F(Limiter, ForgetsOnlyWhatHasNothingToTell) {
  const RateLimits limits{.requests = 2, .concurrent = 1};
  EXPECT_FALSE(limiter_.enter("runs", limits, now_));
  pass(120.0);
  ask(limits, "asked");
  ask(limits, "asked");
  for (int i = 0; i < 5000; ++i) ask(limits, "once " + std::to_string(i));
  EXPECT_GT(ask(limits, "asked"), 0.0);
  EXPECT_GT(ask(limits, "runs"), 0.0);
}

TEST(KeyLimits, RequestsAMinute) {
  RunningServer server(says("abc"), options_of("key-a alice rpm=2\nkey-b bob"));
  const Response first = complete(server, "8", kAlice);
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(first.header("x-ratelimit-limit-requests"), "2");
  EXPECT_EQ(first.header("x-ratelimit-remaining-requests"), "1");
  EXPECT_EQ(first.header("x-ratelimit-limit-tokens"), "");
  EXPECT_EQ(server.get("/v1/models", kAlice).status, 200);
  const Response refused = complete(server, "8", kAlice);
  EXPECT_EQ(refused.status, 429);
  const Json error = refused.json()["error"];
  EXPECT_EQ(error["code"], "rate_limit_exceeded");
  EXPECT_EQ(error["type"], "requests");
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("alice may have 2 requests a minute"));
  EXPECT_EQ(refused.header("x-ratelimit-limit-requests"), "2");
  EXPECT_EQ(refused.header("x-ratelimit-remaining-requests"), "0");
  const int wait = std::stoi("0" + refused.header("Retry-After"));
  EXPECT_GE(wait, 1);
  EXPECT_LE(wait, 30);
  for (const char* path : {"/health", "/ready", "/"}) {
    EXPECT_EQ(server.get(path, kAlice).status, 200) << path;
  }
  const Response other = complete(server, "8", kBob);
  EXPECT_EQ(other.status, 200);
  EXPECT_EQ(other.header("x-ratelimit-limit-requests"), "");
  // An account is closed a moment after its answer has come.
  std::string metrics;
  EXPECT_TRUE(test::eventually([&] {
    metrics = server.get("/metrics", kBob).body;
    const auto has = [&](const char* line) { return metrics.find(line) != std::string::npos; };
    return has("aerie:key_requests_running{key=\"bob\"} 1\n") &&  // this one
           has("aerie:key_requests_running{key=\"alice\"} 0\n");
  }));
  EXPECT_THAT(metrics, HasSubstr("aerie:key_requests_total{key=\"alice\"} 2\n"));
  EXPECT_THAT(metrics, HasSubstr("aerie:key_refused_total{key=\"alice\",limit=\"requests\"} 1\n"));
  EXPECT_THAT(metrics, HasSubstr("aerie:key_prompt_tokens_total{key=\"alice\"} 10\n"));
  EXPECT_THAT(metrics, HasSubstr("aerie:key_generation_tokens_total{key=\"alice\"} 4\n"));
}

TEST(KeyLimits, RequestsAtOnce) {
  RunningServer server(says("abc"), options_of("key-a alice concurrent=1"));
  // One after the other: an answer that has come has left.
  for (int i = 0; i < 20; ++i) ASSERT_EQ(complete(server, "8", kAlice).status, 200) << i;
  // The one that runs next is then the busy one's.
  ASSERT_TRUE(eventually([&] { return server.service().running() == 0; }));
  Client busy(server.port());
  busy.send_request("POST", "/v1/completions", R"({"prompt":"HANG"})", kAlice);
  ASSERT_TRUE(eventually([&] { return server.service().running() == 1; }));
  const Response refused = complete(server, "8", kAlice);
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.header("Retry-After"), "1");
  EXPECT_THAT(refused.body, HasSubstr("1 requests at once"));
  busy.hang_up();
  EXPECT_TRUE(eventually([&] { return complete(server, "8", kAlice).status == 200; }));
}

TEST(KeyLimits, TokensAMinute) {
  RunningServer server(says("abc"), options_of("key-a alice tpm=6000"));
  const auto left = [&](const Response& response) {
    return std::stoi("0" + response.header("x-ratelimit-remaining-tokens"));
  };
  // Ten of the prompt and four of the reply were taken, whatever was asked for; some came back.
  const Response first = complete(server, "5000", kAlice);
  EXPECT_EQ(first.status, 200);
  EXPECT_NEAR(left(first), 6000 - 14, 14);
  EXPECT_THAT(first.header("x-ratelimit-reset-tokens"), HasSubstr("ms"));
  // Of a stream it is what was reserved.
  Client stream(server.port());
  stream.send_request("POST", "/v1/completions",
                      R"({"prompt":"0123456789","stream":true,"max_tokens":5000})", kAlice);
  const Response begun = stream.read_response();
  EXPECT_EQ(begun.status, 200);
  EXPECT_NEAR(left(begun), 6000 - 5010, 200);
  // Two prompts, and two replies to each.
  const Response four = server.post(
      "/v1/completions", R"({"prompt":["0123456789","0123456789"],"n":2,"max_tokens":5})", kAlice);
  EXPECT_EQ(four.status, 200);
  EXPECT_EQ(four.json()["usage"]["total_tokens"], 2 * 10 + 4 * 4);
  const Response large = complete(server, "5991", kAlice);
  EXPECT_EQ(large.status, 429);
  EXPECT_EQ(large.json()["error"]["type"], "tokens");
  EXPECT_EQ(large.header("Retry-After"), "");
  EXPECT_EQ(large.header("x-should-retry"), "false");
  // One that hangs has what it asked for, and gives it back when it goes.
  ASSERT_TRUE(eventually([&] { return server.service().running() == 0; }));
  Client busy(server.port());
  busy.send_request("POST", "/v1/completions", R"({"prompt":"HANG","max_tokens":5500})", kAlice);
  ASSERT_TRUE(eventually([&] { return server.service().running() == 1; }));
  const Response refused = complete(server, "4000", kAlice);
  EXPECT_EQ(refused.status, 429);
  EXPECT_GE(std::stoi("0" + refused.header("Retry-After")), 30);
  // Without max_tokens the reply may be as long as the context, but reserves the limit at most.
  const Response unbounded =
      server.post("/v1/chat/completions",
                  R"({"messages":[{"role":"user","content":"x"}],"stream":false})", kAlice);
  EXPECT_EQ(unbounded.status, 429);
  EXPECT_GE(std::stoi("0" + unbounded.header("Retry-After")), 30);
  busy.hang_up();
  EXPECT_TRUE(eventually([&] { return complete(server, "4000", kAlice).status == 200; }));
  const Response metrics = server.get("/metrics", kAlice);
  EXPECT_THAT(metrics.body, HasSubstr("aerie:key_refused_total{key=\"alice\",limit=\"tokens\"}"));
}

TEST(KeyLimits, AReplyWithoutABoundReservesTheLimit) {
  RunningServer server(says("abc"), options_of("key-a alice tpm=6000"));
  const Response response = server.post("/v1/chat/completions",
                                        R"({"messages":[{"role":"user","content":"x"}]})", kAlice);
  EXPECT_EQ(response.status, 200) << response.body;
}

TEST(KeyLimits, OtherKeysFromNowOn) {
  RunningServer server(says("abc"), options_of("key-a alice rpm=2"));
  Client client(server.port());
  const auto status = [&](const char* key) {
    client.send_request("GET", "/v1/models", "", key);
    return client.read_response().status;
  };
  EXPECT_EQ(status(kAlice), 200);
  EXPECT_EQ(status(kBob), 401);
  server::ApiKeys keys;
  ASSERT_TRUE(keys.add_lines("key-b bob\nkey-a alice rpm=1", "keys").ok());
  server.server().set_keys(keys);
  // On the same connection; what was taken before counts.
  EXPECT_EQ(status(kBob), 200);
  EXPECT_EQ(status(kAlice), 429);
  keys = {};
  ASSERT_TRUE(keys.add_lines("key-b bob", "keys").ok());
  server.server().set_keys(keys);
  EXPECT_EQ(status(kAlice), 401);
}

TEST(KeyFigures, HaveABoundedNumberOfNames) {
  server::KeyFigures figures;
  for (int i = 0; i < 1500; ++i) {
    const std::string name = "key " + std::to_string(i);
    figures.on_begin(name);
    figures.on_end(name, 1, 2);
  }
  const std::string text = figures.text();
  EXPECT_THAT(text, HasSubstr("aerie:key_requests_total{key=\"key 999\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("aerie:key_requests_total{key=\"other\"} 500\n"));
  EXPECT_THAT(text, HasSubstr("aerie:key_requests_running{key=\"other\"} 0\n"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("key 1000")));
}

}  // namespace aerie::server_keys_test
