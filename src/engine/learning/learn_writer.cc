#include "engine/learning/learn_writer.h"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/errors.h"

namespace aerie {
namespace {

size_t reply_bytes(const LearnedReply& reply) {
  return sizeof(reply) + reply.tokens.size() * sizeof(int32_t) +
         reply.taps.size() * sizeof(uint16_t);
}

}  // namespace

LearnWriter::LearnWriter(std::shared_ptr<LearnStore> store, Options options)
    : store_(std::move(store)), options_(std::move(options)), thread_([this] { run(); }) {}

LearnWriter::~LearnWriter() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void LearnWriter::add(LearnedReply reply) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    if (bytes_ + reply_bytes(reply) > options_.max_bytes) reply.taps = std::vector<uint16_t>();
    const size_t bytes = reply_bytes(reply);
    if (bytes_ + bytes <= options_.max_bytes) {
      waiting_.push_back(std::move(reply));
      bytes_ += bytes;
      changed_.notify_all();
      return;
    }
  } catch (const std::exception&) {
    // No memory for the queue.
  }
  lose_one();
}

void LearnWriter::drop() noexcept {
  const std::lock_guard lock(mutex_);
  lose_one();
}

void LearnWriter::lose_one() {
  ++dropped_;
  lost_ = true;
  changed_.notify_all();
}

LearnWriter::Counts LearnWriter::counts() const {
  const std::lock_guard lock(mutex_);
  return {stored_.kept, dropped_ + stored_.thrown_away};
}

// Null: all of the store goes to the disk.
Status LearnWriter::store_one(LearnedReply* reply) {
  try {
    return reply == nullptr ? store_->flush() : store_->add(std::move(*reply));
  } catch (const std::exception& error) {
    if (reply != nullptr) drop();
    return resource_exhausted("{}", error.what());
  }
}

void LearnWriter::tell(const Status& status) {
  if (std::exchange(failing_, !status.ok()) == !status.ok() || !options_.warn) return;
  options_.warn(status.ok()
                    ? std::string("replies are kept for learning again")
                    : fmt::format("replies are not kept for learning: {}", status.message()));
}

void LearnWriter::run() {
  const auto flush_after = std::chrono::duration_cast<SteadyTime::duration>(
      std::chrono::duration<double>(options_.flush_seconds));
  SteadyTime flushed = steady_now();
  bool dirty = false;  // something is to be written, or to be said
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto has_news = [&] { return ending_ || !waiting_.empty() || (lost_ && !dirty); };
    if (dirty) {
      changed_.wait_until(lock, flushed + flush_after, has_news);
    } else {
      changed_.wait(lock, has_news);
    }
    if (!dirty) flushed = steady_now();
    dirty = dirty || lost_ || !waiting_.empty();
    if (!waiting_.empty()) store_next(lock);
    const bool ends = ending_ && waiting_.empty();
    if (dirty && (ends || seconds_since(flushed) >= options_.flush_seconds)) {
      dirty = !flush(lock);
      flushed = steady_now();
    }
    if (ends) return;
  }
}

void LearnWriter::store_next(std::unique_lock<std::mutex>& lock) {
  LearnedReply reply = std::move(waiting_.front());
  waiting_.pop_front();
  const size_t bytes = reply_bytes(reply);
  lock.unlock();
  const Status status = store_one(&reply);
  lock.lock();
  bytes_ -= bytes;  // what is being stored counts, too
  stored_ = store_->counts();
  if (!status.ok()) tell(status);  // that it is well shows when it is on the disk
}

bool LearnWriter::flush(std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  Status status = store_one(nullptr);
  lock.lock();
  stored_ = store_->counts();
  if (status.ok() && std::exchange(lost_, false)) {
    status = resource_exhausted("there are more than memory and disk take in time");
  }
  tell(status);
  return status.ok();
}

}  // namespace aerie
