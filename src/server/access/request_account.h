// What one request takes and comes to, from the gate to its end: for limits, figures and logs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "aerie/request.h"
#include "base/clock.h"
#include "format/json.h"
#include "server/access/key_figures.h"
#include "server/access/rate_limits.h"
#include "server/http/exchange.h"
#include "server/openai/openai_errors.h"

namespace aerie::server {

// Takes an object with what happened; from any thread.
using EventLog = std::function<void(const Json& event)>;

// What all accounts are kept in.
struct AccountBook {
  RateLimiter limiter;
  KeyFigures figures;
  EventLog log;  // may be null
};

// Held by whoever still works for the request; written down when nobody does any more.
// Thread-safe.
class RequestAccount {
 public:
  // `address`: where the request comes from. Its body is not needed.
  RequestAccount(std::shared_ptr<AccountBook> book, const HttpRequest& request,
                 std::string address);
  ~RequestAccount();
  RequestAccount(const RequestAccount&) = delete;
  RequestAccount& operator=(const RequestAccount&) = delete;

  // Once, before all below: who asks, by a name that limits are counted under, and the key's name;
  // empty: an address, of which there are no figures. 429 where there is nothing left.
  std::optional<ApiError> enter(std::string who, std::string name, const RateLimits& limits);

  void set_model(const std::string& model);

  // Before anything is computed: tokens of the prompts, and how many may be generated;
  // `is_bounded`: since the request says so, else since that is where the context ends. Of the
  // latter no more are taken than the limit is. 429 where there are too few left.
  std::optional<ApiError> reserve(int64_t prompt_tokens, int64_t reply_tokens, bool is_bounded);
  // A reply has ended. `counts_prompt`: false for all but one of the replies to one prompt.
  void add(const ReplyEnd& end, bool counts_prompt);

  // The answer is complete, or will never be: what was reserved and not taken is given back, and
  // another request may begin. `how`: "sent", "client gone" or "unfinished".
  void on_answered(int status, size_t bytes, const char* how);

  // x-ratelimit-*, of the limits that there are.
  Headers headers() const;

 private:
  struct Tokens {
    int64_t prompt = 0;
    int64_t cached = 0;
    int64_t generated = 0;
    int64_t rounds = 0;
    int64_t drafted = 0;
    int64_t accepted = 0;
  };
  ApiError refuse(const RateRefusal& refusal);
  Json event() const;

  const std::shared_ptr<AccountBook> book_;
  const SteadyTime start_ = steady_now();
  mutable std::mutex mutex_;
  std::string id_;
  std::string address_;
  std::string method_;
  std::string path_;
  std::string route_;  // empty: there is none
  std::string model_;
  std::string who_;  // empty: nobody who has limits or a key
  std::string name_;
  RateLimits limits_;
  int64_t reserved_ = 0;
  bool entered_ = false;
  bool is_text_ = false;  // something is generated, or was meant to be
  bool answered_ = false;
  int status_ = 0;
  size_t bytes_ = 0;
  double seconds_ = 0.0;
  const char* how_ = "";
  Tokens tokens_;
};

}  // namespace aerie::server
