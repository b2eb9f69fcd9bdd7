#include "engine/service.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <future>
#include <mutex>
#include <new>
#include <numeric>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/clock.h"
#include "base/errors.h"
#include "engine/engine.h"
#include "engine/live_speculations.h"
#include "engine/opened_model.h"
#include "engine/placement/memory.h"
#include "engine/running_reply.h"
#include "model/pooling.h"
#include "scheduler/scheduler.h"

namespace aerie {
namespace {

// How late a deadline or a mask may be seen where nothing else happens.
constexpr std::chrono::milliseconds kPoll{20};

Status no_memory() {
  return resource_exhausted("there is not enough memory for this");
}

// Of a thread that may have ended before it came to that.
template <typename Value>
Expected<Value> wait_for(std::future<Expected<Value>> result) {
  try {
    return result.get();
  } catch (const std::future_error&) {
    return Status(StatusCode::kCancelled, "shutting down: nothing new is taken");
  }
}

class EngineService final : public Service {
 public:
  // `owner` is the engine whose the model is, if nobody else keeps it.
  EngineService(std::unique_ptr<Engine> owner, OpenedModel& opened, const ServiceOptions& options)
      : owner_(std::move(owner)),
        opened_(opened),
        options_(options),
        name_(opened_.name()),
        trie_(make_token_trie(*opened_.source.tokenizer)),
        pooling_(read_pooling(opened_.file())) {}
  ~EngineService() override;

  Status start();

  const std::string& model_name() const override { return name_; }
  int context() const override { return opened_.options.context; }
  std::string device() const override {
    return opened_.device ? opened_.device->words() : opened_.options.device;
  }
  const Tokenizer& tokenizer() const override { return *opened_.source.tokenizer; }
  Expected<SuggestedSampling> suggested_sampling() const override {
    return read_suggested_sampling(opened_.file());
  }
  const Expected<ChatTemplate>& chat_template() const override {
    return opened_.source.chat_template;
  }
  Expected<Pooling> pooling() const override { return pooling_; }
  int embedding_size() const override { return opened_.config().hidden; }
  std::shared_ptr<const TokenTrie> token_trie() const override { return trie_; }
  std::shared_ptr<GrammarPool> grammar_pool() const override { return pool_; }
  std::vector<std::string> speculations() const override { return live_->names(); }
  Expected<int> add_speculation(const SpeculativeConfig& config) override;
  Status remove_speculation(int speculation) override;
  int64_t memory_bytes() const override { return opened_.memory.taken + live_->added_bytes(); }

  Expected<Id> submit(Request request, std::shared_ptr<ReplySink> sink) override;
  void cancel(Id id) override;
  ServiceStats stats() const override;
  void drain() override;
  Status failure() const override;

 private:
  struct Arrival {
    Id id = 0;
    RunningReply::Drafters drafters;
    std::unique_ptr<RunningReply> reply;
  };

  void start_pool();
  bool has_room(int share) const;
  int pass_tokens() const;
  void run();
  void serve();
  void take_mail(Scheduler& scheduler, std::vector<Arrival>& arrivals, std::vector<Id>& cancels);
  void run_tasks(std::vector<std::function<void()>>& tasks);
  void on_thread(std::function<void()> task);
  Status take_needs();
  void retire();
  void publish(const Scheduler& scheduler, double busy);

  std::unique_ptr<Engine> owner_;
  OpenedModel& opened_;
  ServiceOptions options_;
  std::string name_;
  std::shared_ptr<const TokenTrie> trie_;
  const Expected<Pooling> pooling_;
  std::shared_ptr<GrammarPool> pool_;
  std::unique_ptr<LiveSpeculations> live_;
  std::unique_ptr<Learning> learning_;  // null: nothing is kept of replies
  std::unique_ptr<Decoder> decoder_;

  // The thread's own.
  std::unordered_map<Id, std::unique_ptr<RunningReply>> replies_;
  ServiceStats totals_;

