#include "server/openai/openai_errors.h"

#include <new>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/openai/fields/json_text.h"

namespace aerie::server {
namespace {

std::string_view type_of(int status) {
  constexpr std::pair<int, std::string_view> kTypes[] = {
      {401, "authentication_error"}, {403, "permission_error"}, {404, "not_found_error"},
      {408, "timeout_error"},        {429, "rate_limit_error"}, {503, "service_unavailable_error"},
      {504, "timeout_error"},
  };
  for (const auto& [known, type] : kTypes) {
    if (known == status) return type;
  }
  return status >= 500 ? "server_error" : "invalid_request_error";
}

}  // namespace

ApiError error_of(int status, std::string message, std::string param, std::string code) {
  return {status,           std::move(message), std::string(type_of(status)),
          std::move(param), std::move(code),    1};
}

ApiError error_of(const Status& status, std::string param) {
  const StatusCode code = status.code();
  int number = 400;
  if (code == StatusCode::kResourceExhausted) number = 429;
  if (code == StatusCode::kCancelled) number = 503;
  if (code == StatusCode::kInternal) number = 500;
  return error_of(number, status.message(), std::move(param));
}

ApiError error_of(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return error_of(503, "there is not enough memory for the request at the moment");
  }
  return error_of(500, std::string("the request failed: ") + error.what());
}

ApiError constraint_error(const Status& status) {
  return error_of(400, status.message(), "", "constraint_limit");
}

Json error_json(const ApiError& error) {
  const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  return {{"message", error.message},
          {"type", error.type},
          {"param", or_null(error.param)},
          {"code", or_null(error.code)}};
}

std::string error_body(const ApiError& error) {
  return json_text({{"error", error_json(error)}});
}

void send_error(Answer& answer, const ApiError& error, Headers headers) {
  if (error.status == 429 || error.status == 503) {
    const bool helps = error.retry_seconds > 0;
    headers.emplace_back(helps ? "Retry-After" : "x-should-retry",
                         helps ? std::to_string(error.retry_seconds) : "false");
  }
  answer.send(error.status, "application/json", error_body(error), std::move(headers));
}

}  // namespace aerie::server
