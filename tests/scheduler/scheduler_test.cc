#include "scheduler/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <thread>

#include "draft/auto/choice.h"
#include "draft/lookup/ngram.h"
#include "draft/lookup/recycling.h"
#include "tests/decode/exactness.h"
#include "tests/decode/faults/fetching_model.h"
#include "tests/testing/test_drafters.h"

namespace aerie::scheduler_test {

using test::Request;

struct Outcome final : JobListener {
  void on_tokens(const Sequence& sequence) override {
    EXPECT_FALSE(sequence.emitted.empty());
    EXPECT_EQ(ends, 0);
    ++passes;
    for (const EmittedToken& token : sequence.emitted) {
      reply.tokens.push_back(token.id);
      logprobs.push_back(token.logprobs);
    }
    if (passes == 1) prompt_logprobs = sequence.prompt_logprobs;
  }
  void on_end(JobEnd how, const Status& why, const Sequence* sequence) override {
    ++ends;
    end = how;
    status = why;
    ran = sequence != nullptr;
    if (ran) reply.finish = sequence->finish;
    if (ran) reused = sequence->reused;
  }

  test::Reply reply;
  std::vector<std::vector<TokenLogprob>> logprobs, prompt_logprobs;
  int passes = 0;
  int ends = 0;
  JobEnd end = JobEnd::kFailed;
  Status status;
  bool ran = false;
  int reused = 0;
};

test::TinySpec windowed_spec() {
  test::TinySpec spec;
  spec.window = 90;
  return spec;
}

// A scheduler over the tiny model, or one of whose two layers one has a window; every second job of
// drafter 1, a third of the others plain.
class SchedulerTest : public testing::Test {
 protected:
  void make(int pages, SchedulerOptions options, int sequences = 16,
            const KvCache::Windows& windows = {0, 0, 0}) {
    model_options_ = test::model_options(1);
    model_options_.max_positions = kMaxPositions;
    model_options_.max_logits = 64;
    scheduler_.reset();
    decoder_.reset();
    cache_.reset();
    model_ = (windows.rows > 0 ? windowed_ : file_).load(model_options_);
    auto cache = make_cache(*model_, {.positions = int64_t{pages} * kernels::kPagePositions,
                                      .sequences = sequences,
                                      .windows = windows});
    ASSERT_TRUE(cache.ok());
    cache_ = std::move(*cache);
    std::vector<std::unique_ptr<Drafter>> drafters;
    NgramOptions ngram;
    ngram.num_tokens = 4;
    drafters.push_back(std::move(make_ngram_drafter(ngram)).value());
    RecyclingOptions recycling;
    recycling.vocab = test::TinySpec{}.vocab;
    recycling.num_tokens = 6;
    drafters.push_back(std::move(make_recycling_drafter(recycling)).value());
    drafter_ = std::move(choose_drafters(std::move(drafters))).value();
    decode_with(*drafter_, options);
  }
  // By `model`, which computes what the other does, if there is one.
  void decode_with(Drafter& drafter, SchedulerOptions options, Model* model = nullptr) {
    scheduler_.reset();
    DecoderOptions decoding;
    decoding.max_positions = kMaxPositions;
    decoding.max_nodes = 6;
    decoding.max_rows = model_options_.max_rows;
    decoding.max_logits = model_options_.max_logits;
    decoding.reuse_prefixes = true;
    decoder_ =
        std::make_unique<Decoder>(model != nullptr ? *model : *model_, *cache_, &drafter, decoding);
    scheduler_ = std::make_unique<Scheduler>(*decoder_, *cache_, options);
  }
  Outcome& add(JobId id, const Request& request, int priority = 0, const std::string& client = "") {
    auto job = std::make_unique<Job>();
    job->id = id;
    job->prompt = request.prompt;
    job->options = request.options;
    job->options.drafter = static_cast<int>(id % 2);
    job->options.speculate = id % 3 != 0;
    job->listener = &outcomes_[id];
    job->priority = priority;
    job->client = client;
    if (deadline_) job->deadline = deadline_;
    scheduler_->add(std::move(job));
    return outcomes_[id];
  }
  void run(int most = 5000) {
    for (int i = 0; i < most && !scheduler_->idle(); ++i) scheduler_->step();
    EXPECT_TRUE(scheduler_->idle());
    EXPECT_EQ(cache_->used_pages(), 0);
  }

