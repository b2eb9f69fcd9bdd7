// A reply on its way from the engine's thread to Python's. Nothing here holds or needs the GIL.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "aerie/request.h"

namespace aerie::python {

// Tells an event loop which replies have news: a file descriptor that becomes readable, and their
// tags. Thread-safe.
class Notifier : public std::enable_shared_from_this<Notifier> {
 public:
  // Throws std::system_error where the process may open no more files.
  Notifier();
  ~Notifier();
  Notifier(const Notifier&) = delete;
  Notifier& operator=(const Notifier&) = delete;

  int descriptor() const { return descriptor_; }
  void ring(uint64_t tag);
  // The tags since the last call, each once; the descriptor is not readable any more.
  std::vector<uint64_t> drain();

 private:
  int descriptor_;
  std::mutex mutex_;
  std::vector<uint64_t> tags_;
};

// Gathers what arrives until somebody takes it. Thread-safe.
class Mailbox final : public ReplySink {
 public:
  // Rings with `tag` at all news, or at the end alone; the notifier may be null.
  Mailbox(std::shared_ptr<Notifier> notifier, uint64_t tag, bool at_end_alone)
      : notifier_(std::move(notifier)), tag_(tag), at_end_alone_(at_end_alone) {}

  void on_delta(ReplyDelta delta) override;
  void on_end(ReplyEnd end) override;

  struct News {
    std::string text;
    std::vector<EmittedToken> tokens;
    std::vector<std::vector<TokenLogprob>> prompt_logprobs;  // ReplyDelta's
    std::optional<ReplyEnd> end;                             // the first time that it is seen
  };
  // What came since the last call.
  News take();
  // Waits for news, or for the end. Whether there is what was waited for.
  bool wait(bool for_end, std::chrono::milliseconds most);
  bool ended() const;

 private:
  void tell(bool wake, bool ring);

  std::shared_ptr<Notifier> notifier_;
  uint64_t tag_;
  bool at_end_alone_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  News news_;
  bool ended_ = false;
  int readers_ = 0;  // that wait for news, not for the end alone
};

}  // namespace aerie::python
