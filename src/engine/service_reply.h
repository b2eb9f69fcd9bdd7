// A request of the service while it is decoded: the scheduler's listener on one side, the caller's
// sink on the other.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "engine/reply.h"
#include "engine/service.h"
#include "scheduler/job.h"

namespace aerie {

// Used by the service's thread alone, but for make_job().
class ServiceReply final : public JobListener {
 public:
  ServiceReply(ServiceRequest request, std::shared_ptr<ReplySink> sink, const Tokenizer& tokenizer);

  // For the scheduler, once; `drafter` as SequenceOptions has it, negative for plain decoding. The
  // job must not outlive the reply.
  std::unique_ptr<Job> make_job(JobId id, int drafter, int context);

  void on_tokens(const Sequence& sequence) override;
  void on_end(JobEnd end, const Status& status, const Sequence* sequence) override;

  // Of a request that has not reached the scheduler.
  void refuse(JobEnd end) { on_end(end, {}, nullptr); }
  bool ended() const { return ended_; }
  // What came of it, for the statistics. Holds after on_end().
  const ReplyEnd& end() const { return end_; }

 private:
  using Clock = std::chrono::steady_clock;
  std::string new_text();

  ServiceRequest request_;
  std::shared_ptr<ReplySink> sink_;
  Reply reply_;
  const Job* job_ = nullptr;
  size_t shown_ = 0;  // bytes of the reply's text
  Clock::time_point arrival_ = Clock::now();
  std::optional<Clock::time_point> first_token_;
  bool ended_ = false;
  ReplyEnd end_;
};

}  // namespace aerie
