// Many requests at once: each gets what it gets alone.

#include "engine/service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>
#include <random>
#include <thread>

#include "grammar/compiled_grammar.h"
#include "tests/testing/sanitized.h"
#include "tests/testing/temporary_model.h"

namespace aerie::service_test {

using ::testing::HasSubstr;
using ::testing::StartsWith;

test::TinySpec spec() {
  test::TinySpec spec;
  spec.tokenizer = true;
  spec.vocab = test::kByteVocab;
  spec.context = 512;
  return spec;
}

const std::string& model() {
  static const test::TemporaryModel model("service", spec());
  return model.path();
}

// Collects a reply; the other threads wait for it.
class Collector final : public ReplySink {
 public:
  void on_delta(ReplyDelta delta) override {
    std::unique_lock lock(mutex_);
    EXPECT_FALSE(ended_);
    EXPECT_FALSE(delta.tokens.empty());
    text_ += delta.text;
    for (const EmittedToken& token : delta.tokens) tokens_.push_back(token.id);
    traced_ += delta.tree.size();
    changed_.notify_all();
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(120),
                                  [&] { return held_at_ == 0 || tokens_.size() < held_at_; }));
  }
  void on_end(ReplyEnd end) override {
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(ended_);
    text_ += end.text;
    end_ = std::move(end);
    ended_ = true;
    changed_.notify_all();
  }

  // With so many tokens the service stands still until go_on(): however busy the machine is, the
  // reply has not ended before.
  void hold_at(size_t tokens) {
    const std::lock_guard lock(mutex_);
    held_at_ = tokens;
  }
  void go_on() {
    hold_at(0);
    changed_.notify_all();
  }

  const ReplyEnd& wait() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(120), [&] { return ended_; }));
    return end_;
  }
  void wait_for_tokens(size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(120),
                                  [&] { return ended_ || tokens_.size() >= count; }));
  }
  // After wait().
  const std::string& text() const { return text_; }
  const std::vector<int32_t>& tokens() const { return tokens_; }
  size_t traced() const { return traced_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string text_;
  std::vector<int32_t> tokens_;
  size_t traced_ = 0;
  size_t held_at_ = 0;
  ReplyEnd end_;
  bool ended_ = false;
};

EngineOptions engine_options() {
  EngineOptions options;
  options.model = model();
  options.threads = 2;
  options.speculation = parse_speculative_spec("auto").value();
  options.more_speculations = {
      parse_speculative_spec("ngram:gate=0").value(),
      parse_speculative_spec("draft_model:gate=0,model=" + model()).value(),
      parse_speculative_spec("none").value()};
  return options;
}

std::unique_ptr<Service> open(ServiceOptions options = {}) {
  if (options.cache_positions == 0) options.cache_positions = 8192;
  auto service = open_service(engine_options(), options);
  EXPECT_TRUE(service.ok()) << service.status().message();
  return std::move(service).value();
}

Request request(int max_tokens = 40) {
  Request request;
  request.prompt = {'O', 'n', 'c', 'e', ' ', 'u', 'p', 'o', 'n', ' ', 'a'};
  request.sampling.seed = 5;
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  return request;
}

std::shared_ptr<Collector> submit(Service& service, Request request, Service::Id* id = nullptr,
                                  size_t hold_at = 0) {
  auto sink = std::make_shared<Collector>();
  sink->hold_at(hold_at);
  const auto submitted = service.submit(std::move(request), sink);
  EXPECT_TRUE(submitted.ok()) << submitted.status().message();
  if (id != nullptr && submitted.ok()) *id = *submitted;
  return sink;
}

std::vector<Request> mixed_requests(int count) {
  std::vector<Request> requests;
  std::mt19937_64 random(3);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
  for (int i = 0; i < count; ++i) {
    Request one = request(1 + below(60));
    const auto more = test::random_tokens(random(), below(150), 128);
    if (below(2) == 0) one.prompt.clear();
    one.prompt.insert(one.prompt.end(), more.begin(), more.end());
    if (one.prompt.empty()) one.prompt = {'a'};
    one.sampling.seed = random();
    one.sampling.temperature = 0.25 * below(5);
    if (below(3) == 0) one.sampling.top_k = 20;
    if (below(3) == 0) one.sampling.frequency_penalty = 0.5;
    one.speculation = below(4);
    one.speculate = below(5) != 0;
    one.max_draft_depth = below(3);
    one.ignore_eos = below(2) == 0;
    if (below(4) == 0) one.stop = {"e"};
    one.client = std::string(1, static_cast<char>('a' + below(3)));
    requests.push_back(std::move(one));
  }
  return requests;
}

