// Vectors of prompts: what they are, and that nothing beside them shows in their bits.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>

#include "engine/engine.h"
#include "engine/service.h"
#include "tests/testing/temporary_model.h"

namespace aerie::embedding_test {

using ::testing::HasSubstr;
using Vector = std::vector<float>;

const std::string& model() {
  static const test::TemporaryModel model("embedding", [] {
    test::TinySpec spec;
    spec.tokenizer = true;
    spec.vocab = test::kByteVocab;
    spec.context = 1024;
    spec.dtype = DType::kQ8_0;
    return spec;
  }());
  return model.path();
}

struct Settings {
  int threads = 1;
  int pass_tokens = 512;
  int sequences = 8;
  int64_t positions = 16384;
  bool prefixes = true;
};

std::unique_ptr<Service> open(const Settings& settings) {
  EngineOptions engine;
  engine.model = model();
  engine.threads = settings.threads;
  engine.speculation = parse_speculative_spec("ngram:gate=0").value();
  ServiceOptions options;
  options.max_sequences = settings.sequences;
  options.max_pass_tokens = settings.pass_tokens;
  options.cache_positions = settings.positions;
  options.prefix_cache = settings.prefixes;
  auto service = open_service(engine, options);
  EXPECT_TRUE(service.ok()) << service.status().message();
  return std::move(service).value();
}

class Sink final : public ReplySink {
 public:
  void on_delta(ReplyDelta delta) override { tokens_ += delta.tokens.size(); }
  void on_end(ReplyEnd end) override {
    EXPECT_TRUE(end.embedding.empty() || tokens_ == 0);
    end_.set_value(std::move(end));
  }
  ReplyEnd wait() {
    auto future = end_.get_future();
    EXPECT_EQ(future.wait_for(std::chrono::seconds(120)), std::future_status::ready);
    return future.get();
  }