  test::TinyFile file_{test::TinySpec{}}, windowed_{windowed_spec()};
  ModelOptions model_options_;
  std::unique_ptr<Model> model_;
  ModelCache cache_;
  std::unique_ptr<Drafter> drafter_;
  std::unique_ptr<Decoder> decoder_;
  std::map<JobId, Outcome> outcomes_;
  std::optional<Job::Clock::time_point> deadline_;
  std::unique_ptr<Scheduler> scheduler_;
};

std::vector<Request> random_requests(uint64_t seed, int count) {
  std::mt19937_64 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
  const std::vector<int32_t> common = test::random_tokens(3, 200, test::TinySpec{}.vocab);
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    Request request;
    if (below(2) == 0) request.prompt.assign(common.begin(), common.begin() + below(200));
    const auto own = test::random_tokens(random(), 1 + below(120), test::TinySpec{}.vocab);
    request.prompt.insert(request.prompt.end(), own.begin(), own.end());
    request.options.sampling =
        sampling_with(below(3) == 0 ? 0.0 : 0.3 + 0.1 * below(8), kFilters[below(6)], random());
    request.options.max_tokens = 1 + below(90);
    requests.push_back(std::move(request));
  }
  return requests;
}

// 200 tokens that all have, 280 of its own.
Request request_of_beginning(uint64_t seed) {
  Request request;
  request.prompt = test::random_tokens(8, 200, test::TinySpec{}.vocab);
  const auto own = test::random_tokens(50 + seed, 280, test::TinySpec{}.vocab);
  request.prompt.insert(request.prompt.end(), own.begin(), own.end());
  request.options.sampling = sampling_with(0.8, Filter::kNone, seed);
  request.options.max_tokens = 10;
  return request;
}

Request request_of(int prompt_tokens, uint64_t seed, int max_tokens) {
  Request request;
  request.prompt = test::random_tokens(seed, prompt_tokens, test::TinySpec{}.vocab);
  request.options.sampling = sampling_with(0.8, Filter::kNone, seed);
  request.options.max_tokens = max_tokens;
  return request;
}

// By the usual model, or another.
void expect_plain(const std::vector<Request>& requests, std::map<JobId, Outcome>& outcomes,
                  const test::TinyFile* file = nullptr) {
  const test::Replies plain = file == nullptr ? plain_replies(requests, VerifyRule::kExact)
                                              : plain_replies(requests, file->gguf());
  std::vector<test::Reply> replies;
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(outcomes[i].ends, 1);
    EXPECT_EQ(outcomes[i].end, JobEnd::kFinished) << outcomes[i].status.message();
    replies.push_back(outcomes[i].reply);
  }
  EXPECT_EQ(test::difference(plain.of, replies), "");
}

TEST_F(SchedulerTest, EveryJobSaysWhatItSaysAlone) {
  for (const int rows : {17, 40, 512}) {
    outcomes_.clear();
    make(200, {16, rows});
    const std::vector<Request> requests = random_requests(static_cast<uint64_t>(rows), 60);
    size_t added = 0;
    std::mt19937_64 random(5);
    while (added < requests.size() || !scheduler_->idle()) {
      while (added < requests.size() && random() % 3 == 0) {
        add(added, requests[added], static_cast<int>(added % 2), added % 5 == 0 ? "a" : "b");
        ++added;
      }
      scheduler_->step();
    }
    run();
    expect_plain(requests, outcomes_);
    EXPECT_EQ(scheduler_->stats().preemptions, 0);
    EXPECT_GT(scheduler_->stats().reused_tokens, 0);
    scheduler_.reset();
  }
}

TEST_F(SchedulerTest, AFullCacheCostsTimeAlone) {
  // Room for one sequence at its longest, and a little.
  make(10, {16, 128});
  const std::vector<Request> requests = random_requests(77, 40);
  for (size_t i = 0; i < requests.size(); ++i) add(i, requests[i], i % 7 == 0 ? -1 : 0);
  run(20000);
  expect_plain(requests, outcomes_);
}

TEST_F(SchedulerTest, TheLastToComeIsPreempted) {
  make(9, {4, 128});
  std::vector<Request> requests = random_requests(5, 2);
  for (Request& request : requests) {
    request.prompt =
        test::random_tokens(request.options.sampling.seed, 200, test::TinySpec{}.vocab);
    request.options.max_tokens = 200;
    request.options.sampling.temperature = 0.9;
  }
  add(0, requests[0]);
  add(1, requests[1]);
  run();
  expect_plain(requests, outcomes_);
  EXPECT_GT(scheduler_->stats().preemptions, 0);
}

