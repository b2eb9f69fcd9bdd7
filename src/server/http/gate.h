// What every request passes before the API: keys, CORS, and the log.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "server/access/request_account.h"
#include "server/http/api_keys.h"
#include "server/http/exchange.h"

namespace aerie::server {

struct GateOptions {
  ApiKeys keys;                           // empty: everybody may ask, for good
  ApiKeys admin_keys;                     // of kAdminPrefix's routes; empty: nobody may ask them
  RateLimits client_limits;               // of each address, where there are no keys
  std::vector<std::string> cors_origins;  // "*": all; empty: no other site's pages may ask
  EventLog log;                           // may be null
};

// Asks `next` what is allowed, with the key's name as HttpRequest::client, and its hash, within the
// key's limits. /health, /ready and the page need no key and have no limits. Thread-safe.
class Gate {
 public:
  Gate(GateOptions options, Handler next);

  // As Handler and BodyFilter have it; the latter says false of what the former refuses for want of
  // a key or by its origin.
  void handle(HttpRequest request, std::shared_ptr<Answer> answer) const;
  bool wants_body(const HttpRequest& head) const;

  // From the next request on. Not to be called where there were none, which is another server.
  void set_keys(ApiKeys keys);
  // Figures of keys, in the form of /metrics.
  std::string metrics() const { return book_->figures.text(); }

 private:
  struct Caller;
  std::shared_ptr<const ApiKeys> keys() const;
  Caller caller_of(const HttpRequest& request) const;
  bool is_refused(const HttpRequest& request, const Caller& caller, Answer* answer) const;

  const GateOptions options_;
  const Handler next_;
  const std::shared_ptr<AccountBook> book_;
  mutable std::mutex mutex_;
  std::shared_ptr<const ApiKeys> keys_;  // under mutex_; the object never changes
};

// kInvalidArgument for what no browser sends as an origin, so that it would allow nothing.
Status check_origin(std::string_view origin);

}  // namespace aerie::server
