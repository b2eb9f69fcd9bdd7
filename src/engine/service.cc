#include "engine/service.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/clock.h"
#include "base/errors.h"
#include "draft/auto/choice.h"
#include "engine/engine.h"
#include "engine/opened_model.h"
#include "engine/running_reply.h"
#include "scheduler/scheduler.h"

namespace aerie {
namespace {

class EngineService final : public Service {
 public:
  // `owner` is the engine whose the model is, if nobody else keeps it.
  EngineService(std::unique_ptr<Engine> owner, OpenedModel& opened, const ServiceOptions& options)
      : owner_(std::move(owner)),
        opened_(opened),
        options_(options),
        name_(opened_.name()),
        trie_(make_token_trie(*opened_.source.tokenizer)) {}
  ~EngineService() override;

  Status start();

  const std::string& model_name() const override { return name_; }
  int context() const override { return opened_.options.context; }
  const Tokenizer& tokenizer() const override { return *opened_.source.tokenizer; }
  const Expected<ChatTemplate>& chat_template() const override {
    return opened_.source.chat_template;
  }
  std::shared_ptr<const TokenTrie> token_trie() const override { return trie_; }
  const std::vector<std::string>& speculations() const override { return speculations_; }

  Expected<Id> submit(Request request, std::shared_ptr<ReplySink> sink) override;
  void cancel(Id id) override;
  ServiceStats stats() const override;
  void drain() override;

 private:
  struct Arrival {
    Id id = 0;
    int drafter = -1;
    std::unique_ptr<RunningReply> reply;
  };

  bool has_room(int share) const;
  int pass_tokens() const;
  void run();
  void take_mail(Scheduler& scheduler, std::vector<Arrival>& arrivals, std::vector<Id>& cancels);
  void retire();
  void publish(const Scheduler& scheduler, double busy);

  std::unique_ptr<Engine> owner_;
  OpenedModel& opened_;
  ServiceOptions options_;
  std::string name_;
  std::shared_ptr<const TokenTrie> trie_;
  std::vector<std::string> speculations_;
  std::vector<int> drafter_of_;  // [speculation]: DraftSequence::drafter; -1: plain decoding
  std::unique_ptr<Drafter> drafter_;
  std::unique_ptr<Decoder> decoder_;

  // The thread's own.
  std::unordered_map<Id, std::unique_ptr<RunningReply>> replies_;
  ServiceStats totals_;

  mutable std::mutex mutex_;
  std::condition_variable mail_;
  std::vector<Arrival> arrivals_;
  std::vector<Id> cancels_;
  bool draining_ = false;
  bool stopping_ = false;
  int unfinished_ = 0;
  std::unordered_map<std::string, int> unfinished_of_;  // [client]
  Id next_id_ = 1;
  ServiceStats published_;
  std::thread thread_;
};

Status EngineService::start() {
  std::vector<std::unique_ptr<Drafter>> drafters;
  for (size_t i = 0; i < opened_.speculations.size(); ++i) {
    const EngineOptions& options = opened_.options;
    speculations_.push_back(
        to_string(i == 0 ? options.speculation : options.more_speculations[i - 1]));
    std::unique_ptr<Drafter>& drafter = opened_.speculations[i].drafter;
    drafter_of_.push_back(drafter == nullptr ? -1 : static_cast<int>(drafters.size()));
    if (drafter == nullptr) continue;
    drafters.push_back(std::move(drafter));
  }
  if (!drafters.empty()) {
    AERIE_ASSIGN_OR_RETURN(drafter_, choose_drafters(std::move(drafters)));
  }
  DecoderOptions decoder = opened_.decoder;
  decoder.reuse_prefixes = options_.prefix_cache;
  decoder_ = std::make_unique<Decoder>(*opened_.model, *opened_.cache, drafter_.get(), decoder);
  thread_ = std::thread([this] { run(); });
  return {};
}

EngineService::~EngineService() {
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
  AERIE_RETURN_IF_ERROR(check_request(request, opened_));
  Arrival arrival;
  arrival.drafter = request.speculate ? drafter_of_[static_cast<size_t>(request.speculation)] : -1;
  arrival.reply =
      std::make_unique<RunningReply>(std::move(request), std::move(sink), tokenizer(), &totals_);
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
  // What is on its way to the thread waits, too.
  stats.waiting = std::max(stats.waiting, unfinished_ - stats.running);
  return stats;
}

void EngineService::drain() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
}

void EngineService::take_mail(Scheduler& scheduler, std::vector<Arrival>& arrivals,
                              std::vector<Id>& cancels) {
  for (Arrival& arrival : arrivals) {
    scheduler.add(arrival.reply->make_job(arrival.id, arrival.drafter, context()));
    replies_[arrival.id] = std::move(arrival.reply);
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
  SchedulerOptions options;
  options.max_sequences = options_.max_sequences;
  options.max_pass_rows = std::min(opened_.decoder.max_rows, pass_tokens());
  std::vector<Arrival> arrivals;
  std::vector<Id> cancels;
  {
    Scheduler scheduler(*decoder_, *opened_.cache, options);
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        mail_.wait(lock, [&] {
          return stopping_ || !arrivals_.empty() || !cancels_.empty() || !scheduler.idle();
        });
        if (stopping_) break;
        arrivals.swap(arrivals_);
        cancels.swap(cancels_);
      }
      const SteadyTime start = steady_now();
      take_mail(scheduler, arrivals, cancels);
      scheduler.step();
      retire();
      publish(scheduler, seconds_since(start));
    }
  }
  // The scheduler has cancelled what it had; here is what had not reached it.
  for (Arrival& arrival : arrivals_) arrival.reply->refuse(JobEnd::kCancelled);
  retire();
}

}  // namespace

Expected<Concurrency> concurrency_of(const ServiceOptions& options) {
  if (options.max_sequences < 1 || options.max_sequences > 4096) {
    return invalid_argument("{} sequences at a time: give 1 to 4096", options.max_sequences);
  }
  if (options.max_pass_tokens != 0 && options.max_pass_tokens < options.max_sequences) {
    return invalid_argument("a pass of {} tokens does not hold one of each of {} sequences",
                            options.max_pass_tokens, options.max_sequences);
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