// A short one that came before a long one, which would have more to read again.
TEST_F(SchedulerTest, WhatHasLeastToLoseIsPreempted) {
  make(12, {4, 512});
  const std::vector<Request> requests = {request_of(200, 1, 150), request_of(20, 2, 200),
                                         request_of(300, 3, 150)};
  for (size_t i = 0; i < requests.size(); ++i) add(i, requests[i]);
  scheduler_->step();
  EXPECT_EQ(scheduler_->stats().running, 3);
  for (int i = 0; i < 200 && scheduler_->stats().preemptions == 0; ++i) scheduler_->step();
  EXPECT_GT(scheduler_->stats().preempted_tokens, 0);
  EXPECT_LT(scheduler_->stats().preempted_tokens, 200);
  run();
  expect_plain(requests, outcomes_);
}

// However little it has to lose, the first to come goes on, and a priority counts before that.
TEST_F(SchedulerTest, TheFirstToComeIsNeverPreempted) {
  make(12, {4, 512});
  const std::vector<Request> requests = {request_of(20, 2, 200), request_of(200, 1, 150),
                                         request_of(300, 3, 150)};
  add(0, requests[0]);
  add(1, requests[1], 1);
  add(2, requests[2]);
  scheduler_->step();
  EXPECT_EQ(scheduler_->stats().running, 3);
  for (int i = 0; i < 200 && scheduler_->stats().preemptions == 0; ++i) scheduler_->step();
  EXPECT_GE(scheduler_->stats().preempted_tokens, 200);
  EXPECT_LT(scheduler_->stats().preempted_tokens, 300);
  run();
  expect_plain(requests, outcomes_);
}

// Room for the windows of two sequences and the rows of a pass: others wait, or give up theirs.
TEST_F(SchedulerTest, WindowsThatAreFullCostTimeAlone) {
  for (const int sequences : {1, 2, 16}) {
    outcomes_.clear();
    make(200, {16, 100}, 16, {.rows = 130, .sequences = sequences});
    ASSERT_NE(cache_->windows(), nullptr);
    const std::vector<Request> requests = random_requests(78, 40);
    for (size_t i = 0; i < requests.size(); ++i) add(i, requests[i], i % 7 == 0 ? -1 : 0);
    run(20000);
    expect_plain(requests, outcomes_, &windowed_);
    EXPECT_GT(scheduler_->stats().reused_tokens, 0);
    EXPECT_EQ(cache_->windows()->available(), cache_->windows()->places());
    scheduler_.reset();
  }
}

// Places for fewer rows than passes have: the last to come is sent back.
TEST_F(SchedulerTest, WindowsWithoutRoomForAPassPreempt) {
  make(200, {4, 60}, 4, {.rows = 60, .sequences = 1, .behind = 0});
  std::vector<Request> requests = random_requests(6, 6);
  for (Request& request : requests) request.options.max_tokens = 90;
  for (size_t i = 0; i < requests.size(); ++i) add(i, requests[i]);
  run(20000);
  expect_plain(requests, outcomes_, &windowed_);
}

TEST_F(SchedulerTest, WithWindowsTheSameIsNotReadTwiceEither) {
  make(200, {8, 100}, 8, {.rows = 130, .sequences = 8});
  ASSERT_NE(cache_->windows(), nullptr);
  // A shared beginning much longer than the window, and texts of their own behind it.
  std::vector<Request> requests;
  for (uint64_t i = 0; i < 5; ++i) {
    Request request;
    request.prompt = test::random_tokens(8, 200, test::TinySpec{}.vocab);
    const auto own = test::random_tokens(30 + i, 200, test::TinySpec{}.vocab);
    request.prompt.insert(request.prompt.end(), own.begin(), own.end());
    request.options.sampling = sampling_with(0.8, Filter::kNone, 10 + i);
    request.options.max_tokens = 30;
    requests.push_back(request);
  }
  for (size_t i = 0; i < 4; ++i) add(i, requests[i]);
  run();
  add(4, requests[4]);
  run();
  expect_plain(requests, outcomes_, &windowed_);
  EXPECT_EQ(outcomes_[0].reused, 0);
  for (const JobId id : {1, 2, 3, 4}) EXPECT_GE(outcomes_[id].reused, 192) << id;
}

