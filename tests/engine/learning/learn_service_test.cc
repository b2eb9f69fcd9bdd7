// A service that keeps its replies to learn from: the replies are the same, and of the layers it
// keeps what reading the texts again gives, to the bit, wherever their rows came from.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

#include "engine/service.h"
#include "tensor/dtype.h"
#include "tests/train/data/data_folder.h"
#include "train/data/dataset.h"
#include "train/data/features/features.h"

namespace aerie::train::learn_service_test {

using test::Scratch;

constexpr int kLayers = 2;  // of the tiny model

class Listener final : public ReplySink {
 public:
  void on_delta(ReplyDelta delta) override {
    std::unique_lock lock(mutex_);
    for (const EmittedToken& token : delta.tokens) tokens_.push_back(token.id);
    changed_.notify_all();
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(120),
                                  [&] { return held_at_ == 0 || tokens_.size() < held_at_; }));
  }
  void on_end(ReplyEnd end) override {
    const std::lock_guard lock(mutex_);
    end_ = std::move(end);
    ended_ = true;
    changed_.notify_all();
  }
  const std::vector<int32_t>& wait() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(120), [&] { return ended_; }));
    return tokens_;
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
  void wait_for_tokens(size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(120),
                                  [&] { return ended_ || tokens_.size() >= count; }));
  }
  const ReplyEnd& end() const { return end_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int32_t> tokens_;
  size_t held_at_ = 0;
  ReplyEnd end_;
  bool ended_ = false;
};

class LearnServiceTest : public testing::Test {
 protected:
  std::unique_ptr<Service> open(bool learns, int64_t cache = 4096) {
    EngineOptions engine;
    engine.model = model_;
    engine.threads = 1;
    engine.device = "cpu";
    engine.speculation = parse_speculative_spec("ngram:gate=0").value();
    engine.more_speculations = {parse_speculative_spec("none").value()};
    ServiceOptions options;
    options.cache_positions = cache;
    options.max_sequences = 4;
    if (learns) {
      auto store = LearnStore::open(folder_, LearnStore::kLeastBytes);
      EXPECT_TRUE(store.ok()) << store.status().message();
      options.learn.store = std::make_shared<LearnStore>(*std::move(store));
    }
    auto service = open_service(engine, options);
    EXPECT_TRUE(service.ok()) << service.status().message();
    return *std::move(service);
  }
  static std::shared_ptr<Listener> submit(Service& service, const Request& request,
                                          Service::Id* id = nullptr, size_t hold_at = 0) {
    auto listener = std::make_shared<Listener>();
    listener->hold_at(hold_at);
    const auto submitted = service.submit(request, listener);
    EXPECT_TRUE(submitted.ok()) << submitted.status().message();
    if (id != nullptr) *id = *submitted;
    return listener;
  }
  // Some begin alike, for longer than a page of the cache.
  static std::vector<Request> requests() {
    std::vector<Request> out;
    const auto common = aerie::test::random_tokens(1, 100, aerie::test::kByteVocab);
    for (int i = 0; i < 12; ++i) {
      Request request;
      const auto own = aerie::test::random_tokens(10 + static_cast<uint64_t>(i), 20 + 7 * i,
                                                  aerie::test::kByteVocab);
      if (i % 2 == 0) request.prompt = common;
      request.prompt.insert(request.prompt.end(), own.begin(), own.end());
      request.max_tokens = 10 + 3 * i;
      request.sampling.temperature = i % 3 == 0 ? 0.0 : 0.8;
      request.sampling.seed = static_cast<uint64_t>(i);
      request.ignore_eos = true;
      out.push_back(std::move(request));
    }
    return out;
  }
  static std::vector<std::vector<int32_t>> answer(Service& service, int more_tokens = 0) {
    std::vector<std::shared_ptr<Listener>> listeners;
    std::vector<Request> all = requests();
    for (Request& request : all) {
      request.max_tokens += more_tokens;
      listeners.push_back(submit(service, request));
    }
    std::vector<std::vector<int32_t>> replies;
    for (const auto& listener : listeners) replies.push_back(listener->wait());
    return replies;
  }
  // How many have features, each of which is checked.
  size_t check_features(const Dataset& dataset) {
    const std::vector<int32_t> taps = eagle3_layers(kLayers);
    std::vector<int32_t> layers = {taps[2], taps[1], taps[0]};  // 0, 1, 2
    const auto stored = stored_features(folder_, layers);
    const auto computed = compute_features(model_, layers, 1, 1024);
    EXPECT_TRUE(stored.ok() && computed.ok()) << stored.status().message();
    if (!stored.ok() || !computed.ok()) return 0;
    size_t count = 0;
    for (const Sample& sample : dataset.samples) {
      if (!(*stored)->has(sample)) continue;
      ++count;
      const size_t width = layers.size() * static_cast<size_t>((*stored)->hidden());
      std::vector<uint16_t> there(sample.tokens.size() * width), now(there.size());
      EXPECT_TRUE((*stored)->read_bfloats(sample, there).ok());
      EXPECT_TRUE((*computed)->read_bfloats(sample, now).ok());
      std::fill(now.end() - static_cast<ptrdiff_t>(width), now.end(), uint16_t{0});
      EXPECT_EQ(there, now) << sample.id;
    }
    return count;
  }

