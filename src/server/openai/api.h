// OpenAI's API, and what stands beside it, over the models of a server.
#pragma once

#include <memory>

#include "server/http/exchange.h"
#include "server/models/model_host.h"

namespace aerie::server {

// Routes: /v1/chat/completions, /v1/completions, /v1/embeddings, /v1/responses, /v1/models,
// /tokenize, /detokenize, /health, /ready, /metrics, /version, /openapi.json, and the page's files
// at / (server/page/page.h); all of them: server/http/routes.h. Thread-safe. The host must outlive
// it and every answer that it has begun.
class Api {
 public:
  explicit Api(ModelHost& host);

  // As Handler has it. Whatever goes wrong is an answer in OpenAI's shape.
  void handle(const HttpRequest& request, const std::shared_ptr<Answer>& answer);

 private:
  ModelHost& host_;
};

}  // namespace aerie::server