// Who comes when all has been read finds out where it branches off, for the one after it.
TEST_F(SchedulerTest, WithWindowsTheThirdOfThoseThatBeginAlikeReusesIt) {
  make(200, {1, 60}, 1, {.rows = 70, .sequences = 1, .behind = 0});
  std::vector<Request> requests;
  for (uint64_t i = 0; i < 3; ++i) {
    requests.push_back(request_of_beginning(i));
    add(i, requests.back());
    run();
  }
  expect_plain(requests, outcomes_, &windowed_);
  EXPECT_LT(outcomes_[1].reused, 200);
  EXPECT_EQ(outcomes_[2].reused, 200);
}

TEST_F(SchedulerTest, CancelledJobsEndAtOnceAndOthersGoOn) {
  make(100, {2, 64});
  const std::vector<Request> requests = random_requests(9, 6);
  for (size_t i = 0; i < requests.size(); ++i) add(i, requests[i]);
  scheduler_->step();
  scheduler_->cancel(0);  // runs
  scheduler_->cancel(4);  // waits
  scheduler_->cancel(99);
  EXPECT_EQ(outcomes_[0].end, JobEnd::kCancelled);
  EXPECT_TRUE(outcomes_[0].ran);
  EXPECT_EQ(outcomes_[4].end, JobEnd::kCancelled);
  EXPECT_FALSE(outcomes_[4].ran);
  run();
  scheduler_->cancel(1);
  const test::Replies plain = plain_replies(requests, VerifyRule::kExact);
  for (const size_t i : {1, 2, 3, 5}) {
    EXPECT_EQ(outcomes_[i].reply.tokens, plain.of[i].tokens);
    EXPECT_EQ(outcomes_[i].ends, 1);
  }
}

TEST_F(SchedulerTest, EndsCancelWhatIsLeft) {
  make(100, {2, 64});
  const std::vector<Request> requests = random_requests(9, 4);
  for (size_t i = 0; i < requests.size(); ++i) add(i, requests[i]);
  scheduler_->step();
  scheduler_.reset();
  for (const auto& [id, outcome] : outcomes_) {
    EXPECT_EQ(outcome.ends, 1);
    EXPECT_EQ(outcome.end, JobEnd::kCancelled);
  }
  EXPECT_EQ(cache_->used_pages(), 0);
}

TEST_F(SchedulerTest, DeadlinesEndJobsThatRunAndThatWait) {
  make(100, {1, 64});
  std::vector<Request> requests = random_requests(9, 3);
  for (Request& request : requests) request.options.max_tokens = 300;
  add(0, requests[0]);
  deadline_ = Job::Clock::now() + std::chrono::milliseconds(1);
  add(1, requests[1]);
  deadline_.reset();
  add(2, requests[2]);
  scheduler_->step();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  scheduler_->step();
  EXPECT_EQ(outcomes_[1].end, JobEnd::kDeadline);
  run();
  EXPECT_EQ(outcomes_[0].end, JobEnd::kFinished);
  EXPECT_EQ(outcomes_[2].end, JobEnd::kFinished);
}

// Forbids every third token, is ready now and then only, and fails after so many tokens.
class Hesitant final : public TokenConstraint {
 public:
  Hesitant(uint64_t seed, int fails_after) : random_(seed), left_(fails_after) {}
  std::unique_ptr<TokenConstraint> fork() const override {
    return std::make_unique<Hesitant>(*this);
  }
  bool ready() override {
    ready_ = ready_ || random_() % 3 == 0;
    return left_ > 0 && ready_;
  }
  Readiness prepare() override {
    if (left_ == 0) return Readiness::kFailed;
    return ready() ? Readiness::kReady : Readiness::kLater;
  }
  Status status() const override {
    return left_ > 0 ? Status() : Status(StatusCode::kResourceExhausted, "too much");
  }
  void advance(int32_t token) override {
    EXPECT_NE(token % 3, 0);
    --left_;
    ready_ = false;
  }
  void mask(std::span<bool> allowed) const override {
    for (size_t id = 0; id < allowed.size(); ++id) allowed[id] = id % 3 != 0;
  }
  bool allows(int32_t token) const override { return token % 3 != 0; }
  std::string forced() const override { return {}; }