  Scratch scratch_;
  std::string model_ = test::write_target(scratch_);
  std::string folder_ = scratch_.path("learn");
};

TEST_F(LearnServiceTest, RepliesAreTheSameAndTheirLayersAreKept) {
  const auto plain = answer(*open(false));
  {
    const auto service = open(true);
    EXPECT_EQ(answer(*service), plain);
    // Once more: all prompts are in the prefix cache.
    EXPECT_EQ(answer(*service), plain);
    EXPECT_GT(service->stats().prefix_hits, 0);
  }
  const auto dataset = read_dataset(folder_);
  ASSERT_TRUE(dataset.ok()) << dataset.status().message();
  ASSERT_EQ(dataset->samples.size(), 2 * plain.size());
  EXPECT_EQ(check_features(*dataset), 2 * plain.size());
  // The same prompt has the same number.
  EXPECT_EQ(dataset->samples.back().prompt, static_cast<int>(plain.size()) - 1);
}

TEST_F(LearnServiceTest, WhoeverBeginsLikeOneThatIsUnderWayHasItsLayers) {
  std::vector<Request> all = requests();
  {
    const auto service = open(true);
    std::vector<std::shared_ptr<Listener>> listeners;
    for (size_t i = 0; i < 8; i += 2) {
      all[i].max_tokens = i == 0 ? 300 : 8;
      listeners.push_back(submit(*service, all[i]));
    }
    for (const auto& listener : listeners) listener->wait();
    EXPECT_GT(service->stats().prefix_hits, 0);
  }
  const auto dataset = read_dataset(folder_);
  ASSERT_TRUE(dataset.ok()) << dataset.status().message();
  ASSERT_EQ(dataset->samples.size(), 4U);
  EXPECT_GT(dataset->samples.back().tokens.size(), 300U);  // what the others begin like ended last
  EXPECT_EQ(check_features(*dataset), 4U);
}

TEST_F(LearnServiceTest, PreemptionsChangeNothing) {
  constexpr int kMore = 300;
  const auto plain = answer(*open(false), kMore);
  {
    const auto service = open(true, 512);
    EXPECT_EQ(answer(*service, kMore), plain);
    EXPECT_GT(service->stats().preemptions, 0);
  }
  const auto dataset = read_dataset(folder_);
  ASSERT_TRUE(dataset.ok()) << dataset.status().message();
  EXPECT_EQ(dataset->samples.size(), plain.size());
  EXPECT_GT(check_features(*dataset), plain.size() / 2);
}

TEST_F(LearnServiceTest, WhoRefusesIsLeftOutAndWhatIsCutOffCountsAsFarAsItCame) {
  {
    const auto service = open(true);
    std::vector<Request> all = requests();
    all[0].learn = false;
    submit(*service, all[0])->wait();
    all[1].speculate = false;  // nothing is heard of it
    submit(*service, all[1])->wait();
    all[2].max_tokens = 3;  // too short to teach
    submit(*service, all[2])->wait();
    Service::Id id = 0;
    all[3].max_tokens = 800;
    constexpr size_t kCome = 54;
    const auto cut = submit(*service, all[3], &id, kCome);
    cut->wait_for_tokens(kCome);
    service->cancel(id);
    cut->go_on();
    cut->wait();
    EXPECT_EQ(cut->end().outcome, ReplyOutcome::kCancelled);
  }
  const auto dataset = read_dataset(folder_);
  ASSERT_TRUE(dataset.ok()) << dataset.status().message();
  ASSERT_EQ(dataset->samples.size(), 1U);
  EXPECT_EQ(dataset->samples[0].finish, FinishReason::kLength);
  EXPECT_EQ(dataset->samples[0].seed, 3U);
  EXPECT_EQ(check_features(*dataset), 1U);
}

}  // namespace aerie::train::learn_service_test