  mutable std::mutex mutex_;
  std::condition_variable mail_;
  std::vector<Arrival> arrivals_;
  std::vector<Id> cancels_;
  std::vector<std::function<void()>> tasks_;
  bool draining_ = false;
  bool stopping_ = false;
  Status failure_;
  std::atomic<bool> masks_came_ = false;
  int unfinished_ = 0;
  std::unordered_map<std::string, int> unfinished_of_;  // [client]
  Id next_id_ = 1;
  ServiceStats published_;
  std::thread thread_;
};

Status EngineService::start() {
  AERIE_ASSIGN_OR_RETURN(live_, LiveSpeculations::make(opened_, options_.max_sequences));
  DecoderOptions decoder = opened_.decoder;
  decoder.reuse_prefixes = options_.prefix_cache;
  Drafter* drafter = &live_->drafter();
  if (options_.learn.store != nullptr) {
    AERIE_ASSIGN_OR_RETURN(learning_, Learning::start(opened_, *drafter, options_.learn));
    drafter = &learning_->drafter();
  }
  decoder_ = std::make_unique<Decoder>(*opened_.model, *opened_.cache, drafter, decoder);
  start_pool();
  thread_ = std::thread([this] { run(); });
  return {};
}

void EngineService::start_pool() {
  GrammarPoolOptions options;
  options.threads = options_.grammar_threads;
  int64_t bytes = options_.grammar_bytes;
  if (bytes <= 0) {
    const int64_t free = available_memory();
    bytes = free < 0 ? ServiceOptions::kMostGrammarBytes
                     : std::clamp(free / 16, ServiceOptions::kLeastGrammarBytes,
                                  ServiceOptions::kMostGrammarBytes);
  }
  options.max_bytes = static_cast<size_t>(bytes);
  // Without the lock, which threads that go last must not keep: a word that is lost comes too late
  // by kPoll.
  pool_ = std::make_shared<GrammarPool>(options, [this] {
    masks_came_ = true;
    mail_.notify_one();
  });
}

EngineService::~EngineService() {
  if (pool_ != nullptr) pool_->stop();
  {
    const std::lock_guard lock(mutex_);
    stopping_ = draining_ = true;
  }
  mail_.notify_one();
  if (thread_.joinable()) thread_.join();
}

// What others wait for a prompt's piece is not noticed much, and a piece of so many rows costs
// little more for each than a longer one.
int EngineService::pass_tokens() const {
  constexpr double kSeconds = 0.25;
  if (options_.max_pass_tokens > 0) return options_.max_pass_tokens;
  const int least = std::max(ServiceOptions::kLeastPassTokens, options_.max_sequences);
  if (opened_.cost == nullptr) return std::max(least, ServiceOptions::kMostPassTokens);
  int rows = least;
  while (rows < ServiceOptions::kMostPassTokens &&
         opened_.cost->seconds({.rows = rows + 1}) <= kSeconds) {
    ++rows;
  }
  return rows;
}

// Whether a client with so many requests may have one more. The last eighth of the places is for
// clients that have few: one alone does not lock the others out.
bool EngineService::has_room(int share) const {
  const int places = options_.max_sequences + options_.max_waiting;
  if (unfinished_ >= places) return false;
  return unfinished_ < places - places / 8 || share < places / 8;
}

Expected<Service::Id> EngineService::submit(Request request, std::shared_ptr<ReplySink> sink) {
  // As long as the reply is there, so are these.
  const std::array drafters = {live_->drafter_of(request.speculation),
                               live_->drafter_of(request.shadow)};
  AERIE_RETURN_IF_ERROR(check_request(
      request, opened_, drafters[0] != nullptr ? request.speculation + 1 : request.speculation));
  Arrival arrival;
  if (request.speculate) arrival.drafters.drafter = *drafters[0];
  if (request.shadow >= 0 && drafters[1] != nullptr) arrival.drafters.shadow = *drafters[1];
  arrival.reply =
      std::make_unique<RunningReply>(std::move(request), std::move(sink), tokenizer(), &totals_);
  arrival.reply->set_learning(learning_.get());
  arrival.reply->hold(std::make_shared<const decltype(drafters)>(drafters));
  Id id = 0;
  {
    const std::lock_guard lock(mutex_);
    if (draining_) return Status(StatusCode::kCancelled, "shutting down: nothing new is taken");
    int& share = unfinished_of_[arrival.reply->client()];
    if (!has_room(share)) {
      if (share == 0) unfinished_of_.erase(arrival.reply->client());
      return resource_exhausted("{} requests wait already: try again later",
                                std::max(0, unfinished_ - options_.max_sequences));
    }
    ++share;
    ++unfinished_;
    id = arrival.id = next_id_++;
    arrivals_.push_back(std::move(arrival));
  }
  mail_.notify_one();
  return id;
}

void EngineService::cancel(Id id) {
  {
    const std::lock_guard lock(mutex_);
    cancels_.push_back(id);
  }
  mail_.notify_one();
}

ServiceStats EngineService::stats() const {
  const std::lock_guard lock(mutex_);
  ServiceStats stats = published_;
  if (learning_ != nullptr) {
    const LearnWriter::Counts counts = learning_->counts();
    stats.learned = counts.kept;
    stats.learned_dropped = counts.dropped;
  }
  // What is on its way to the thread waits, too.
  stats.waiting = std::max(stats.waiting, unfinished_ - stats.running);
  return stats;
}

void EngineService::drain() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
}

Status EngineService::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

// What it promises is broken if it never runs.
void EngineService::on_thread(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || !failure_.ok()) return;
    tasks_.push_back(std::move(task));
  }
  mail_.notify_one();
}