 private:
  std::mt19937_64 random_;
  int left_;
  bool ready_ = false;
};

// The same, always ready.
class Ready final : public TokenConstraint {
 public:
  std::unique_ptr<TokenConstraint> fork() const override { return std::make_unique<Ready>(); }
  void advance(int32_t) override {}
  void mask(std::span<bool> allowed) const override {
    for (size_t id = 0; id < allowed.size(); ++id) allowed[id] = id % 3 != 0;
  }
  bool allows(int32_t token) const override { return token % 3 != 0; }
  std::string forced() const override { return {}; }
};

TEST_F(SchedulerTest, JobsThatHaveToWaitForTheirConstraintSayTheSame) {
  make(200, {8, 64});
  std::vector<Request> requests = random_requests(31, 24);
  for (size_t i = 0; i < requests.size(); ++i) {
    if (i % 4 == 0) continue;
    requests[i].options.constraint = std::make_shared<Hesitant>(i, 100000);
  }
  for (size_t i = 0; i < requests.size(); ++i) add(i, requests[i]);
  int waits = 0;
  for (int i = 0; i < 20000 && !scheduler_->idle(); ++i) waits += scheduler_->step() ? 0 : 1;
  EXPECT_TRUE(scheduler_->idle());
  EXPECT_GT(waits, 0);
  for (Request& request : requests) {
    if (request.options.constraint != nullptr)
      request.options.constraint = std::make_shared<Ready>();
  }
  expect_plain(requests, outcomes_);
}

// A pass that fails ends the jobs that are in it; those that are held go on, and who asks again is
// served.
TEST_F(SchedulerTest, AFailedPassEndsWhatIsInItAlone) {
  int ended = 0, went_on = 0;
  for (const int at : {0, 2, 3, 10, 25, 40}) {
    outcomes_.clear();
    make(200, {8, 64});
    test::FetchingModel::Counts counts;
    test::FetchingModel lost(
        *model_, {.fails = [at](const ForwardBatch&, int pass) { return pass == at; }}, counts);
    decode_with(*drafter_, {8, 64}, &lost);
    std::vector<Request> requests = random_requests(33, 8);
    for (size_t i = 0; i < requests.size(); ++i) {
      requests[i].options.max_tokens = 60;
      if (i % 2 == 0) requests[i].options.constraint = std::make_shared<Hesitant>(i, 100000);
      add(i, requests[i]);
    }
    run(20000);
    EXPECT_EQ(counts.failures, 1);
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(outcomes_[i].ends, 1);
      if (outcomes_[i].end == JobEnd::kFinished) {
        ++went_on;
        continue;
      }
      ++ended;
      EXPECT_EQ(outcomes_[i].end, JobEnd::kFailed);
      EXPECT_EQ(outcomes_[i].status.message(), test::FetchingModel::kFailure);
      outcomes_.erase(i);
      add(i, requests[i]);
    }
    run(20000);
    for (size_t i = 0; i < requests.size(); i += 2) {
      requests[i].options.constraint = std::make_shared<Ready>();
    }
    expect_plain(requests, outcomes_);
    scheduler_.reset();
    decoder_.reset();
  }
  EXPECT_GT(ended, 10);
  EXPECT_GT(went_on, 10);
}

TEST_F(SchedulerTest, AConstraintThatFailsEndsItsReplyAlone) {
  make(200, {8, 64});
  std::vector<Request> requests = random_requests(32, 6);
  for (Request& request : requests) request.options.max_tokens = 40;
  for (const size_t i : {1, 2, 4}) {
    requests[i].options.constraint = std::make_shared<Hesitant>(i, i == 4 ? 0 : 7);
  }
  for (size_t i = 0; i < requests.size(); ++i) add(i, requests[i]);
  run(20000);
  for (const size_t i : {1, 2, 4}) {
    const Outcome& outcome = outcomes_[i];
    EXPECT_EQ(outcome.end, JobEnd::kFinished);
    EXPECT_EQ(outcome.reply.finish, FinishReason::kError);
    EXPECT_EQ(outcome.reply.tokens.size(), i == 4 ? 0u : 7u);
    requests[i].options.constraint = std::make_shared<Ready>();
    requests[i].options.max_tokens = 7;
  }
  // What was said is how the whole reply would have begun.
  outcomes_.erase(4);
  requests[4].options.constraint = nullptr;
  for (const size_t i : {1, 2}) outcomes_[i].reply.finish = FinishReason::kLength;
  requests.erase(requests.begin() + 4);
  std::map<JobId, Outcome> rest;
  for (size_t i = 0, at = 0; at < requests.size(); ++i) {
    if (i != 4) rest[at++] = outcomes_[i];
  }
  expect_plain(requests, rest);
}

