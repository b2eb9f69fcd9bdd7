// The engine as programs outside the tree have it: through include/aerie alone.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "aerie/engine.h"
#include "tests/testing/temporary_model.h"
#include "tests/testing/tiny_model.h"

namespace aerie::door_test {

using ::testing::HasSubstr;

const std::string& model() {
  static const test::TemporaryModel file("door", [] {
    test::TinySpec spec;
    spec.tokenizer = true;
    spec.vocab = test::kByteVocab;
    spec.context = 512;
    return spec;
  }());
  return file.path();
}

std::unique_ptr<Engine> open(OpenOptions options = {}) {
  options.model = model();
  options.threads = 2;
  auto engine = Engine::open(options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return std::move(engine).value();
}

Request request(const Engine& engine, const std::string& text, double temperature = 0.0) {
  Request request;
  request.prompt = engine.tokenize(text).value();
  request.sampling.temperature = temperature;
  request.sampling.seed = 5;
  request.max_tokens = 40;
  request.ignore_eos = true;
  return request;
}

// Waits for a reply.
class Waiting final : public ReplySink {
 public:
  void on_delta(ReplyDelta delta) override {
    std::unique_lock lock(mutex_);
    text_ += delta.text;
    for (const EmittedToken& token : delta.tokens) tokens_.push_back(token.id);
    changed_.wait(lock, [&] { return !held_; });
  }
  void on_end(ReplyEnd end) override {
    const std::lock_guard lock(mutex_);
    text_ += end.text;
    end_ = std::move(end);
    changed_.notify_all();
  }
  // While it is held the reply stands still behind its first tokens.
  void hold(bool held) {
    const std::lock_guard lock(mutex_);
    held_ = held;
    changed_.notify_all();
  }
  const ReplyEnd& wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return end_.has_value(); });
    return *end_;
  }
  const std::vector<int32_t>& tokens() {
    wait();
    return tokens_;
  }
  const std::string& text() {
    wait();
    return text_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;
  std::vector<int32_t> tokens_;
  std::string text_;
  std::optional<ReplyEnd> end_;
};

TEST(Door, OptionsAreTexts) {
  OpenOptions options;
  options.speculate = "ngram:num_speculative_tokens=4";
  options.more_speculations = {"none"};
  options.cache_type = "q8";
  options.type = "bf16";
  options.verify = "rejection";
  options.context = 100;
  const auto engine = open(options);
  EXPECT_EQ(engine->info().context, 100);
  EXPECT_EQ(engine->info().vocabulary, test::kByteVocab);
  EXPECT_TRUE(engine->info().has_chat_template);
  EXPECT_FALSE(engine->info().name.empty());

  const auto refusal = [](auto change) {
    OpenOptions wrong;
    wrong.model = model();
    change(wrong);
    const Status status = Engine::open(wrong).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  EXPECT_THAT(refusal([](OpenOptions& o) { o.speculate = "magic"; }), HasSubstr("magic"));
  EXPECT_THAT(refusal([](OpenOptions& o) { o.more_speculations = {"magic"}; }), HasSubstr("magic"));
  EXPECT_THAT(refusal([](OpenOptions& o) { o.cache_type = "q7"; }), HasSubstr("f16"));
  EXPECT_THAT(refusal([](OpenOptions& o) { o.type = "q7"; }), HasSubstr("q8_0"));
  EXPECT_THAT(refusal([](OpenOptions& o) { o.verify = "hope"; }), HasSubstr("exact"));
  EXPECT_THAT(refusal([](OpenOptions& o) { o.isa = "abacus"; }), HasSubstr("reference"));
  EXPECT_THAT(refusal([](OpenOptions& o) { o.device = "abacus"; }),
              HasSubstr("device: 'abacus': give auto"));
  EXPECT_THAT(refusal([](OpenOptions& o) { o.sequences = 0; }), HasSubstr("0 sequences"));
}

TEST(Door, TextToTokensAndBack) {
  const auto engine = open();
  const auto ids = engine->tokenize("Once upon", {.add_special = false});
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(engine->detokenize(*ids), "Once upon");
  EXPECT_EQ(engine->detokenize(std::vector<int32_t>{-1, 1 << 30}), "");
  const std::vector<ChatMessage> messages = {{"user", "Hi"}};
  const auto prompt = engine->apply_chat_template(messages);
  ASSERT_TRUE(prompt.ok()) << prompt.status().message();
  EXPECT_THAT(*prompt, HasSubstr("Hi"));
  EXPECT_LT(engine->tokenize(*prompt, {.parse_special = true})->size(),
            engine->tokenize(*prompt)->size());
  const std::string json = R"({"messages": [{"role": "user", "content": "Hi"}], "thinks": true})";
  EXPECT_EQ(engine->render_chat_template(json).value(), *prompt);
  EXPECT_EQ(engine->render_chat_template("{").status().code(), StatusCode::kInvalidData);
  EXPECT_EQ(engine->render_chat_template("[]").status().code(), StatusCode::kInvalidArgument);
}

TEST(Door, EndsWithTokensThatAreNamed) {
  const auto engine = open();
  Request one = request(*engine, "Once");
  const auto whole = engine->generate(one);
  ASSERT_TRUE(whole.ok() && whole->tokens.size() == 40u);
  one.stop_tokens = {1 << 20, whole->tokens[9]};
  const auto reply = engine->generate(one);
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->finish, FinishReason::kStop);
  ASSERT_LE(reply->tokens.size(), 10u);
  EXPECT_EQ(reply->tokens.back(), whole->tokens[9]);
  EXPECT_TRUE(whole->text.starts_with(reply->text));
  EXPECT_LT(reply->text.size(), reply->tokens.size() * 3);
}

