// What those who run a server ask of it while it runs: /admin/....
#pragma once

#include <memory>

#include "server/http/exchange.h"
#include "server/http/routes.h"
#include "server/models/model_host.h"

namespace aerie::server {

// All models with their settings of speculation, what is on trial, and what both gain.
Json admin_status(ModelHost& host);

// Answers one of the routes that do something; the answer is the model's part of admin_status()
// once it is done. The gate has checked the key.
void answer_order(RouteName name, ModelHost& host, const HttpRequest& request,
                  const std::shared_ptr<Answer>& answer);

}  // namespace aerie::server
