#include "scheduler/scheduler.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <tuple>
#include <utility>

namespace aerie {
namespace {

// Rows that a running sequence should find room for before another one begins.
constexpr int kSpareRows = kernels::kPagePositions;

// Jobs that are looked at in a step although they have to wait: each look compares prompts.
constexpr size_t kMostPassedOver = 16;

size_t common_prefix(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  const size_t most = std::min(a.size(), b.size());
  return static_cast<size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(most), b.begin()).first -
      a.begin());
}

// Whether a is to go on rather than b.
bool comes_before(const Job& a, const Job& b) {
  return std::tie(a.priority, a.arrival) < std::tie(b.priority, b.arrival);
}

}  // namespace

Scheduler::~Scheduler() {
  for (auto& job : waiting_.take_if([](const Job&) { return true; })) {
    end(std::move(job), JobEnd::kCancelled, {});
  }
  std::vector<std::unique_ptr<Job>> running = std::move(running_);
  running_.clear();
  for (auto& job : running) end(std::move(job), JobEnd::kCancelled, {});
}

void Scheduler::add(std::unique_ptr<Job> job) {
  job->arrival = arrivals_++;
  waiting_.add(std::move(job));
}

void Scheduler::cancel(JobId id) {
  for (auto& job : waiting_.take_if([&](const Job& one) { return one.id == id; })) {
    end(std::move(job), JobEnd::kCancelled, {});
  }
  const auto found = std::ranges::find_if(running_, [&](const auto& job) { return job->id == id; });
  if (found == running_.end()) return;
  std::unique_ptr<Job> job = std::move(*found);
  running_.erase(found);
  end(std::move(job), JobEnd::kCancelled, {});
}

void Scheduler::end(std::unique_ptr<Job> job, JobEnd how, const Status& status) {
  if (job->sequence != nullptr) decoder_.close(*job->sequence);
  waiting_.ended(*job);
  job->listener->on_end(how, status, job->sequence.get());
}

void Scheduler::expire() {
  const auto now = Job::Clock::now();
  const auto late = [&](const Job& job) { return job.deadline && *job.deadline <= now; };
  for (auto& job : waiting_.take_if(late)) end(std::move(job), JobEnd::kDeadline, {});
  for (size_t i = 0; i < running_.size();) {
    if (!late(*running_[i])) {
      ++i;
      continue;
    }
    std::unique_ptr<Job> job = std::move(running_[i]);
    running_.erase(running_.begin() + static_cast<ptrdiff_t>(i));
    end(std::move(job), JobEnd::kDeadline, {});
  }
}

bool Scheduler::must_wait_for_prefix(const Job& job) {
  if (job.sequence != nullptr || !decoder_.reuses_prefixes()) return false;
  // It reads all of its prompt itself.
  if (job.options.sampling.prompt_logprobs >= 0) return false;
  if (job.options.pooling == Pooling::kMean) return false;
  size_t most = 0;
  Sequence* reader = nullptr;
  for (const auto& other : running_) {
    if (other->options.tenant != job.options.tenant) continue;
    // One that is held may be so for long.
    if (other->held || decoder_.unread(*other->sequence) == 0) continue;
    // Of whole pages, which are what is kept once the prompt has been read.
    const auto page = static_cast<size_t>(kernels::kPagePositions);
    const size_t common = common_prefix(other->sequence->tokens, job.prompt) / page * page;
    if (common <= most ||
        !decoder_.can_branch(*other->sequence, static_cast<int>(common), job.options)) {
      continue;
    }
    most = common;
    reader = other->sequence.get();
  }
  if (reader == nullptr ||
      most <= static_cast<size_t>(decoder_.reusable(job.prompt, job.options))) {
    return false;
  }
  decoder_.expect_branch(*reader, static_cast<int>(most));
  return true;
}