// Of prompts that begin alike and come at once the first is read, and the others wait for that.
TEST_F(SchedulerTest, TheSameIsNotReadTwiceAtOnce) {
  make(200, {8, 512});
  std::vector<Request> requests;
  for (int i = 0; i < 4; ++i) {
    Request request;
    request.prompt = test::random_tokens(8, 300, test::TinySpec{}.vocab);
    request.options.sampling = sampling_with(0.8, Filter::kNone, 10 + static_cast<uint64_t>(i));
    request.options.max_tokens = 30;
    requests.push_back(request);
  }
  for (size_t i = 0; i < requests.size(); ++i) add(i, requests[i]);
  run();
  expect_plain(requests, outcomes_);
  EXPECT_EQ(outcomes_[0].reused, 0);
  for (const JobId id : {1, 2, 3}) EXPECT_GE(outcomes_[id].reused, 256);
}

// Has to read every prompt itself, as a head that remembers more than is kept.
class ReadingDrafter final : public test::TestDrafter {
 public:
  int reusable(std::span<const int32_t>, int, std::string_view) const override { return 0; }
  bool will_share(SequenceId, int, int, std::string_view) const override { return false; }
};

// What would have to be read again for the drafter is not waited for.
TEST_F(SchedulerTest, WhatADrafterCannotGoOnFromIsNotWaitedFor) {
  make(200, {8, 64});
  ReadingDrafter reading;
  decode_with(reading, {8, 64});
  const std::vector<Request> requests = {request_of(300, 8, 5), request_of(300, 8, 5)};
  for (const JobId id : {1, 2}) add(id, requests[0]);
  // This one does without a drafter.
  add(3, requests[0]);
  scheduler_->step();
  EXPECT_EQ(scheduler_->stats().running, 2);
  EXPECT_EQ(scheduler_->stats().waiting, 1);
  run();
  const test::Reply plain = plain_replies(requests, VerifyRule::kExact).of[0];
  for (const JobId id : {1, 2, 3}) EXPECT_EQ(outcomes_[id].reply.tokens, plain.tokens);
  EXPECT_GE(outcomes_[3].reused, 256);
}

// Neither of a prompt that is long, nor of one that waits for that.
TEST_F(SchedulerTest, ShortPromptsDoNotWaitForLongOnes) {
  make(200, {8, 32});
  const std::vector<Request> requests = {request_of(400, 8, 2), request_of(400, 8, 2),
                                         request_of(20, 9, 2)};
  for (size_t i = 0; i < requests.size(); ++i) add(i, requests[i]);
  for (int i = 0; i < 3; ++i) scheduler_->step();
  EXPECT_EQ(outcomes_[2].end, JobEnd::kFinished);
  EXPECT_EQ(outcomes_[0].passes, 0);
  run();
  expect_plain(requests, outcomes_);
  EXPECT_GE(outcomes_[1].reused, 256);
}

TEST_F(SchedulerTest, TellsWhatIsStillToBeRead) {
  make(200, {1, 32});
  add(0, request_of(100, 8, 2));
  EXPECT_EQ(scheduler_->unread(), 0);  // it has not begun
  for (const int left : {68, 36, 4, 0}) {
    scheduler_->step();
    EXPECT_EQ(scheduler_->unread(), left);
  }
  run();
}

// A cache for one sequence at its longest, whose last page is shared with what is kept of it.
TEST_F(SchedulerTest, GoesOnBehindAPageThatIsShared) {
  make(kMaxPositions / kernels::kPagePositions + 1, {4, 64});
  const std::vector<Request> requests = {request_of(kMaxPositions - 20, 8, 15),
                                         request_of(kMaxPositions - 20, 8, 15)};
  for (size_t i = 0; i < requests.size(); ++i) add(i, requests[i]);
  run();
  expect_plain(requests, outcomes_);
}

