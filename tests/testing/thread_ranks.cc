#include "tests/testing/thread_ranks.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <utility>

#include "base/errors.h"
#include "base/thread_pool.h"
#include "parallel/leading_model.h"
#include "parallel/split_backend.h"

namespace aerie::test {

struct ThreadGroup::Shared {
  // A barrier whose waiters sleep. Those of std::barrier yield, and a scheduler lets a thread that
  // yielded come after all others: beside another test a meeting took a time slice.
  class Meeting {
   public:
    explicit Meeting(size_t count) : count_(count) {}

    void arrive_and_wait() {
      std::unique_lock lock(mutex_);
      const uint64_t turn = turn_;
      if (++arrived_ < count_) {
        all_here_.wait(lock, [&] { return turn_ != turn; });
        return;
      }
      arrived_ = 0;
      ++turn_;
      all_here_.notify_all();
    }

   private:
    const size_t count_;
    std::mutex mutex_;
    std::condition_variable all_here_;
    size_t arrived_ = 0;
    uint64_t turn_ = 0;
  };

  Shared(int count, Spoil how)
      : spoil(std::move(how)),
        parts(static_cast<size_t>(count)),
        told(static_cast<size_t>(count)),
        answers(static_cast<size_t>(count)),
        meet(static_cast<size_t>(count)) {}

  using Messages = std::deque<std::vector<std::byte>>;

  Spoil spoil;
  std::vector<std::span<const std::byte>> parts;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Messages> told, answers;
  bool left = false;
  Meeting meet;
};

class ThreadGroup::OfRank final : public Group {
 public:
  OfRank(std::shared_ptr<Shared> shared, int rank) : shared_(std::move(shared)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(shared_->parts.size()); }
  std::string name(int rank) const override { return "rank " + std::to_string(rank); }
  int neighbours() const override { return size(); }

  void tell(std::span<const std::byte> message) override {
    const std::lock_guard lock(shared_->mutex);
    for (size_t r = 1; r < shared_->told.size(); ++r) {
      shared_->told[r].emplace_back(message.begin(), message.end());
    }
    shared_->changed.notify_all();
  }

  void listen(std::vector<std::byte>& message) override {
    std::unique_lock lock(shared_->mutex);
    Shared::Messages& told = shared_->told[static_cast<size_t>(rank_)];
    shared_->changed.wait(lock, [&] { return !told.empty() || shared_->left; });
    message.clear();
    if (told.empty()) return;
    message = std::move(told.front());
    told.pop_front();
  }

  void answer(std::span<const std::byte> message) override {
    const std::lock_guard lock(shared_->mutex);
    shared_->answers[static_cast<size_t>(rank_)].emplace_back(message.begin(), message.end());
    shared_->changed.notify_all();
  }

  std::vector<std::vector<std::byte>> collect() override {
    std::unique_lock lock(shared_->mutex);
    std::vector<std::vector<std::byte>> all(1);
    for (size_t r = 1; r < shared_->answers.size(); ++r) {
      Shared::Messages& answers = shared_->answers[r];
      shared_->changed.wait(lock, [&] { return !answers.empty(); });
      all.push_back(std::move(answers.front()));
      answers.pop_front();
    }
    return all;
  }

  void all_gather(std::span<const std::span<std::byte>> parts) override {
    const auto own = static_cast<size_t>(rank_);
    if (shared_->spoil) shared_->spoil(rank_, parts[own]);
    shared_->parts[own] = parts[own];
    shared_->meet.arrive_and_wait();
    for (size_t r = 0; r < parts.size(); ++r) {
      if (r == own) continue;
      // Ranks that do not do the same wait for each other forever.
      if (parts[r].size() != shared_->parts[r].size()) {
        std::fprintf(stderr, "rank %d wants %zu bytes of rank %zu, which gives %zu\n", rank_,
                     parts[r].size(), r, shared_->parts[r].size());
        std::abort();
      }
      if (!parts[r].empty()) {
        std::memcpy(parts[r].data(), shared_->parts[r].data(), parts[r].size());
      }
    }
    shared_->meet.arrive_and_wait();
  }

 private:
  std::shared_ptr<Shared> shared_;
  int rank_;
};

ThreadGroup::ThreadGroup(int ranks, Spoil spoil)
    : shared_(std::make_shared<Shared>(ranks, std::move(spoil))) {}
ThreadGroup::~ThreadGroup() = default;

std::shared_ptr<Group> ThreadGroup::rank(int rank) {
  return std::make_shared<OfRank>(shared_, rank);
}

void ThreadGroup::leave() {
  const std::lock_guard lock(shared_->mutex);
  shared_->left = true;
  shared_->changed.notify_all();
}

namespace {

std::unique_ptr<Model> load(const ModelFile& file, const ModelOptions& options) {
  auto model = load_model(file, options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? std::move(*model) : nullptr;
}

// Of the threads, what each does until the leader ends.
void run_rank(const ModelFile& file, ModelOptions options, const std::shared_ptr<Group>& group) {
  ThreadPool pool(1);
  const SplitBackend backend(*options.backend, *group);
  options.backend = &backend;
  options.pool = &pool;
  const std::unique_ptr<Model> model = load(file, options);
  Status status = internal_error("no model");
  if (model != nullptr) status = follow(*model, *group, [](int64_t) { return Status(); });
  if (status.ok()) return;
  std::fprintf(stderr, "%s: %s\n", group->name(group->rank()).c_str(), status.message().c_str());
  std::abort();
}

}  // namespace

ThreadRanks::ThreadRanks(const ModelFile& file, const ModelOptions& options, int ranks,
                         ThreadGroup::Spoil spoil)
    : group_(ranks, std::move(spoil)), first_(group_.rank(0)) {
  for (int r = 1; r < ranks; ++r) {
    others_.emplace_back(
        [&file, options, group = group_.rank(r)] { run_rank(file, options, group); });
  }
  backend_ = std::make_unique<SplitBackend>(*options.backend, *first_);
  ModelOptions split = options;
  split.backend = backend_.get();
  leader_ = std::make_unique<LeadingModel>(load(file, split), *first_);
}

ThreadRanks::~ThreadRanks() {
  leader_.reset();
  group_.leave();
  for (std::thread& other : others_) other.join();
}

}  // namespace aerie::test