// So that what runs need not be preempted at once.
bool Scheduler::has_room(const Job& job) const {
  if (running_.empty()) return true;
  const size_t length = job.sequence != nullptr ? job.sequence->tokens.size() : job.prompt.size();
  int64_t rows = static_cast<int64_t>(length) + kSpareRows;
  for (const auto& other : running_) rows += decoder_.unread(*other->sequence) + kSpareRows;
  const int free = cache_.pages() - cache_.used_pages();
  return rows <= int64_t{free} * kernels::kPagePositions && has_room_in_windows(length);
}

// The same for layers that hold what windows see alone: of each sequence what it keeps when it has
// read its prompt and a page that it begins, and the rows of a pass.
bool Scheduler::has_room_in_windows(size_t length) const {
  const WindowPages* windows = cache_.windows();
  if (windows == nullptr) return true;
  const auto most = [&](size_t tokens) {
    return 1 + windows->most_kept(static_cast<int64_t>(tokens));
  };
  constexpr int kPage = kernels::kPagePositions;
  int64_t places = most(length) + (options_.max_pass_rows + kPage - 1) / kPage;
  for (const auto& other : running_) places += most(other->sequence->tokens.size());
  return places <= windows->places();
}

void Scheduler::admit() {
  std::vector<JobId> passed_over;
  const auto may_be_next = [&](const Job& job) {
    return std::ranges::find(passed_over, job.id) == passed_over.end();
  };
  while (static_cast<int>(running_.size()) < options_.max_sequences) {
    const Job* next = waiting_.next(may_be_next);
    if (next == nullptr) return;
    if (must_wait_for_prefix(*next)) {
      // Others need not wait for that.
      passed_over.push_back(next->id);
      if (passed_over.size() > kMostPassedOver) return;
      continue;
    }
    if (!has_room(*next)) return;
    std::unique_ptr<Job> job = waiting_.take(may_be_next);
    if (const Status status = begin(*job); !status.ok()) {
      end(std::move(job), JobEnd::kFailed, status);
      continue;
    }
    running_.push_back(std::move(job));
  }
}

Status Scheduler::begin(Job& job) {
  if (job.sequence != nullptr) return decoder_.resume(*job.sequence);
  AERIE_ASSIGN_OR_RETURN(job.sequence, decoder_.open(job.prompt, job.options));
  job.began = Job::Clock::now();
  stats_.prompt_tokens += job.sequence->prompt_length;
  stats_.reused_tokens += job.sequence->reused;
  waiting_.charge(job, job.sequence->prompt_length - job.sequence->reused);
  return {};
}

// How many tokens a job may read now. What ends its prompt brings a token, for which its constraint
// has to be ready.
int Scheduler::readable(Job& job) {
  const int unread = decoder_.unread(*job.sequence);
  return job.held && job.sequence->generated() == 0 ? unread - 1 : unread;
}

void Scheduler::compose() {
  rounds_.clear();
  pieces_.clear();
  std::vector<Job*> reading;
  for (const auto& job : running_) {
    job->sequence->emitted.clear();
    job->held = !decoder_.prepare(*job->sequence);
    if (job->sequence->finish != FinishReason::kNone) continue;
    if (decoder_.unread(*job->sequence) > 0) {
      if (readable(*job) > 0) reading.push_back(job.get());
    } else if (!job->held) {
      rounds_.push_back(job->sequence.get());
    }
  }
  if (reading.empty()) return;
  const auto unread = [&](Job* job) { return readable(*job); };
  const auto first = std::ranges::min_element(
      reading, [](const Job* a, const Job* b) { return comes_before(*a, *b); });
  std::iter_swap(reading.begin(), first);
  std::stable_sort(reading.begin() + 1, reading.end(), [&](Job* a, Job* b) {
    return std::pair(a->priority, unread(a)) < std::pair(b->priority, unread(b));
  });
  // The first gets on in every pass, and short ones do not wait until a long one is done.
  const int all = options_.max_pass_rows - static_cast<int>(rounds_.size());
  int left = all - std::min(unread(reading[0]), (all + 1) / 2);
  for (size_t i = 1; i < reading.size() && left > 0; ++i) {
    const int rows = std::min(left, unread(reading[i]));
    pieces_.push_back({reading[i]->sequence.get(), rows});
    left -= rows;
  }
  int rows = all;
  for (const PromptPiece& piece : pieces_) rows -= piece.rows;
  rows = std::min(rows, unread(reading[0]));
  if (rows > 0) pieces_.push_back({reading[0]->sequence.get(), rows});
  bound_logits();
}

