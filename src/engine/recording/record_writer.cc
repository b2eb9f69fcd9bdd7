#include "engine/recording/record_writer.h"

#include <fmt/format.h>

#include <chrono>
#include <exception>

#include "base/errors.h"

namespace aerie {
namespace {

size_t bytes_of(const Record& record) {
  size_t bytes = sizeof(Record) + (record.prompt.size() + record.tokens.size()) * sizeof(int32_t) +
                 record.sampling.logit_bias.size() * sizeof(record.sampling.logit_bias[0]) +
                 record.text.value_or("").size();
  for (const std::string& stop : record.stop) bytes += stop.size();
  if (record.grammar) {
    bytes += record.grammar->text.size();
    for (const std::string& choice : record.grammar->choices) bytes += choice.size();
  }
  return bytes;
}

}  // namespace

RecordWriter::RecordWriter(Write write, Options options)
    : state_(std::make_shared<State>(std::move(write), std::move(options))),
      thread_([state = state_] { run(*state); }) {}

RecordWriter::~RecordWriter() {
  std::unique_lock lock(state_->mutex);
  state_->ending = true;
  state_->changed.notify_all();
  const bool ended =
      state_->changed.wait_for(lock, std::chrono::duration<double>(state_->options.end_seconds),
                               [&] { return state_->ended; });
  state_->abandoned = !ended;
  lock.unlock();
  if (ended) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void RecordWriter::add(Record record) noexcept {
  const std::lock_guard lock(state_->mutex);
  try {
    const size_t bytes = bytes_of(record);
    if (state_->waiting.size() < state_->options.max_records &&
        state_->bytes + bytes <= state_->options.max_bytes) {
      state_->waiting.emplace_back(std::move(record), bytes);
      state_->bytes += bytes;
      state_->changed.notify_all();
      return;
    }
  } catch (const std::exception&) {
    // No memory for the queue.
  }
  ++state_->counts.dropped;
}

RecordWriter::Counts RecordWriter::counts() const {
  const std::lock_guard lock(state_->mutex);
  return state_->counts;
}

Status RecordWriter::write_one(State& state, Record& record) {
  try {
    return state.write(record);
  } catch (const std::exception& error) {
    return resource_exhausted("{}", error.what());
  }
}

// With the lock, so that nobody is told anything once the writer has been left behind.
void RecordWriter::tell(State& state, const Status& status) {
  const bool of_this_one = status.code() == StatusCode::kUnsupported;
  ++(status.ok() ? state.counts.written : state.counts.dropped);
  if (of_this_one) return;
  const int64_t lost = status.ok() ? std::exchange(state.lost, 0) : state.lost++;
  if (!state.options.warn || status.ok() != (lost > 0)) return;
  state.options.warn(status.ok() ? fmt::format("records are written again; {} were lost", lost)
                                 : fmt::format("records are not written: {}", status.message()));
}

void RecordWriter::run(State& state) {
  std::unique_lock lock(state.mutex);
  for (;;) {
    state.changed.wait(lock, [&] { return state.ending || !state.waiting.empty(); });
    if (state.waiting.empty() || state.abandoned) break;
    auto [record, bytes] = std::move(state.waiting.front());
    state.waiting.pop_front();
    lock.unlock();
    const Status status = write_one(state, record);
    lock.lock();
    // What is being written counts, too.
    state.bytes -= bytes;
    if (state.abandoned) break;
    tell(state, status);
  }
  state.ended = true;
  state.changed.notify_all();
}

}  // namespace aerie
