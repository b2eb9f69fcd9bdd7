// What the parts of the API share.
#pragma once

#include <atomic>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "chat/dialect.h"
#include "engine/service.h"
#include "server/holdback.h"
#include "server/metrics.h"
#include "server/openai/api_options.h"
#include "server/openai/fields/control_names.h"
#include "server/openai/fields/grammar_fields.h"

namespace aerie::server {

struct ApiState {
  ApiState(Service& service_to_ask, ApiOptions api_options);

  int max_prompt_tokens() const;

  Service& service;
  const ApiOptions options;
  const std::vector<std::string> model_names;  // at least one
  const std::time_t started;
  const ControlNames control_names;
  const chat::Dialect dialect;
  const size_t longest_piece;  // bytes of a token's text
  const std::shared_ptr<GrammarCache> grammars;
  Metrics metrics;
  Holdback holdback;
  std::atomic<bool> draining = false;
  std::atomic<int> open_requests = 0;
};

}  // namespace aerie::server