// Prompts whose every row wants logits are read in smaller pieces.
void Scheduler::bound_logits() {
  int left = decoder_.max_logits() - static_cast<int>(rounds_.size() + pieces_.size());
  for (PromptPiece& piece : pieces_) {
    piece.rows = std::min(piece.rows, piece.rows - logit_rows(piece) + 1 + std::max(0, left));
    left -= logit_rows(piece) - 1;
  }
}

// Makes room by sending a job back to those that wait. False if only one runs. The first to come is
// never sent back, so that all get to their ends; of the others of the highest priority number the
// one that has least to read again, counted as often as it would have to read it.
bool Scheduler::preempt() {
  if (running_.size() < 2) return false;
  const Job* const first = std::ranges::min_element(running_, [](const auto& a, const auto& b) {
                             return comes_before(*a, *b);
                           })->get();
  const auto order = [&](const auto& job) {
    const int64_t read = cache_.committed(job->sequence->cache);
    return std::tuple(job.get() == first, -int64_t{job->priority}, read * (1 + job->preemptions),
                      ~job->arrival);
  };
  const auto least = std::ranges::min_element(running_, {}, order);
  std::unique_ptr<Job> job = std::move(*least);
  running_.erase(least);
  stats_.preempted_tokens += cache_.committed(job->sequence->cache);
  decoder_.suspend(*job->sequence);
  ++job->preemptions;
  ++stats_.preemptions;
  waiting_.add(std::move(job));
  return true;
}

Status Scheduler::pass() {
  for (;;) {
    compose();
    if (rounds_.empty() && pieces_.empty()) return {};
    Status status = decoder_.step(rounds_, pieces_);
    if (status.code() != StatusCode::kResourceExhausted || !preempt()) return status;
  }
}

void Scheduler::deliver() {
  for (size_t i = 0; i < running_.size();) {
    const Sequence& sequence = *running_[i]->sequence;
    if (!sequence.emitted.empty()) {
      waiting_.charge(*running_[i], static_cast<double>(sequence.emitted.size()));
      running_[i]->listener->on_tokens(sequence);
    }
    if (sequence.finish == FinishReason::kNone) {
      ++i;
      continue;
    }
    std::unique_ptr<Job> job = std::move(running_[i]);
    running_.erase(running_.begin() + static_cast<ptrdiff_t>(i));
    end(std::move(job), JobEnd::kFinished, {});
  }
}

bool Scheduler::step() {
  expire();
  admit();
  const Status status = pass();
  if (status.ok()) {
    const bool waits = !running_.empty() && rounds_.empty() && pieces_.empty();
    deliver();
    return !waits || running_.empty();
  }
  // Trying again would bring the same to those in the pass.
  const auto in_pass = [&](const std::unique_ptr<Job>& job) {
    return std::ranges::find(rounds_, job->sequence.get()) != rounds_.end() ||
           std::ranges::find(pieces_, job->sequence.get(), &PromptPiece::sequence) != pieces_.end();
  };
  const auto failing =
      std::stable_partition(running_.begin(), running_.end(), std::not_fn(in_pass));
  std::vector<std::unique_ptr<Job>> failed(std::make_move_iterator(failing),
                                           std::make_move_iterator(running_.end()));
  running_.erase(failing, running_.end());
  for (auto& job : failed) end(std::move(job), JobEnd::kFailed, status);
  return true;
}

int64_t Scheduler::unread() const {
  int64_t tokens = 0;
  for (const auto& job : running_) tokens += decoder_.unread(*job->sequence);
  return tokens;
}

SchedulerStats Scheduler::stats() const {
  SchedulerStats stats = stats_;
  stats.running = static_cast<int>(running_.size());
  stats.waiting = static_cast<int>(waiting_.size());
  return stats;
}

}  // namespace aerie