// A drafter that fails is no reason to end anything.
class FailingDrafter final : public Drafter {
 public:
  std::string_view method() const override { return "failing"; }
  const DrafterNeeds& needs() const override { return needs_; }
  Status open(const DraftSequence&) override { return {}; }
  void close(SequenceId) override {}
  Status propose(std::span<DraftRequest>) override {
    ++asked;
    return {StatusCode::kResourceExhausted, "too hard"};
  }
  Status observe(std::span<const DraftCommit>) override { return {}; }
  int asked = 0;

 private:
  DrafterNeeds needs_;
};

TEST_F(SchedulerTest, GoesOnWithoutADrafterThatFails) {
  make(200, {8, 64});
  FailingDrafter failing;
  decode_with(failing, {8, 64});
  const std::vector<Request> requests = random_requests(3, 5);
  for (size_t i = 0; i < requests.size(); ++i) add(i, requests[i]);
  run();
  expect_plain(requests, outcomes_);
  EXPECT_GT(failing.asked, 0);
  EXPECT_EQ(scheduler_->stats().preemptions, 0);
  scheduler_.reset();
}

TEST_F(SchedulerTest, ARequestThatCannotBeIsToldSoAlone) {
  make(100, {4, 64});
  std::vector<Request> requests = random_requests(9, 3);
  Request bad = requests[1];
  bad.prompt[0] = 1 << 20;
  add(0, requests[0]);
  add(1, bad);
  add(2, requests[2]);
  run();
  EXPECT_EQ(outcomes_[1].end, JobEnd::kFailed);
  EXPECT_EQ(outcomes_[1].status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(outcomes_[0].end, JobEnd::kFinished);
  EXPECT_EQ(outcomes_[2].end, JobEnd::kFinished);
}

bool are_same(const std::vector<TokenLogprob>& a, const std::vector<TokenLogprob>& b) {
  return std::ranges::equal(a, b, [](const TokenLogprob& one, const TokenLogprob& other) {
    return one.token == other.token && one.logprob == other.logprob;
  });
}

// A reply that is given back as a prompt gets the log-probabilities that it had, to the last bit,
// however the prompt is cut, whoever shares its passes, preemption and kept prefixes included.
TEST_F(SchedulerTest, PromptsAreScored) {
  for (const int pass_rows : {7, 64, 200}) {
    SchedulerOptions options;
    options.max_pass_rows = pass_rows;
    make(60, options);
    std::vector<Request> requests;
    for (uint64_t i = 0; i < 4; ++i) {
      Request request{
          test::random_tokens(20 + i, 30 + 40 * i, test::TinySpec{}.vocab), {}, 0, nullptr};
      request.options.max_tokens = 60;
      request.options.sampling.temperature = 0.8;
      request.options.sampling.seed = i;
      request.options.sampling.logprobs = 2;
      requests.push_back(request);
      add(i, request);
    }
    run();
    for (uint64_t i = 0; i < 4; ++i) {
      Request scored = requests[i];
      const std::vector<int32_t>& said = outcomes_[i].reply.tokens;
      scored.prompt.insert(scored.prompt.end(), said.begin(), said.end());
      scored.options.sampling.prompt_logprobs = 2;
      scored.options.max_tokens = 5;
      add(10 + i, scored);
      add(20 + i, requests[i]);
    }
    run();
    for (uint64_t i = 0; i < 4; ++i) {
      const auto& scores = outcomes_[10 + i].prompt_logprobs;
      const size_t length = requests[i].prompt.size();
      ASSERT_EQ(scores.size(), length + outcomes_[i].reply.tokens.size());
      EXPECT_TRUE(scores[0].empty());
      EXPECT_EQ(scores[1].size(), 3u);
      EXPECT_EQ(scores[1][0].token, requests[i].prompt[1]);
      for (size_t t = 0; t < outcomes_[i].logprobs.size(); ++t) {
        EXPECT_TRUE(are_same(scores[length + t], outcomes_[i].logprobs[t])) << i << " " << t;
      }
      EXPECT_EQ(outcomes_[10 + i].reused, 0);
      EXPECT_EQ(outcomes_[20 + i].reply.tokens, outcomes_[i].reply.tokens);
      EXPECT_TRUE(outcomes_[20 + i].prompt_logprobs.empty());
    }
    outcomes_.clear();
  }
}

}  // namespace aerie::scheduler_test
