#include "server/openai/openai_errors.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "server/openai/fields/json_text.h"

namespace aerie::server {
namespace {

std::string_view type_of(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 408:
    case 504:
      return "timeout_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return "service_unavailable_error";
    default:
      return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

}  // namespace

ApiError error_of(int status, std::string message, std::string param, std::string code) {
  return {status, std::move(message), std::string(type_of(status)), std::move(param),
          std::move(code)};
}

ApiError error_of(const Status& status, std::string param) {
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kInvalidData:
    case StatusCode::kUnsupported:
    case StatusCode::kNotFound:
      return error_of(400, status.message(), std::move(param));
    case StatusCode::kResourceExhausted:
      return error_of(429, status.message(), std::move(param));
    case StatusCode::kCancelled:
      return error_of(503, status.message(), std::move(param));
    default:
      return error_of(500, status.message(), std::move(param));
  }
}

std::string error_body(const ApiError& error) {
  const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  return json_text({{"error",
                     {{"message", error.message},
                      {"type", error.type},
                      {"param", or_null(error.param)},
                      {"code", or_null(error.code)}}}});
}

void send_error(Answer& answer, const ApiError& error, Headers headers) {
  if (error.status == 429 || error.status == 503) headers.emplace_back("Retry-After", "1");
  answer.send(error.status, "application/json", error_body(error), std::move(headers));
}

}  // namespace aerie::server