struct Alone {
  std::vector<int32_t> tokens;
  std::string text;
  FinishReason finish;
};

std::vector<Alone> alone(const std::vector<Request>& requests) {
  EngineOptions options = engine_options();
  options.speculation = {};
  options.more_speculations.clear();
  const auto engine = std::move(Engine::open(options)).value();
  std::vector<Alone> replies;
  for (const Request& one : requests) {
    Request plain;
    plain.prompt = one.prompt;
    plain.sampling = one.sampling;
    plain.max_tokens = one.max_tokens;
    plain.stop = one.stop;
    plain.ignore_eos = one.ignore_eos;
    auto reply = engine->generate(plain, nullptr);
    EXPECT_TRUE(reply.ok()) << reply.status().message();
    replies.push_back({reply->tokens, reply->text, reply->finish});
  }
  return replies;
}

TEST(Service, EachReplyIsThatOfALoneRun) {
  const std::vector<Request> requests = mixed_requests(64);
  const std::vector<Alone> expected = alone(requests);
  for (const int sequences : {4, 64}) {
    ServiceOptions options;
    options.max_sequences = sequences;
    options.max_pass_tokens = 96;
    const auto service = open(options);
    std::vector<std::shared_ptr<Collector>> sinks(requests.size());
    std::vector<std::thread> clients;
    for (size_t t = 0; t < 4; ++t) {
      clients.emplace_back([&, t] {
        for (size_t i = t; i < requests.size(); i += 4) sinks[i] = submit(*service, requests[i]);
      });
    }
    for (std::thread& client : clients) client.join();
    int64_t generated = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      const ReplyEnd& end = sinks[i]->wait();
      EXPECT_EQ(end.outcome, ReplyOutcome::kDone) << end.status.message();
      EXPECT_EQ(sinks[i]->tokens(), expected[i].tokens) << i;
      EXPECT_EQ(sinks[i]->text(), expected[i].text) << i;
      EXPECT_EQ(end.finish, expected[i].finish) << i;
      EXPECT_EQ(end.generated_tokens, static_cast<int>(expected[i].tokens.size()));
      EXPECT_EQ(end.prompt_tokens, static_cast<int>(requests[i].prompt.size()));
      generated += end.generated_tokens;
    }
    while (service->stats().requests < 64) std::this_thread::yield();
    const ServiceStats stats = service->stats();
    EXPECT_EQ(stats.generated_tokens, generated);
    EXPECT_EQ(stats.running, 0);
    EXPECT_EQ(stats.waiting, 0);
    EXPECT_EQ(stats.cache_usage, 0.0);
    EXPECT_GT(stats.drafts, 0);
    EXPECT_GT(stats.accepted_tokens, 0);
    EXPECT_GE(stats.draft_tokens, stats.accepted_tokens);
    EXPECT_GT(stats.passes, 0);
  }
}

TEST(Service, ASecondRequestFindsThePromptOfTheFirst) {
  const auto service = open();
  Request one = request(10);
  one.prompt = test::random_tokens(4, 300, 128);
  const auto first = submit(*service, one);
  EXPECT_EQ(first->wait().cached_tokens, 0);
  const auto second = submit(*service, one);
  EXPECT_EQ(second->wait().cached_tokens, 299);
  EXPECT_EQ(first->tokens(), second->tokens());
  while (service->stats().requests < 2) std::this_thread::yield();
  EXPECT_EQ(service->stats().prefix_hits, 299);
  EXPECT_EQ(service->stats().prefix_queries, 600);
}

TEST(Service, CancellingEndsAReplyWithinAPass) {
  const auto service = open();
  Service::Id id = 0;
  const auto reply = submit(*service, request(400), &id, 5);
  reply->wait_for_tokens(5);
  service->cancel(id);
  reply->go_on();
  const ReplyEnd& end = reply->wait();
  EXPECT_EQ(end.outcome, ReplyOutcome::kCancelled);
  EXPECT_LT(reply->tokens().size(), 400u);
  service->cancel(id);    // has ended
  service->cancel(4711);  // never was
  EXPECT_EQ(submit(*service, request(3))->wait().outcome, ReplyOutcome::kDone);
}

