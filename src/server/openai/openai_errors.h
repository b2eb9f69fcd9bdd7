// Errors in OpenAI's shape: {"error": {"message", "type", "param", "code"}}.
#pragma once

#include <exception>
#include <string>

#include "base/status.h"
#include "format/json.h"
#include "server/http/exchange.h"

namespace aerie::server {

struct ApiError {
  int status = 500;
  std::string message;
  std::string type;       // "invalid_request_error", ...
  std::string param;      // the field that is wrong; empty: null
  std::string code;       // empty: null
  int retry_seconds = 1;  // of 429 and 503: after which it may help to try again; 0: it does not
};

// With the type that goes with the status.
ApiError error_of(int status, std::string message, std::string param = "", std::string code = "");

// 400 for what the client can correct, 429 for what is exhausted, 503 for kCancelled, else 500.
ApiError error_of(const Status& status, std::string param = "");

// Of what a library threw: 503 where memory was short, which it may not be the next time; else 500.
ApiError error_of(const std::exception& error);

// Of a constraint that asks for more than one may.
ApiError constraint_error(const Status& status);

// What stands under "error", and all of it.
Json error_json(const ApiError& error);
std::string error_body(const ApiError& error);

// With Retry-After where trying again may help, and x-should-retry where clients would in vain.
void send_error(Answer& answer, const ApiError& error, Headers headers = {});

}  // namespace aerie::server