// What drafters want of passes has changed.
Status EngineService::take_needs() {
  if (learning_ != nullptr) AERIE_RETURN_IF_ERROR(learning_->drafter().refresh());
  decoder_->on_new_needs();
  return {};
}

void EngineService::run_tasks(std::vector<std::function<void()>>& tasks) {
  if (live_->sweep()) (void)take_needs();  // no more than before
  for (const auto& task : tasks) task();
  tasks.clear();
}

Expected<int> EngineService::add_speculation(const SpeculativeConfig& config) {
  if (opened_.options.draft_room == 0) {
    return not_supported("this server was not started to take further settings of speculation");
  }
  auto promise = std::make_shared<std::promise<Expected<int>>>();
  auto result = promise->get_future();
  on_thread([this, config, promise = std::move(promise)] {
    try {
      Expected<int> added = live_->add(config);
      if (added.ok()) {
        if (Status status = take_needs(); !status.ok()) {
          (void)live_->remove(*added);
          live_->sweep();
          added = std::move(status);
        }
      }
      promise->set_value(std::move(added));
    } catch (const std::bad_alloc&) {
      promise->set_value(no_memory());
    } catch (const std::exception& error) {
      promise->set_value(internal_error("{}", error.what()));
    }
  });
  return wait_for(std::move(result));
}

Status EngineService::remove_speculation(int speculation) {
  AERIE_RETURN_IF_ERROR(live_->remove(speculation));
  on_thread([] {});  // so that an idle one lets go of it, too
  return {};
}

void EngineService::take_mail(Scheduler& scheduler, std::vector<Arrival>& arrivals,
                              std::vector<Id>& cancels) {
  for (Arrival& arrival : arrivals) {
    RunningReply& reply = *arrival.reply;
    replies_[arrival.id] = std::move(arrival.reply);
    try {
      scheduler.add(reply.make_job(arrival.id, arrival.drafters, context(), pool_));
    } catch (const std::bad_alloc&) {
      reply.refuse(JobEnd::kFailed, no_memory());
    }
  }
  for (const Id id : cancels) scheduler.cancel(id);
  arrivals.clear();
  cancels.clear();
}

// Forgets what has ended.
void EngineService::retire() {
  std::vector<std::string> ended;  // clients
  std::erase_if(replies_, [&](const auto& entry) {
    if (!entry.second->ended()) return false;
    ended.push_back(entry.second->client());
    return true;
  });
  const std::lock_guard lock(mutex_);
  unfinished_ -= static_cast<int>(ended.size());
  for (const std::string& client : ended) {
    const auto share = unfinished_of_.find(client);
    if (--share->second == 0) unfinished_of_.erase(share);
  }
}

void EngineService::publish(const Scheduler& scheduler, double busy) {
  const SchedulerStats stats = scheduler.stats();
  totals_.running = stats.running;
  totals_.waiting = stats.waiting;
  totals_.cache_usage = static_cast<double>(opened_.cache->used_pages()) / opened_.cache->pages();
  totals_.prompt_tokens = stats.prompt_tokens;
  totals_.prefix_queries = options_.prefix_cache ? stats.prompt_tokens : 0;
  totals_.prefix_hits = stats.reused_tokens;
  totals_.preemptions = stats.preemptions;
  totals_.passes = decoder_->target_passes();
  const StageTimes& times = decoder_->times();
  totals_.pass_seconds = times.of(Stage::kPrefill) + times.of(Stage::kVerify);
  totals_.decode_seconds = std::accumulate(times.seconds.begin(), times.seconds.end(), 0.0);
  totals_.busy_seconds += busy;
  const std::lock_guard lock(mutex_);
  published_ = totals_;
}