TEST(Service, DeadlinesEndAReply) {
  const auto service = open();
  Request late = request(400);
  late.deadline = std::chrono::steady_clock::now();
  EXPECT_EQ(submit(*service, late)->wait().outcome, ReplyOutcome::kDeadline);
}

TEST(Service, RefusesWhatCannotBeServed) {
  const auto service = open();
  const auto refusal = [&](const Request& one) {
    const auto submitted = service->submit(one, std::make_shared<Collector>());
    EXPECT_FALSE(submitted.ok());
    EXPECT_EQ(submitted.status().code(), StatusCode::kInvalidArgument);
    return submitted.status().message();
  };
  Request one = request();
  one.prompt.clear();
  EXPECT_THAT(refusal(one), HasSubstr("no tokens"));
  one.prompt.assign(600, 'a');
  EXPECT_THAT(refusal(one), HasSubstr("512"));
  one.prompt = {1 << 20};
  EXPECT_THAT(refusal(one), HasSubstr("vocabulary"));
  one = request();
  one.sampling.temperature = -1;
  EXPECT_THAT(refusal(one), HasSubstr("temperature"));
  one = request();
  one.speculation = 9;
  EXPECT_THAT(refusal(one), HasSubstr("9"));
  one = request(-1);
  EXPECT_THAT(refusal(one), HasSubstr("max_tokens"));
}

TEST(Service, RefusesMoreThanMayWait) {
  ServiceOptions options;
  options.max_sequences = 1;
  options.max_waiting = 2;
  const auto service = open(options);
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int i = 0; i < 3; ++i) sinks.push_back(submit(*service, request(300), nullptr, 1));
  const auto refused = service->submit(request(), std::make_shared<Collector>());
  for (const auto& sink : sinks) sink->go_on();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  for (const auto& sink : sinks) EXPECT_EQ(sink->wait().outcome, ReplyOutcome::kDone);
}

// One client alone does not lock the others out.
TEST(Service, KeepsPlacesForOtherClients) {
  ServiceOptions options;
  options.max_sequences = 1;
  options.max_waiting = 15;
  const auto service = open(options);
  std::vector<std::shared_ptr<Collector>> sinks;
  const auto ask = [&](const char* client) {
    Request one = request(300);
    one.client = client;
    auto sink = std::make_shared<Collector>();
    sink->hold_at(1);
    const bool taken = service->submit(std::move(one), sink).ok();
    if (taken) sinks.push_back(std::move(sink));
    return taken;
  };
  for (int i = 0; i < 14; ++i) EXPECT_TRUE(ask("a")) << i;
  EXPECT_FALSE(ask("a"));
  EXPECT_TRUE(ask("b"));
  EXPECT_FALSE(ask("a"));
  EXPECT_TRUE(ask("c"));
  EXPECT_FALSE(ask("d"));
  for (const auto& sink : sinks) sink->go_on();
  service->drain();
  for (const auto& sink : sinks) EXPECT_EQ(sink->wait().outcome, ReplyOutcome::kDone);
}

TEST(Service, DrainingFinishesWhatWasTaken) {
  const auto service = open();
  const auto reply = submit(*service, request(50));
  service->drain();
  const auto refused = service->submit(request(), std::make_shared<Collector>());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kCancelled);
  EXPECT_EQ(reply->wait().outcome, ReplyOutcome::kDone);
  EXPECT_EQ(reply->tokens().size(), 50u);
}

TEST(Service, ItsEndCancelsWhatIsLeft) {
  auto service = open();
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int i = 0; i < 20; ++i) sinks.push_back(submit(*service, request(450)));
  service.reset();
  for (const auto& sink : sinks) {
    const ReplyOutcome outcome = sink->wait().outcome;
    EXPECT_TRUE(outcome == ReplyOutcome::kCancelled || outcome == ReplyOutcome::kDone);
  }
}

