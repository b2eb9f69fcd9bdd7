#include "grammar/grammar_pool.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/log.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace aerie {
namespace {

// A burst of about 20 ms.
constexpr uint64_t kMostCredit = 2'000'000;
constexpr uint64_t kCreditPerMicrosecond = 5;

constexpr size_t kMuch = size_t{4} << 20;
constexpr std::chrono::milliseconds kBetweenReturns{200};

// The threads that decode go first: they wait for one another at every step. What is left to these
// where all cores are busy is about a thirtieth of one.
void go_last() {
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), 15);
}

}  // namespace

GrammarPool::GrammarPool(const GrammarPoolOptions& options, std::function<void()> on_progress)
    : memory_(std::make_shared<grammar::SharedBytes>(options.max_bytes)),
      on_progress_(std::move(on_progress)),
      credit_(kMostCredit),
      credited_(std::chrono::steady_clock::now()) {
  threads_.emplace_back([this] { return_freed(); });
  for (int i = 0; i < std::max(1, options.threads); ++i) {
    threads_.emplace_back([this, alone = i == 0 && options.threads > 1] { work(alone); });
  }
}

GrammarPool::~GrammarPool() {
  stop();
}

void GrammarPool::stop() {
  std::array<std::deque<Task>, 2> dropped;
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    dropped.swap(tasks_);
    threads.swap(threads_);
  }
  changed_.notify_all();
  freed_.notify_all();
  for (std::thread& thread : threads) thread.join();
}

bool GrammarPool::stopped() const {
  const std::lock_guard lock(mutex_);
  return stopped_;
}

void GrammarPool::post(Task task, Length length) {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    tasks_[static_cast<size_t>(length)].push_back(std::move(task));
  }
  changed_.notify_all();
}

void GrammarPool::discard(std::shared_ptr<const void> what, size_t bytes) {
  post(
      [this, what = std::move(what), bytes]() mutable {
        what.reset();
        note_freed(bytes);
      },
      Length::kShort);
}

void GrammarPool::note_freed(size_t bytes) {
  if (bytes < kMuch) return;
  {
    const std::lock_guard lock(mutex_);
    much_freed_ = true;
  }
  freed_.notify_one();
}

// At the usual priority: meanwhile the thread that decodes may wait for the heap.
void GrammarPool::return_freed() {
  std::unique_lock lock(mutex_);
  for (;;) {
    freed_.wait(lock, [&] { return stopped_ || much_freed_; });
    if (stopped_) return;
    much_freed_ = false;
    lock.unlock();
#ifdef __GLIBC__
    malloc_trim(0);
#endif
    lock.lock();
    // What else is freed soon is returned with the next.
    freed_.wait_for(lock, kBetweenReturns, [&] { return stopped_; });
  }
}

void GrammarPool::work(bool short_ones_only) {
  go_last();
  const auto next = [&]() -> std::deque<Task>* {
    if (!tasks_[0].empty()) return &tasks_[0];
    return short_ones_only || tasks_[1].empty() ? nullptr : &tasks_[1];
  };
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopped_ || next() != nullptr; });
    if (stopped_) return;
    std::deque<Task>& tasks = *next();
    Task task = std::move(tasks.front());
    tasks.pop_front();
    lock.unlock();
    // Where memory is short; what the task was for hears of it when the task is destroyed.
    try {
      task();
    } catch (const std::exception& error) {
      log(LogLevel::kWarning, fmt::format("a constraint could not be prepared: {}", error.what()));
    }
    task = nullptr;
    if (on_progress_) on_progress_();
    lock.lock();
  }
}

uint64_t GrammarPool::credit(uint64_t least) {
  const auto now = std::chrono::steady_clock::now();
  const auto passed =
      std::chrono::duration_cast<std::chrono::microseconds>(now - credited_).count();
  credit_ = std::min(kMostCredit, credit_ + static_cast<uint64_t>(passed) * kCreditPerMicrosecond);
  credited_ += std::chrono::microseconds(passed);
  return credit_ < least ? 0 : credit_;
}

}  // namespace aerie
