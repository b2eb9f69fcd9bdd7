#include "server/openai/reply_task.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <iterator>
#include <limits>
#include <mutex>
#include <utility>

#include "base/clock.h"
#include "base/errors.h"

namespace aerie::server {
namespace {

// Of an answer in one piece, which is held in memory until it is said.
constexpr size_t kMostLogprobs = 1'000'000;

// What is compiled at once, by the thread that reads requests: for about 20 ms at most.
constexpr size_t kSmallText = size_t{16} << 10;
constexpr size_t kFewChoices = 200;
constexpr uint64_t kFewSteps = 300'000;
// By a thread of the pool before others.
constexpr uint64_t kSomeSteps = 2'000'000;
constexpr uint64_t kAllSteps = std::numeric_limits<uint64_t>::max();

// With all parts.
size_t text_bytes(const GrammarSpec& spec) {
  size_t bytes = spec.text.size();
  for (const GrammarSpec& part : spec.parts) bytes += text_bytes(part);
  return bytes;
}
size_t choices_of(const GrammarSpec& spec) {
  size_t count = spec.choices.size();
  for (const GrammarSpec& part : spec.parts) count += choices_of(part);
  return count;
}

ApiError late_error() {
  return error_of(504, "the request took longer than this server allows", "", "timeout");
}

ApiError ending_error() {
  return error_of(503, "the request was cancelled: the server is ending");
}

ApiError failure_of(const ReplyEnd& end) {
  switch (end.outcome) {
    case ReplyOutcome::kDeadline:
      return late_error();
    case ReplyOutcome::kFailed:
      return error_of(end.status.ok() ? internal_error("the reply failed") : end.status);
    default:
      return ending_error();
  }
}

void append(ReplyDelta& to, ReplyDelta from) {
  if (to.tokens.empty() && to.text.empty()) {
    to = std::move(from);
    return;
  }
  to.text += from.text;
  to.tokens.insert(to.tokens.end(), std::make_move_iterator(from.tokens.begin()),
                   std::make_move_iterator(from.tokens.end()));
  to.tree = std::move(from.tree);
}

// Kept alive by the sinks, which the service keeps until their ends.
class RunningTask final : public std::enable_shared_from_this<RunningTask> {
 public:
  RunningTask(std::shared_ptr<ApiState> state, ReplyTask task, std::shared_ptr<Answer> answer)
      : state_(std::move(state)),
        open_(state_->server.open_requests),
        task_(std::move(task)),
        answer_(std::move(answer)),
        interval_(std::max(1, state_->options.stream_interval)) {
    for (size_t i = 0; i < task_.requests.size(); ++i) {
      choices_.push_back({});
      choices_.back().index = static_cast<int>(i);
      choices_.back().prompt = task_.prompts.empty() ? 0 : task_.prompts[i];
      if (task_.requests[i].trace) interval_ = 1;
    }
    streams_.resize(choices_.size());
  }

  void start();
  void on_delta(size_t index, ReplyDelta delta);
  void on_end(size_t index, ReplyEnd end);

  // Runs `call`, one of these two. What it throws ends this answer, not the service's thread.
  template <typename Call>
  void guard(const Call& call);

 private:
  // Of one choice.
  struct Stream {
    ReplyDelta pending;  // not said yet
    int pending_rounds = 0;
    bool began = false;
    SteadyTime last;
    std::string method;  // of speculation; empty: the request does without
    bool held_back = false;
    Rollout::Ticket ticket;
  };

  bool is_first_of_prompt(size_t index) const {
    return index == 0 || choices_[index].prompt != choices_[index - 1].prompt;
  }
  std::optional<ApiError> reserve();
  bool try_compile(uint64_t max_steps, bool is_last);
  bool compile(uint64_t max_steps, bool is_last);
  void compile_later(GrammarPool::Length length);
  void take(const Expected<std::shared_ptr<const Grammar>>& grammar);
  bool is_late() const;
  void submit();
  void choose_setting(Request& request, Stream& stream);
  void on_gone();
  void fail(const ApiError& error);
  void cancel_all();
  void begin();
  void say(std::string text);
  void count(Stream& stream, size_t tokens);
  void finish();
  void send_whole();

  // Until the answer is let go, too.
  class Counted {
   public:
    explicit Counted(std::atomic<int>& count) : count_(count) { count_.fetch_add(1); }
    ~Counted() { count_.fetch_sub(1); }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;

   private:
    std::atomic<int>& count_;
  };

  const std::shared_ptr<ApiState> state_;
  const Counted open_;
  ReplyTask task_;
  const std::shared_ptr<Answer> answer_;
  int interval_;
  const SteadyTime start_ = steady_now();

