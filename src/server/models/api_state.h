// What the parts of the API share.
#pragma once

#include <atomic>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "chat/dialect.h"
#include "engine/service.h"
#include "server/metrics.h"
#include "server/openai/api_options.h"
#include "server/openai/fields/control_names.h"
#include "server/openai/fields/grammar_fields.h"
#include "server/rollout/holdback.h"
#include "server/rollout/rollout.h"

namespace aerie::server {

// Of the whole server.
struct ServerState {
  const std::time_t started = std::time(nullptr);
  std::atomic<bool> draining = false;
  std::atomic<int> open_requests = 0;
  std::function<std::string()> more_metrics;  // what /metrics has at its end; may be null
};

// What is kept of a model whether it is in memory or not.
struct ModelRecord {
  ModelRecord(const std::string& name, double holdback_share, bool holdback_gates)
      : metrics(name), holdback(holdback_share, holdback_gates) {}

  Metrics metrics;
  Holdback holdback;
};

// Of a model that is in memory. All that it refers to must outlive it.
struct ApiState {
  // `names`: at least one.
  ApiState(Service& service_to_ask, ApiOptions api_options, std::vector<std::string> names,
           ServerState& of_server, ModelRecord& record, Rollout::Log log);

  int max_prompt_tokens() const;

  Service& service;
  const ApiOptions options;
  const std::vector<std::string> model_names;
  ServerState& server;
  const ControlNames control_names;
  const chat::Dialect dialect;
  const size_t longest_piece;  // bytes of a token's text
  const std::shared_ptr<GrammarCache> grammars;
  Metrics& metrics;
  Holdback& holdback;
  Rollout rollout;
};

}  // namespace aerie::server
