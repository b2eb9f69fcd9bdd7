// What every request passes before the API: keys, CORS, and the log.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "format/json.h"
#include "server/http/api_keys.h"
#include "server/http/exchange.h"

namespace aerie::server {

// Takes an object with what happened; from any thread.
using EventLog = std::function<void(const Json& event)>;

struct GateOptions {
  ApiKeys keys;                           // empty: everybody may ask
  std::vector<std::string> cors_origins;  // "*": all; empty: no other site's pages may ask
  EventLog log;                           // may be null
};

// Asks `next` what is allowed, with the key's name as HttpRequest::client, and its hash. /health,
// /ready and the page need no key.
Handler make_gate(GateOptions options, Handler next);

// kInvalidArgument for what no browser sends as an origin, so that it would allow nothing.
Status check_origin(std::string_view origin);

// Says false of what that gate refuses.
BodyFilter make_body_filter(const GateOptions& options);

}  // namespace aerie::server