  std::mutex mutex_;
  std::vector<Service::Id> ids_;
  std::vector<Choice> choices_;
  std::vector<Stream> streams_;
  size_t kept_logprobs_ = 0;
  size_t ended_ = 0;
  bool begun_ = false;  // a stream
  bool over_ = false;   // nothing is to be said any more
  std::atomic<bool> gone_ = false;
};

template <typename Call>
void RunningTask::guard(const Call& call) {
  const std::lock_guard lock(mutex_);
  try {
    call();
  } catch (const std::exception& error) {
    if (!over_) fail(error_of(error));
  }
}

class TaskSink final : public ReplySink {
 public:
  TaskSink(std::shared_ptr<RunningTask> task, size_t index)
      : task_(std::move(task)), index_(index) {}
  void on_delta(ReplyDelta delta) override {
    task_->guard([&] { task_->on_delta(index_, std::move(delta)); });
  }
  void on_end(ReplyEnd end) override {
    task_->guard([&] { task_->on_end(index_, std::move(end)); });
  }

 private:
  std::shared_ptr<RunningTask> task_;
  size_t index_;
};

void RunningTask::start() {
  answer_->on_gone([weak = weak_from_this()] {
    if (const auto task = weak.lock()) task->on_gone();
  });
  if (const auto refused = reserve()) {
    const std::lock_guard lock(mutex_);
    return fail(*refused);
  }
  if (!task_.grammar) return submit();
  GrammarSpec& spec = task_.grammar->spec;
  spec.strict = spec.strict || state_->options.strict_schemas;
  if (auto known = state_->grammars->find(spec)) {
    return take(known);
  }
  if (state_->service.grammar_pool() == nullptr) {
    try_compile(kAllSteps, true);
    return;
  }
  // What is soon done need not wait for others.
  const bool is_small = text_bytes(spec) <= kSmallText && choices_of(spec) <= kFewChoices;
  if (!is_small || !try_compile(kFewSteps, false)) compile_later(GrammarPool::Length::kShort);
}

// Replies to one prompt stand side by side.
std::optional<ApiError> RunningTask::reserve() {
  if (task_.account == nullptr) return std::nullopt;
  int64_t prompts = 0, replies = 0;
  bool is_bounded = true;
  for (size_t i = 0; i < task_.requests.size(); ++i) {
    const Request& request = task_.requests[i];
    const auto prompt = static_cast<int64_t>(request.prompt.size());
    const int64_t room = std::max<int64_t>(0, state_->service.context() - prompt);
    if (is_first_of_prompt(i)) prompts += prompt;
    if (request.pooling != Pooling::kNone) continue;
    replies += request.max_tokens > 0 ? std::min<int64_t>(request.max_tokens, room) : room;
    is_bounded = is_bounded && request.max_tokens > 0;
  }
  return task_.account->reserve(prompts, replies, is_bounded);
}

bool RunningTask::is_late() const {
  const auto& deadline = task_.requests.front().deadline;
  return deadline && *deadline <= std::chrono::steady_clock::now();
}

// Whether that settled it.
bool RunningTask::try_compile(uint64_t max_steps, bool is_last) {
  try {
    return compile(max_steps, is_last);
  } catch (const std::exception& error) {
    const std::lock_guard lock(mutex_);
    if (!over_) fail(error_of(error));
    return true;
  }
}

bool RunningTask::compile(uint64_t max_steps, bool is_last) {
  CompileOptions options;
  options.pool = state_->service.grammar_pool();
  options.max_steps = max_steps;
  options.is_stopped = [this, pool = options.pool.get()] {
    return gone_ || is_late() || (pool != nullptr && pool->stopped());
  };
  const auto grammar =
      state_->grammars->get(task_.grammar->spec, state_->service.token_trie(), options);
  if (!grammar.ok() && grammar.status().code() == StatusCode::kResourceExhausted && !is_last) {
    return false;
  }
  take(grammar);
  return true;
}

void RunningTask::compile_later(GrammarPool::Length length) {
  const bool is_short = length == GrammarPool::Length::kShort;
  state_->service.grammar_pool()->post(
      [self = shared_from_this(), is_short] {
        if (self->try_compile(is_short ? kSomeSteps : kAllSteps, !is_short)) return;
        self->compile_later(GrammarPool::Length::kLong);
      },
      length);
}

void RunningTask::take(const Expected<std::shared_ptr<const Grammar>>& grammar) {
  if (grammar.ok()) {
    for (Request& request : task_.requests) request.grammar = *grammar;
    return submit();
  }
  const std::lock_guard lock(mutex_);
  if (over_) return;
  if (grammar.status().code() == StatusCode::kCancelled) {
    return fail(is_late() ? late_error() : ending_error());
  }
  const std::string& field = task_.grammar->field;
  ApiError error = error_of(grammar.status().with_context(field), field);
  // Too large a grammar is the client's to correct.
  if (error.status == 429) error = error_of(400, error.message, field);
  fail(error);
}

void RunningTask::submit() {
  // What arrives meanwhile waits for the others: whether there is a stream is not decided before
  // all have been taken.
  const std::lock_guard lock(mutex_);
  // Gone already: there would be nobody to cancel what is submitted now.
  if (over_) return;
  for (size_t i = 0; i < task_.requests.size(); ++i) {
    choose_setting(task_.requests[i], streams_[i]);
    auto id = state_->service.submit(std::move(task_.requests[i]),
                                     std::make_shared<TaskSink>(shared_from_this(), i));
    if (!id.ok()) {
      fail(error_of(id.status()));
      return;
    }
    ids_.push_back(*id);
  }
}

// What a request gets that leaves it to the server.
void RunningTask::choose_setting(Request& request, Stream& stream) {
  if (request.speculate && request.speculation == 0) {
    stream.ticket = state_->rollout.draw();
    request.speculation = stream.ticket.speculation;
    request.shadow = stream.ticket.shadow;
  }
  const std::vector<std::string> offered = state_->service.speculations();
  const auto index = static_cast<size_t>(request.speculation);
  if (!request.speculate || index >= offered.size() || offered[index] == "none") return;
  stream.method = offered[index];
  stream.held_back = state_->holdback.draw({stream.method, task_.traffic_class});
  if (!stream.held_back) return;
  request.speculate = false;
  stream.ticket.canary = stream.ticket.on_paper = 0;
  request.shadow = -1;
}

void RunningTask::cancel_all() {
  for (const Service::Id id : ids_) state_->service.cancel(id);
}

void RunningTask::on_gone() {
  gone_ = true;
  const std::lock_guard lock(mutex_);
  over_ = true;
  cancel_all();
}

void RunningTask::fail(const ApiError& error) {
  over_ = true;
  cancel_all();
  if (!begun_) return send_error(*answer_, error);
  answer_->write(task_.format->failure(error));
  answer_->finish();
}

void RunningTask::begin() {
  if (std::exchange(begun_, true)) return;
  answer_->begin(200, task_.format->stream_type(),
                 {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}});
  say(task_.format->opening(choices_));
}

void RunningTask::say(std::string text) {
  if (!text.empty()) answer_->write(std::move(text));
}

void RunningTask::count(Stream& stream, size_t tokens) {
  if (tokens == 0) return;
  if (!stream.began) {
    state_->metrics.on_first_token(seconds_since(start_));
  } else {
    state_->metrics.on_tokens(static_cast<int>(tokens), seconds_since(stream.last));
  }
  stream.last = steady_now();
}

void RunningTask::on_delta(size_t index, ReplyDelta delta) {
  Choice& choice = choices_[index];
  Stream& stream = streams_[index];
  count(stream, delta.tokens.size());
  const bool is_first = !std::exchange(stream.began, true);
  if (over_) return;
  if (task_.keep_text) {
    for (const EmittedToken& token : delta.tokens) kept_logprobs_ += token.logprobs.size();
    for (const auto& of_token : delta.prompt_logprobs) kept_logprobs_ += of_token.size();
    if (is_first) choice.prompt_logprobs = std::move(delta.prompt_logprobs);
    if (kept_logprobs_ > kMostLogprobs) {
      return fail(error_of(400,
                           fmt::format("logprobs: more than {} in one answer: stream it, or lower "
                                       "max_tokens or n",
                                       kMostLogprobs),
                           "logprobs"));
    }
    choice.text += delta.text;
    choice.tokens.insert(choice.tokens.end(), delta.tokens.begin(), delta.tokens.end());
  }
  if (!task_.stream) return;
  append(stream.pending, std::move(delta));
  if (!is_first && ++stream.pending_rounds < interval_) return;
  stream.pending_rounds = 0;
  begin();
  say(task_.format->delta(choice, std::exchange(stream.pending, {})));
}

void RunningTask::on_end(size_t index, ReplyEnd end) {
  state_->metrics.on_end(end, seconds_since(start_));
  if (task_.account) task_.account->add(end, is_first_of_prompt(index));
  Choice& choice = choices_[index];
  Stream& stream = streams_[index];
  state_->rollout.on_end(stream.ticket, end);
  if (!stream.method.empty()) {
    state_->holdback.on_end({stream.method, task_.traffic_class}, stream.held_back, end);
  }
  choice.ended = true;
  choice.end = std::move(end);
  ++ended_;
  if (over_) return;
  if (choice.end.outcome != ReplyOutcome::kDone) return fail(failure_of(choice.end));
  // What was said already stands.
  if (choice.end.finish == FinishReason::kError && choice.end.generated_tokens == 0) {
    return fail(constraint_error(choice.end.status));
  }
  if (task_.keep_text) choice.text += choice.end.text;
  if (task_.stream) {
    stream.pending.text += choice.end.text;
    begin();
    say(task_.format->closing(choice, std::exchange(stream.pending, {})));
  }
  if (ended_ == choices_.size()) finish();
}

void RunningTask::finish() {
  over_ = true;
  if (task_.stream) {
    say(task_.format->ending(choices_));
    answer_->finish();
  } else {
    // Not by the service's thread: meanwhile no other reply would go on.
    answer_->run([self = shared_from_this()] { self->send_whole(); });
  }
}

// Nothing changes any more.
void RunningTask::send_whole() {
  if (gone_) return;
  try {
    answer_->send(200, "application/json", task_.format->whole(choices_));
  } catch (const std::exception& error) {
    send_error(*answer_, error_of(error));
  }
}

}  // namespace

void run_task(std::shared_ptr<ApiState> state, ReplyTask task, std::shared_ptr<Answer> answer) {
  std::make_shared<RunningTask>(std::move(state), std::move(task), std::move(answer))->start();
}

}  // namespace aerie::server
