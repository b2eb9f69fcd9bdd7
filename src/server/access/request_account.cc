#include "server/access/request_account.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/log.h"
#include "server/http/routes.h"

namespace aerie::server {
namespace {

int whole_seconds(double seconds) {
  return static_cast<int>(std::ceil(std::min(seconds, 1e9)));
}

ApiError error_of(const RateRefusal& refusal, const std::string& name) {
  ApiError error;
  error.status = 429;
  error.code = "rate_limit_exceeded";
  error.type = refusal.limit == "tokens" ? "tokens" : "requests";
  error.retry_seconds = whole_seconds(refusal.wait_seconds);
  const std::string limit = refusal.limit == "concurrent"
                                ? fmt::format("{} requests at once", refusal.most)
                                : fmt::format("{} {} a minute", refusal.most, refusal.limit);
  error.message =
      refusal.wait_seconds > 0.0
          ? fmt::format("{} may have {}: try again in {} s", name, limit, error.retry_seconds)
          : fmt::format(
                "{} may have {}, which this request alone may exceed: ask for a lower "
                "max_tokens, or less at once",
                name, limit);
  return error;
}

// As OpenAI says it: "6m0s", "12s", "20ms".
std::string duration_text(double seconds) {
  if (seconds < 1.0) return fmt::format("{}ms", static_cast<int>(std::ceil(seconds * 1000.0)));
  const int whole = whole_seconds(seconds);
  return whole < 60 ? fmt::format("{}s", whole) : fmt::format("{}m{}s", whole / 60, whole % 60);
}

void add_headers(const char* what, int64_t limit, int64_t left, double full, Headers& out) {
  if (limit == 0) return;
  out.emplace_back(fmt::format("x-ratelimit-limit-{}", what), std::to_string(limit));
  out.emplace_back(fmt::format("x-ratelimit-remaining-{}", what), std::to_string(left));
  out.emplace_back(fmt::format("x-ratelimit-reset-{}", what), duration_text(full));
}

}  // namespace

RequestAccount::RequestAccount(std::shared_ptr<AccountBook> book, const HttpRequest& request,
                               std::string address)
    : book_(std::move(book)),
      id_(request.id),
      address_(std::move(address)),
      method_(request.method),
      path_(request.path.substr(0, 200)) {
  const RouteMatch match = find_route(request.method, request.path);
  if (match.name) route_ = path_of(*match.name);
}

RequestAccount::~RequestAccount() {
  on_answered(0, 0, "unfinished");
  if (entered_ && !name_.empty()) book_->figures.on_end(name_, tokens_.prompt, tokens_.generated);
  if (!book_->log) return;
  try {
    book_->log(event());
  } catch (const std::exception& error) {
    log(LogLevel::kError, fmt::format("a request was not logged: {}", error.what()));
  }
}

std::optional<ApiError> RequestAccount::enter(std::string who, std::string name,
                                              const RateLimits& limits) {
  const std::lock_guard lock(mutex_);
  who_ = std::move(who);
  name_ = std::move(name);
  limits_ = limits;
  if (const auto refusal = book_->limiter.enter(who_, limits, steady_now())) {
    return refuse(*refusal);
  }
  if (!name_.empty()) book_->figures.on_begin(name_);
  entered_ = true;
  return std::nullopt;
}

ApiError RequestAccount::refuse(const RateRefusal& refusal) {
  if (!name_.empty()) book_->figures.on_refused(name_, refusal.limit);
  return error_of(refusal, name_.empty() ? "this address" : name_);
}

void RequestAccount::set_model(const std::string& model) {
  const std::lock_guard lock(mutex_);
  model_ = model;
}

std::optional<ApiError> RequestAccount::reserve(int64_t prompt_tokens, int64_t reply_tokens,
                                                bool is_bounded) {
  const std::lock_guard lock(mutex_);
  is_text_ = true;
  if (!entered_ || limits_.tokens == 0) return std::nullopt;
  if (!is_bounded) {
    reply_tokens = std::clamp<int64_t>(limits_.tokens - prompt_tokens, 0, reply_tokens);
  }
  const int64_t tokens = prompt_tokens + reply_tokens;
  if (const auto refusal = book_->limiter.take_tokens(who_, limits_, tokens, steady_now())) {
    return refuse(*refusal);
  }
  reserved_ = tokens;
  return std::nullopt;
}

void RequestAccount::add(const ReplyEnd& end, bool counts_prompt) {
  const std::lock_guard lock(mutex_);
  const int64_t prompt = counts_prompt ? end.prompt_tokens : 0;
  tokens_.prompt += prompt;
  tokens_.cached += counts_prompt ? end.cached_tokens : 0;
  tokens_.generated += end.generated_tokens;
  tokens_.rounds += end.stats.rounds;
  tokens_.drafted += end.stats.drafted;
  tokens_.accepted += end.stats.accepted;
  // One of several that goes on behind an answer that was ended with an error.
  if (answered_ && entered_ && limits_.tokens > 0) {
    book_->limiter.correct_tokens(who_, -(prompt + end.generated_tokens));
  }
}

void RequestAccount::on_answered(int status, size_t bytes, const char* how) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(answered_, true)) return;
  status_ = status;
  bytes_ = bytes;
  seconds_ = seconds_since(start_);
  how_ = how;
  if (!entered_) return;
  if (limits_.tokens > 0) {
    book_->limiter.correct_tokens(who_, reserved_ - tokens_.prompt - tokens_.generated);
  }
  book_->limiter.leave(who_);
}

Headers RequestAccount::headers() const {
  const std::lock_guard lock(mutex_);
  Headers out;
  if (who_.empty() || !limits_.any()) return out;
  const RateLevels levels = book_->limiter.levels(who_, limits_, steady_now());
  add_headers("requests", limits_.requests, levels.requests, levels.requests_full, out);
  add_headers("tokens", limits_.tokens, levels.tokens, levels.tokens_full, out);
  return out;
}

Json RequestAccount::event() const {
  const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  Json out = {{"event", "request"},
              {"request_id", id_},
              {"key", or_null(name_)},
              {"client", address_},
              {"method", method_},
              {"path", path_},
              {"route", or_null(route_)},
              {"model", or_null(model_)},
              {"status", status_},
              {"bytes", bytes_},
              {"ms", std::round(seconds_ * 1e6) / 1e3},
              {"answer", how_}};
  if (!is_text_) return out;
  out["prompt_tokens"] = tokens_.prompt;
  out["cached_tokens"] = tokens_.cached;
  out["generated_tokens"] = tokens_.generated;
  out["rounds"] = tokens_.rounds;
  out["drafted"] = tokens_.drafted;
  out["accepted"] = tokens_.accepted;
  return out;
}

}  // namespace aerie::server
