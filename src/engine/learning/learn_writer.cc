#include "engine/learning/learn_writer.h"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <utility>

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
  ++counts_.dropped;
}

void LearnWriter::drop() noexcept {
  const std::lock_guard lock(mutex_);
  ++counts_.dropped;
}

LearnWriter::Counts LearnWriter::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

// Null: all of the store goes to the disk.
Status LearnWriter::store_one(LearnedReply* reply) {
  try {
    return reply == nullptr ? store_->flush() : store_->add(std::move(*reply));
  } catch (const std::exception& error) {
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
  const std::chrono::duration<double> flush_after(options_.flush_seconds);
  SteadyTime flushed = steady_now();
  bool dirty = false;
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto has_news = [&] { return ending_ || !waiting_.empty(); };
    if (dirty) {
      changed_.wait_until(
          lock, flushed + std::chrono::duration_cast<SteadyTime::duration>(flush_after), has_news);
    } else {
      changed_.wait(lock, has_news);
    }
    if (!waiting_.empty()) {
      LearnedReply reply = std::move(waiting_.front());
      waiting_.pop_front();
      const size_t bytes = reply_bytes(reply);
      lock.unlock();
      const Status status = store_one(&reply);
      lock.lock();
      // What is being stored counts, too.
      bytes_ -= bytes;
      ++(status.ok() ? counts_.kept : counts_.dropped);
      if (!status.ok()) tell(status);  // that it is well shows when it is on the disk
      if (!dirty) flushed = steady_now();
      dirty = true;
    }
    const bool ends = ending_ && waiting_.empty();
    if (dirty && (ends || seconds_since(flushed) >= options_.flush_seconds)) {
      lock.unlock();
      const Status status = store_one(nullptr);
      lock.lock();
      tell(status);
      flushed = steady_now();
      dirty = false;
    }
    if (ends) return;
  }
}

}  // namespace aerie