// What no one request can be blamed for ends the service, not the process.
TEST(Service, WithoutMemoryItEndsAndSaysSo) {
  class Greedy final : public ReplySink {
   public:
    void on_delta(ReplyDelta) override { throw std::bad_alloc(); }
    void on_end(ReplyEnd) override {}
  };
  const auto service = open();
  EXPECT_TRUE(service->failure().ok());
  const auto other = submit(*service, request(450), nullptr, 1);
  other->wait_for_tokens(1);
  const auto greedy = service->submit(request(), std::make_shared<Greedy>());
  other->go_on();
  ASSERT_TRUE(greedy.ok());
  EXPECT_EQ(other->wait().outcome, ReplyOutcome::kCancelled);
  for (int i = 0; i < 6000 && service->failure().ok(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(service->failure().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(service->failure().message(), HasSubstr("memory"));
  EXPECT_EQ(service->submit(request(), std::make_shared<Collector>()).status().code(),
            StatusCode::kCancelled);
}

TEST(Service, SaysWhatItServes) {
  const auto service = open();
  EXPECT_THAT(service->model_name(), StartsWith("aerie_"));
  EXPECT_EQ(service->context(), 512);
  ASSERT_EQ(service->speculations().size(), 4u);
  EXPECT_EQ(service->speculations()[1], "ngram:gate=0");
  EXPECT_EQ(service->speculations()[3], "none");
  EXPECT_TRUE(service->chat_template().ok());
}

SpeculativeConfig draft_model_setting() {
  return parse_speculative_spec("draft_model:gate=0,model=" + model()).value();
}

std::unique_ptr<Service> open_with_room(int draft_room) {
  EngineOptions engine = engine_options();
  engine.speculation = {};
  engine.more_speculations.clear();
  engine.draft_room = draft_room;
  ServiceOptions options;
  options.cache_positions = 8192;
  auto service = open_service(engine, options);
  EXPECT_TRUE(service.ok()) << service.status().message();
  return std::move(service).value();
}

// Settings come and go under load, and whatever drafts, ids are those of a plain reply.
TEST(Service, SpeculationsAreAddedAndRemovedWhileItRuns) {
  const auto service = open_with_room(16);
  const auto plain = submit(*service, request(60));
  plain->wait();
  const auto running = submit(*service, request(450));
  running->wait_for_tokens(1);
  const int64_t before = service->memory_bytes();
  std::vector<std::shared_ptr<Collector>> replies;
  for (int round = 0; round < 3; ++round) {
    const auto added = service->add_speculation(draft_model_setting());
    ASSERT_TRUE(added.ok()) << added.status().message();
    EXPECT_EQ(*added, 1 + round) << "numbers are not given again";
    EXPECT_THAT(service->speculations().back(), StartsWith("draft_model"));
    EXPECT_GT(service->memory_bytes(), before);
    Request one = request(60);
    one.speculation = *added;
    replies.push_back(submit(*service, one));
    replies.back()->wait_for_tokens(1);
    EXPECT_TRUE(service->remove_speculation(*added).ok());
    EXPECT_EQ(service->speculations().back(), "");
    // What was drafted for goes on so; who comes now gets the first setting.
    replies.push_back(submit(*service, one));
    EXPECT_EQ(replies.back()->wait().stats.drafted, 0);
    EXPECT_EQ(service->remove_speculation(*added).code(), StatusCode::kNotFound);
  }
  for (size_t i = 0; i < replies.size(); ++i) {
    const ReplyEnd& end = replies[i]->wait();
    EXPECT_EQ(end.stats.drafted > 0, i % 2 == 0);
    EXPECT_EQ(replies[i]->tokens(), plain->tokens());
  }
  EXPECT_EQ(running->wait().finish, FinishReason::kLength);
  EXPECT_EQ(service->remove_speculation(0).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(service->remove_speculation(9).code(), StatusCode::kNotFound);
  submit(*service, request(1))->wait();
  EXPECT_EQ(service->memory_bytes(), before);
}

// What drafts on paper changes nothing, and would have brought what it brings in earnest.
TEST(Service, AShadowDraftsOnPaper) {
  const auto service = open_with_room(16);
  const int setting = service->add_speculation(draft_model_setting()).value();
  Request one = request(120);
  const auto plain = submit(*service, one);
  plain->wait();
  one.speculation = setting;
  const auto drafted = submit(*service, one);
  const SequenceStats& real = drafted->wait().stats;
  one.speculation = 0;
  one.shadow = setting;
  const auto shadowed = submit(*service, one);
  const ReplyEnd& end = shadowed->wait();
  EXPECT_EQ(shadowed->tokens(), plain->tokens());
  EXPECT_EQ(end.stats.drafted, 0);
  const ShadowStats& paper = end.stats.shadow;
  EXPECT_EQ(paper.rounds, 118);  // of the last round nothing could come
  // The draft model is the target itself: all that it says comes, but for the end.
  EXPECT_GT(real.acceptance_rate(), 0.9);
  EXPECT_GT(static_cast<double>(paper.accepted), 0.9 * static_cast<double>(paper.drafted));
  EXPECT_GT(paper.seconds, 0.0);
  EXPECT_GT(paper.accepted_at.size(), 3u);
  EXPECT_EQ(paper.accepted_at[0], paper.rounds);
  // Beside one that drafts in earnest, and one that has gone.
  one.speculation = setting;
  one.shadow = service->add_speculation(parse_speculative_spec("ngram:gate=0").value()).value();
  const auto both = submit(*service, one);
  EXPECT_GT(both->wait().stats.drafted, 0);
  EXPECT_EQ(both->tokens(), plain->tokens());
  EXPECT_TRUE(service->remove_speculation(one.shadow).ok());
  EXPECT_EQ(submit(*service, one)->wait().stats.shadow.drafted, 0);
  EXPECT_TRUE(service->remove_speculation(setting).ok());
}

TEST(Service, SpeculationsThatCannotBeAddedChangeNothing) {
  const auto without_room = open_with_room(0);
  EXPECT_EQ(without_room->add_speculation(draft_model_setting()).status().code(),
            StatusCode::kUnsupported);
  const auto service = open_with_room(4);
  const auto refused = service->add_speculation(draft_model_setting());
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), HasSubstr("room for 4"));
  EXPECT_FALSE(
      service->add_speculation(parse_speculative_spec("eagle3:model=no/such/head").value()).ok());
  EXPECT_EQ(service->speculations().size(), 1u);
  const auto ngram = parse_speculative_spec("ngram:num_speculative_tokens=4").value();
  for (int i = 0; i < 16; ++i) EXPECT_TRUE(service->add_speculation(ngram).ok());
  EXPECT_EQ(service->add_speculation(ngram).status().code(), StatusCode::kResourceExhausted);
}

// As in a file that is read while others are answered.
TEST(Service, SpeculationsAreChangedByManyAtOnce) {
  const auto service = open_with_room(16);
  const auto plain = submit(*service, request(30));
  plain->wait();
  std::atomic<bool> over = false;
  std::thread changing([&] {
    while (!over) {
      const auto added = service->add_speculation(draft_model_setting());
      if (added.ok()) {
        EXPECT_TRUE(service->remove_speculation(*added).ok());
      }
    }
  });
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([&] {
      for (int k = 0; k < 6; ++k) {
        Request one = request(30);
        one.speculation = static_cast<int>(service->speculations().size()) - 1;
        const auto reply = submit(*service, one);
        EXPECT_EQ(reply->wait().outcome, ReplyOutcome::kDone);
        EXPECT_EQ(reply->tokens(), plain->tokens());
      }
    });
  }
  for (std::thread& client : clients) client.join();
  over = true;
  changing.join();
}

TEST(Service, TracesDraftsWhereAsked) {
  const auto service = open();
  Request one = request(100);
  one.speculation = 2;
  const auto untraced = submit(*service, one);
  one.trace = true;
  const auto traced = submit(*service, one);
  EXPECT_GT(traced->wait().stats.drafted, 0);
  untraced->wait();
  EXPECT_EQ(untraced->traced(), 0u);
  EXPECT_EQ(traced->traced(), static_cast<size_t>(traced->wait().stats.drafted));
}

// A choice whose text is long: most of it is forced, and drafted without any drafter's help.
TEST(Service, ConstrainedRepliesKeepToTheirGrammar) {
  const auto service = open();
  GrammarSpec spec;
  spec.kind = GrammarKind::kChoice;
  spec.choices = {"the quick brown fox jumps", "a lazy dog sleeps in the sun"};
  const auto grammar = compile_grammar(spec, service->token_trie());
  ASSERT_TRUE(grammar.ok()) << grammar.status().message();
  std::vector<int32_t> expected;
  for (const int speculation : {3, 0, 1, 2}) {  // none first
    Request one = request(200);
    one.ignore_eos = false;
    one.sampling.temperature = 1.0;
    one.speculation = speculation;
    one.grammar = *grammar;
    const auto reply = submit(*service, one);
    const ReplyEnd& end = reply->wait();
    EXPECT_EQ(end.finish, FinishReason::kStop);
    EXPECT_THAT(spec.choices, ::testing::Contains(reply->text()));
    if (expected.empty()) expected = reply->tokens();
    EXPECT_EQ(reply->tokens(), expected);
    // "auto" goes by the clock, which says little of rows that a sanitizer watches.
    if (test::kSanitized && speculation == 0) continue;
    EXPECT_EQ(end.stats.mean_accepted_length() > 3.0, speculation != 3);
  }
}

// Beside constraints that ask for much others go on, and all say what they say alone, or begin so.
TEST(Service, ConstraintsThatAskForMuchHarmNoOther) {
  ServiceOptions options;
  options.grammar_bytes = int64_t{1} << 20;
  const auto service = open(options);
  const auto engine = std::move(Engine::open(engine_options())).value();
  const auto spec = [](const char* pattern) {
    GrammarSpec regex;
    regex.kind = GrammarKind::kRegex;
    regex.text = pattern;
    return regex;
  };
  const std::vector<GrammarSpec> specs = {spec("[a-z]{1,9}( [a-z]{1,9}){0,30}"),
                                          spec("(.{0,300}){3}"), spec("[a-d]*a[a-d]{14}x"),
                                          spec(".*.{300}")};
  CompileOptions compile;
  compile.pool = service->grammar_pool();
  std::vector<std::shared_ptr<Collector>> replies;
  std::vector<Request> requests;
  for (int i = 0; i < 12; ++i) {
    Request one = request(60);
    one.sampling.temperature = 1.0;
    one.sampling.seed = static_cast<uint64_t>(i);
    one.ignore_eos = false;
    one.speculation = i % 4;
    requests.push_back(one);
    if (i % 3 != 0) {
      const auto grammar =
          compile_grammar(specs[static_cast<size_t>(i) % 4], service->token_trie(), compile);
      ASSERT_TRUE(grammar.ok()) << grammar.status().message();
      one.grammar = *grammar;
    }
    replies.push_back(submit(*service, one));
  }
  for (size_t i = 0; i < replies.size(); ++i) {
    const ReplyEnd& end = replies[i]->wait();
    EXPECT_EQ(end.outcome, ReplyOutcome::kDone);
    Request alone = requests[i];
    if (i % 3 != 0) alone.grammar = engine->compile_grammar(specs[i % 4]).value();
    const auto expected = engine->generate(alone, nullptr);
    ASSERT_TRUE(expected.ok()) << expected.status().message();
    std::vector<int32_t> begin = expected->tokens;
    if (end.finish == FinishReason::kError) {
      EXPECT_THAT(end.status.message(), ::testing::HasSubstr("more than"));
      ASSERT_LE(replies[i]->tokens().size(), begin.size());
      begin.resize(replies[i]->tokens().size());
    } else {
      EXPECT_EQ(end.finish, expected->finish);
    }
    EXPECT_EQ(replies[i]->tokens(), begin) << i;
  }
  EXPECT_LE(service->grammar_pool()->memory()->used(), size_t{1} << 20);
}

// One that waits for a mask is cancelled at once.
TEST(Service, ARequestThatWaitsForItsConstraintCanBeCancelled) {
  // The pool's threads look at it until the service has ended.
  std::atomic<bool> goes_on = false;
  const auto service = open();
  const auto wait = [&] {
    while (!goes_on) std::this_thread::yield();
  };
  GrammarSpec spec;
  spec.kind = GrammarKind::kRegex;
  spec.text = "[a-z]+";
  const auto grammar = compile_grammar(spec, service->token_trie());
  ASSERT_TRUE(grammar.ok());
  // Nobody has time for it: neither the pool nor the thread that decodes, to which it is heavy.
  for (int i = 0; i < 2; ++i) service->grammar_pool()->post(wait, GrammarPool::Length::kShort);
  (*grammar)->is_heavy() = true;
  Request one = request(30);
  one.grammar = *grammar;
  Service::Id id = 0;
  const auto waits = submit(*service, one, &id);
  waits->wait_for_tokens(1);  // the mask of the first is known
  service->cancel(id);
  EXPECT_EQ(waits->wait().outcome, ReplyOutcome::kCancelled);
  one.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
  EXPECT_EQ(submit(*service, one)->wait().outcome, ReplyOutcome::kDeadline);
  EXPECT_EQ(submit(*service, request(5))->wait().outcome, ReplyOutcome::kDone);
  goes_on = true;
}

}  // namespace aerie::service_test
