// OpenAI's API, and what stands beside it, over a Service.
#pragma once

#include <memory>

#include "engine/service.h"
#include "server/http/exchange.h"
#include "server/openai/api_options.h"

namespace aerie::server {

// Routes: /v1/chat/completions, /v1/completions, /v1/responses, /v1/models, /tokenize, /detokenize,
// /health, /ready, /metrics, /version, /openapi.json, and the page's files at /
// (server/page/page.h). Thread-safe. The service must outlive it and every answer that it has
// begun.
class Api {
 public:
  Api(Service& service, ApiOptions options);
  ~Api();

  // As Handler has it. Whatever goes wrong is an answer in OpenAI's shape.
  void handle(const HttpRequest& request, const std::shared_ptr<Answer>& answer);

  // From now on /ready says no and requests for text are answered with 503.
  void drain();
  // Requests for text that are not answered completely.
  int open_requests() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace aerie::server