TEST(Door, SuggestsWhatIsLeftToTheEngine) {
  const auto suggested = open()->suggested_sampling();
  ASSERT_TRUE(suggested.ok());
  EXPECT_EQ(suggested->temperature, 0.0);
}

// What the cache kept of an earlier prompt is not read again, and changes nothing.
TEST(Door, BeginsWithWhatItHasRead) {
  for (const char* speculate : {"none", "ngram"}) {
    OpenOptions options;
    options.speculate = speculate;
    const auto engine = open(options);
    options.prefix_cache = false;
    const auto forgetful = open(options);
    std::string text(100, 'a');
    for (int turn = 0; turn < 3; ++turn) {
      const Request one = request(*engine, text, 0.9);
      const auto reply = engine->generate(one);
      const auto other = forgetful->generate(one);
      ASSERT_TRUE(reply.ok() && other.ok());
      EXPECT_EQ(reply->tokens, other->tokens);
      EXPECT_EQ(other->cached_tokens, 0);
      if (turn == 0) {
        EXPECT_EQ(reply->cached_tokens, 0);
      } else {
        EXPECT_GT(reply->cached_tokens, 64);
        EXPECT_LT(reply->cached_tokens, reply->prompt_tokens);
      }
      text += " and then ";
    }
  }
}

TEST(Door, RepliesKeepToAGrammar) {
  for (const char* speculate : {"none", "ngram"}) {
    OpenOptions options;
    options.speculate = speculate;
    const auto engine = open(options);
    Request one = request(*engine, "Say so", 1.0);
    one.ignore_eos = false;
    one.grammar = engine->compile_grammar({GrammarKind::kChoice, "", {"yes", "no, never"}}).value();
    const auto reply = engine->generate(one);
    ASSERT_TRUE(reply.ok()) << reply.status().message();
    EXPECT_THAT(reply->text, testing::AnyOf("yes", "no, never"));
    EXPECT_EQ(reply->finish, FinishReason::kStop);
  }
  const auto engine = open();
  EXPECT_FALSE(engine->compile_grammar({GrammarKind::kRegex, "(", {}}).ok());
}

TEST(Door, ManyAtOnceAreAsAlone) {
  OpenOptions options;
  options.speculate = "ngram";
  const auto alone = open(options);
  options.sequences = 4;
  const auto engine = open(options);
  std::vector<Request> requests;
  for (int i = 0; i < 9; ++i) {
    requests.push_back(
        request(*engine, "Once " + std::to_string(i * 7919), i % 2 == 0 ? 0.0 : 0.9));
  }
  // Before anything was submitted it answers in this thread.
  EXPECT_EQ(engine->generate(requests[0])->tokens, alone->generate(requests[0])->tokens);
  std::vector<std::shared_ptr<Waiting>> sinks;
  for (const Request& one : requests) {
    sinks.push_back(std::make_shared<Waiting>());
    ASSERT_TRUE(engine->submit(one, sinks.back()).ok());
  }
  // And from now on beside the others.
  std::string streamed;
  const auto beside =
      engine->generate(requests[1], [&](std::string_view text) { streamed += text; });
  ASSERT_TRUE(beside.ok());
  EXPECT_EQ(streamed, beside->text);
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto reply = alone->generate(requests[i]);
    ASSERT_TRUE(reply.ok());
    EXPECT_EQ(sinks[i]->tokens(), reply->tokens) << i;
    EXPECT_EQ(sinks[i]->text(), reply->text) << i;
    EXPECT_EQ(sinks[i]->wait().outcome, ReplyOutcome::kDone);
    if (i != 1) continue;
    EXPECT_EQ(beside->tokens, reply->tokens);
    EXPECT_EQ(beside->text, reply->text);
  }
}

TEST(Door, CancelsAndRefuses) {
  const auto engine = open();
  Request one = request(*engine, "Once", 0.9);
  one.deadline = std::chrono::steady_clock::now();
  EXPECT_EQ(engine->generate(one)->tokens.size(), 0u);
  one.deadline.reset();
  one.max_tokens = -1;
  EXPECT_EQ(engine->generate(one).status().code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(engine->check(one).ok());
  EXPECT_FALSE(engine->submit(one, std::make_shared<Waiting>()).ok());
  one.max_tokens = 400;
  EXPECT_TRUE(engine->check(one).ok());
  engine->cancel(1);  // never was
  const auto sink = std::make_shared<Waiting>();
  sink->hold(true);
  const auto id = engine->submit(one, sink);
  if (id.ok()) engine->cancel(*id);
  sink->hold(false);
  ASSERT_TRUE(id.ok());
  EXPECT_EQ(sink->wait().outcome, ReplyOutcome::kCancelled);
  std::atomic<bool> cancel = true;
  one.cancel = &cancel;
  const auto cut = engine->generate(one);
  ASSERT_TRUE(cut.ok());
  EXPECT_EQ(cut->finish, FinishReason::kNone);
  EXPECT_LT(cut->tokens.size(), 400u);
}

TEST(Door, TakesTurns) {
  const auto engine = open();
  const Request one = request(*engine, "Once", 0.9);
  const auto expected = engine->generate(one)->tokens;
  std::vector<std::thread> threads;
  std::atomic<int> same = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const auto reply = engine->generate(one);
      if (reply.ok() && reply->tokens == expected) ++same;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(same, 4);
}

}  // namespace aerie::door_test
