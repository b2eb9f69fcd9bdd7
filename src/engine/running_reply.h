// A request while it is decoded: the scheduler's listener on one side, the caller's sink on the
// other.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "aerie/request.h"
#include "engine/learning/learning.h"
#include "engine/opened_model.h"
#include "engine/reply.h"
#include "engine/service_stats.h"
#include "grammar/grammar_pool.h"
#include "scheduler/job.h"

namespace aerie {

// kInvalidArgument, saying what is possible, for a request that the model cannot answer. The one
// place where requests are checked, whoever answers them.
Status check_request(const Request& request, const OpenedModel& opened, int speculations);

// Used by the thread that decodes alone, but for make_job().
class RunningReply final : public JobListener {
 public:
  // `totals`, which must outlive it and may be null, gets what is generated and drafted, as it
  // happens.
  RunningReply(Request request, std::shared_ptr<ReplySink> sink, const Tokenizer& tokenizer,
               ServiceStats* totals);

  // SequenceOptions' numbers; both negative: plain decoding.
  struct Drafters {
    int drafter = -1;
    int shadow = -1;
  };
  // For the scheduler, once; `pool` as make_constraint() has it. The job must not outlive the
  // reply.
  std::unique_ptr<Job> make_job(JobId id, const Drafters& drafters, int context,
                                std::shared_ptr<GrammarPool> pool);

  void on_tokens(const Sequence& sequence) override;
  void on_end(JobEnd end, const Status& status, const Sequence* sequence) override;

  // Of a request that has not reached the scheduler.
  void refuse(JobEnd end, const Status& status = {}) { on_end(end, status, nullptr); }
  // Hears of its end. May be null; must outlive it.
  void set_learning(Learning* learning) { learning_ = learning; }
  // As long as this is there.
  void hold(std::shared_ptr<const void> what) { held_ = std::move(what); }
  const std::string& client() const { return request_.client; }
  bool ended() const { return ended_; }

 private:
  using Clock = std::chrono::steady_clock;
  std::string new_text();
  void count(const Sequence& sequence);

  Request request_;
  std::shared_ptr<ReplySink> sink_;
  const Tokenizer& tokenizer_;
  Reply reply_;
  const Job* job_ = nullptr;
  size_t shown_ = 0;  // bytes of the reply's text
  Clock::time_point arrival_ = Clock::now();
  std::optional<Clock::time_point> first_token_;
  bool ended_ = false;
  std::shared_ptr<const void> held_;
  Learning* learning_ = nullptr;
  ServiceStats* totals_;
  SequenceStats counted_;  // what totals_ has of it already
  int counted_tokens_ = 0;
};

}  // namespace aerie