 private:
  size_t tokens_ = 0;
  std::promise<ReplyEnd> end_;
};

std::shared_ptr<Sink> submit(Service& service, Request request) {
  auto sink = std::make_shared<Sink>();
  const auto id = service.submit(std::move(request), sink);
  EXPECT_TRUE(id.ok()) << id.status().message();
  return sink;
}

Request embed(std::vector<int32_t> prompt, Pooling pooling) {
  Request request;
  request.prompt = std::move(prompt);
  request.pooling = pooling;
  return request;
}

ReplyEnd end_of(Service& service, const std::vector<int32_t>& prompt, Pooling pooling) {
  return submit(service, embed(prompt, pooling))->wait();
}

std::vector<int32_t> prompt_of(uint64_t seed, int length) {
  return test::random_tokens(seed, length, test::kEndOfText);
}

constexpr int kLength = 150;

// Alone, in one piece.
const Vector& expected(Pooling pooling) {
  static const std::array<Vector, 2> both = [] {
    const auto service = open({});
    return std::array{end_of(*service, prompt_of(1, kLength), Pooling::kLast).embedding,
                      end_of(*service, prompt_of(1, kLength), Pooling::kMean).embedding};
  }();
  return both[pooling == Pooling::kMean ? 1 : 0];
}

TEST(Embedding, TheMeanIsThatOfTheStatesOfAllBeginnings) {
  const auto service = open({.prefixes = false});
  const std::vector<int32_t> prompt = prompt_of(1, kLength);
  std::vector<double> sum(64, 0.0);
  Vector last;
  for (int i = 1; i <= kLength; ++i) {
    last = end_of(*service, {prompt.begin(), prompt.begin() + i}, Pooling::kLast).embedding;
    ASSERT_EQ(last.size(), sum.size());
    for (size_t k = 0; k < sum.size(); ++k) sum[k] += last[k];
  }
  Vector mean;
  for (const double one : sum) mean.push_back(static_cast<float>(one / kLength));
  EXPECT_EQ(expected(Pooling::kMean), mean);
  EXPECT_EQ(expected(Pooling::kLast), last);
  EXPECT_NE(mean, last);
}

TEST(Embedding, NeitherPiecesNorThreadsNorOthersNorBeginningsShow) {
  for (const Settings& settings :
       {Settings{.pass_tokens = 16}, Settings{.pass_tokens = 37, .prefixes = false},
        Settings{.threads = 3, .pass_tokens = 100}, Settings{.sequences = 2}}) {
    const auto service = open(settings);
    std::vector<std::shared_ptr<Sink>> others;
    for (uint64_t i = 0; i < 6; ++i) {
      Request text;
      text.prompt = prompt_of(10 + i, 40);
      text.max_tokens = 60;
      text.ignore_eos = true;
      others.push_back(submit(*service, text));
      // Of which the vectors begin with a part that was read, or is being read.
      others.push_back(submit(*service, embed(prompt_of(1, 70), Pooling::kLast)));
    }
    std::vector<std::pair<Pooling, std::shared_ptr<Sink>>> vectors;
    for (int i = 0; i < 8; ++i) {
      const Pooling pooling = i % 2 == 0 ? Pooling::kMean : Pooling::kLast;
      vectors.emplace_back(pooling, submit(*service, embed(prompt_of(1, kLength), pooling)));
    }
    for (const auto& [pooling, sink] : vectors) {
      const ReplyEnd end = sink->wait();
      EXPECT_EQ(end.outcome, ReplyOutcome::kDone) << end.status.message();
      EXPECT_EQ(end.finish, FinishReason::kStop);
      EXPECT_EQ(end.prompt_tokens, kLength);
      EXPECT_EQ(end.generated_tokens, 0);
      EXPECT_TRUE(end.embedding == expected(pooling)) << settings.pass_tokens;
    }
    for (const auto& other : others) EXPECT_EQ(other->wait().outcome, ReplyOutcome::kDone);
  }
}

TEST(Embedding, BeginningsAreTakenFromTheCacheWhereTheyCanBe) {
  const auto service = open({});
  end_of(*service, prompt_of(1, kLength), Pooling::kLast);
  const ReplyEnd last = end_of(*service, prompt_of(1, kLength), Pooling::kLast);
  EXPECT_GE(last.cached_tokens, 64);
  EXPECT_TRUE(last.embedding == expected(Pooling::kLast));
  const ReplyEnd mean = end_of(*service, prompt_of(1, kLength), Pooling::kMean);
  EXPECT_EQ(mean.cached_tokens, 0);
  EXPECT_TRUE(mean.embedding == expected(Pooling::kMean));
}

// Those that are set back read their prompts anew.
TEST(Embedding, ACacheThatIsFullShowsNeither) {
  const auto service = open({.pass_tokens = 48, .positions = 1024 + 64});
  std::vector<std::shared_ptr<Sink>> texts, vectors;
  for (uint64_t i = 0; i < 4; ++i) {
    Request text;
    text.prompt = prompt_of(20 + i, 100);
    text.max_tokens = 300;
    text.ignore_eos = true;
    texts.push_back(submit(*service, text));
    vectors.push_back(submit(*service, embed(prompt_of(1, kLength), Pooling::kMean)));
  }
  for (const auto& sink : vectors) {
    EXPECT_TRUE(sink->wait().embedding == expected(Pooling::kMean));
  }
  for (const auto& sink : texts) EXPECT_EQ(sink->wait().generated_tokens, 300);
  EXPECT_GT(service->stats().preemptions, 0);
}

TEST(Embedding, IsNoText) {
  EngineOptions options;
  options.model = model();
  const auto engine = std::move(Engine::open(options)).value();
  const auto text = engine->generate(embed(prompt_of(1, 5), Pooling::kMean));
  EXPECT_EQ(text.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(text.status().message(), HasSubstr("submit()"));
}

TEST(Embedding, OneTokenAndTooMany) {
  const auto service = open({});
  const ReplyEnd mean = end_of(*service, {65}, Pooling::kMean);
  EXPECT_EQ(mean.embedding, end_of(*service, {65}, Pooling::kLast).embedding);
  EXPECT_EQ(service->embedding_size(), static_cast<int>(mean.embedding.size()));
  EXPECT_EQ(service->pooling().value(), Pooling::kLast);
  const auto id =
      service->submit(embed(prompt_of(1, 1024), Pooling::kMean), std::make_shared<Sink>());
  EXPECT_EQ(id.status().code(), StatusCode::kInvalidArgument);
}

}  // namespace aerie::embedding_test