void EngineService::run() {
  Status failure;
  try {
    serve();
  } catch (const std::bad_alloc&) {
    failure = no_memory();
  } catch (const std::exception& error) {
    failure = internal_error("{}", error.what());
  }
  // The scheduler has cancelled what it had; here is what had not reached it.
  std::vector<Arrival> rest;
  {
    const std::lock_guard lock(mutex_);
    draining_ = true;
    failure_ = failure;
    rest.swap(arrivals_);
    tasks_.clear();
  }
  for (Arrival& arrival : rest) arrival.reply->refuse(JobEnd::kCancelled);
  retire();
}

// Until it is stopped.
void EngineService::serve() {
  SchedulerOptions options;
  options.max_sequences = options_.max_sequences;
  options.max_pass_rows = std::min(opened_.decoder.max_rows, pass_tokens());
  std::vector<Arrival> arrivals;
  std::vector<Id> cancels;
  std::vector<std::function<void()>> tasks;
  bool waits = false;  // all that there is, for masks
  std::optional<Turns::Member> turn;
  if (opened_.options.turns != nullptr) turn.emplace(opened_.options.turns);
  {
    Scheduler scheduler(*decoder_, *opened_.cache, options);
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        const auto has_mail = [&] {
          return stopping_ || !arrivals_.empty() || !cancels_.empty() || !tasks_.empty();
        };
        if (waits) {
          mail_.wait_for(lock, kPoll, [&] { return has_mail() || masks_came_; });
        } else {
          mail_.wait(lock, [&] { return has_mail() || !scheduler.idle(); });
        }
        masks_came_ = false;
        if (stopping_) break;
        arrivals.swap(arrivals_);
        cancels.swap(cancels_);
        tasks.swap(tasks_);
      }
      if (turn) turn->begin();
      const SteadyTime start = steady_now();
      run_tasks(tasks);
      take_mail(scheduler, arrivals, cancels);
      waits = !scheduler.step();
      if (turn) turn->end(!waits && !scheduler.idle());
      retire();
      publish(scheduler, seconds_since(start));
    }
  }
}

}  // namespace

Expected<int> Service::add_speculation(const SpeculativeConfig&) {
  return not_supported("this service takes no further settings of speculation");
}

Status Service::remove_speculation(int) {
  return not_supported("this service takes no further settings of speculation");
}

Expected<Concurrency> concurrency_of(const ServiceOptions& options) {
  if (options.max_sequences < 1 || options.max_sequences > 4096) {
    return invalid_argument("{} sequences at a time: give 1 to 4096", options.max_sequences);
  }
  if (options.max_pass_tokens != 0 && options.max_pass_tokens < options.max_sequences) {
    return invalid_argument("a pass of {} tokens does not hold one of each of {} sequences",
                            options.max_pass_tokens, options.max_sequences);
  }
  if (options.grammar_bytes < 0 || options.grammar_threads < 1 || options.grammar_threads > 64) {
    return invalid_argument("{} bytes and {} threads for grammars: give 0 or more, and 1 to 64",
                            options.grammar_bytes, options.grammar_threads);
  }
  Concurrency concurrency;
  concurrency.sequences = options.max_sequences;
  concurrency.cache_positions =
      options.cache_positions > 0 ? options.cache_positions : Concurrency::kRoom;
  concurrency.pass_rows =
      options.max_pass_tokens > 0 ? options.max_pass_tokens : ServiceOptions::kMostPassTokens;
  return concurrency;
}

Expected<std::unique_ptr<Service>> start_service(OpenedModel& opened,
                                                 const ServiceOptions& options) {
  auto service = std::make_unique<EngineService>(nullptr, opened, options);
  AERIE_RETURN_IF_ERROR(service->start());
  return std::unique_ptr<Service>(std::move(service));
}

Expected<std::unique_ptr<Service>> open_service(const EngineOptions& engine,
                                                const ServiceOptions& options) {
  AERIE_ASSIGN_OR_RETURN(const Concurrency concurrency, concurrency_of(options));
  AERIE_ASSIGN_OR_RETURN(std::unique_ptr<Engine> owner, Engine::open(engine, concurrency));
  OpenedModel& opened = owner->parts();
  auto service = std::make_unique<EngineService>(std::move(owner), opened, options);
  AERIE_RETURN_IF_ERROR(service->start());
  return std::unique_ptr<Service>(std::move(service));
}

}  // namespace aerie
