#include "server/http/gate.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/errors.h"
#include "server/openai/openai_errors.h"
#include "server/page/page.h"

namespace aerie::server {
namespace {

using Clock = std::chrono::steady_clock;

// Adds headers, and tells the log when it is over.
class GateAnswer final : public Answer {
 public:
  GateAnswer(std::shared_ptr<Answer> inner, Headers more, EventLog log, Json event)
      : inner_(std::move(inner)),
        more_(std::move(more)),
        log_(std::move(log)),
        event_(std::move(event)),
        start_(Clock::now()) {}
  ~GateAnswer() override {
    if (!ended_) end("unfinished");
  }

  void send(int status, std::string_view content_type, std::string body, Headers headers) override {
    status_ = status;
    bytes_ = body.size();
    inner_->send(status, content_type, std::move(body), with_more(std::move(headers)));
    end("sent");
  }
  void begin(int status, std::string_view content_type, Headers headers) override {
    status_ = status;
    inner_->begin(status, content_type, with_more(std::move(headers)));
  }
  void write(std::string piece) override {
    bytes_ += piece.size();
    inner_->write(std::move(piece));
  }
  void finish() override {
    inner_->finish();
    end("sent");
  }
  void on_gone(std::function<void()> callback) override {
    inner_->on_gone([gone = gone_, call = std::move(callback)] {
      gone->store(true);
      call();
    });
  }
  void run(std::function<void()> work) override { inner_->run(std::move(work)); }

 private:
  Headers with_more(Headers headers) const {
    headers.insert(headers.end(), more_.begin(), more_.end());
    return headers;
  }
  void end(const char* how) {
    ended_ = true;
    if (!log_) return;
    event_["status"] = status_;
    event_["bytes"] = bytes_;
    event_["ms"] =
        std::round(std::chrono::duration<double, std::micro>(Clock::now() - start_).count()) / 1e3;
    event_["answer"] = gone_->load() ? "client gone" : how;
    log_(event_);
  }

  std::shared_ptr<Answer> inner_;
  Headers more_;
  EventLog log_;
  Json event_;
  Clock::time_point start_;
  std::shared_ptr<std::atomic<bool>> gone_ = std::make_shared<std::atomic<bool>>(false);
  int status_ = 0;
  size_t bytes_ = 0;
  bool ended_ = false;
};

std::string header(const HttpRequest& request, const char* name) {
  const auto it = request.headers.find(name);
  return it == request.headers.end() ? std::string() : it->second;
}

bool is_private(const HttpRequest& request) {
  return request.path != "/health" && request.path != "/ready";
}

bool needs_key(const HttpRequest& request) {
  return is_private(request) && !is_page_path(request.path);
}

std::string bearer_of(const HttpRequest& request) {
  const std::string value = header(request, "authorization");
  // As Anthropic's clients say it.
  if (value.empty()) return header(request, "x-api-key");
  constexpr std::string_view kScheme = "bearer ";
  if (value.size() < kScheme.size()) return "";
  const bool matches =
      std::equal(kScheme.begin(), kScheme.end(), value.begin(),
                 [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? b + 32 : b); });
  if (!matches) return "";
  const size_t key = value.find_first_not_of(' ', kScheme.size());
  return key == std::string::npos ? "" : value.substr(key);
}

bool is_allowed_origin(const GateOptions& options, std::string_view origin) {
  const auto& allowed = options.cors_origins;
  return std::ranges::any_of(allowed,
                             [&](const std::string& one) { return one == "*" || one == origin; });
}

// Those that let a page of another site read the answer; none if it may not.
Headers cors_headers(const GateOptions& options, const HttpRequest& request) {
  const std::string origin = header(request, "origin");
  if (options.cors_origins.empty() || origin.empty()) return {};
  Headers headers = {{"Vary", "Origin, Access-Control-Request-Headers"}};
  if (is_allowed_origin(options, origin)) {
    headers.emplace_back("Access-Control-Allow-Origin", origin);
    headers.emplace_back("Access-Control-Expose-Headers", "x-request-id");
  }
  return headers;
}

// A name that its owner could make stand for this machine is not trusted (DNS rebinding). Nobody
// owns one without a dot, nor what ends as names of private networks do.
bool is_plain_host(std::string_view host) {
  if (host.starts_with('[')) return true;  // IPv6
  host = host.substr(0, host.find(':'));
  constexpr std::string_view kPrivate[] = {".localhost", ".local", ".internal", ".home.arpa"};
  return !host.empty() && (host.find('.') == std::string_view::npos ||
                           host.find_first_not_of("0123456789.") == std::string_view::npos ||
                           std::ranges::any_of(kPrivate, [&](std::string_view ending) {
                             return host.ends_with(ending);
                           }));
}

// Whether a browser asks for a page that may not: it names the page's origin with each request that
// is not GET.
bool is_foreign_page(const GateOptions& options, const HttpRequest& request) {
  const std::string origin = header(request, "origin");
  if (request.method != "POST" || origin.empty() || is_allowed_origin(options, origin))
    return false;
  const std::string host = header(request, "host");
  const bool is_own = origin == "http://" + host || origin == "https://" + host;
  return !is_own || (options.keys.empty() && !is_plain_host(host));
}

// The same of requests with GET, with which a browser names no origin where the page and the
// request have the same: the name that it asks by is all that tells.
bool is_foreign_name(const GateOptions& options, const HttpRequest& request) {
  const auto host = request.headers.find("host");
  if (request.method != "GET" || host == request.headers.end() || !options.keys.empty()) {
    return false;
  }
  return is_private(request) && !is_plain_host(host->second) &&
         !is_allowed_origin(options, "http://" + host->second) &&
         !is_allowed_origin(options, "https://" + host->second);
}

void answer_preflight(Headers headers, const HttpRequest& request, Answer& answer) {
  headers.emplace_back("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
  const std::string wanted = header(request, "access-control-request-headers");
  headers.emplace_back(
      "Access-Control-Allow-Headers",
      wanted.empty() ? "Authorization, Content-Type, x-api-key, x-request-id" : wanted);
  headers.emplace_back("Access-Control-Max-Age", "600");
  answer.send(204, "", "", std::move(headers));
}

std::optional<std::string> key_of(const GateOptions& options, const HttpRequest& request) {
  return options.keys.empty() ? std::nullopt : options.keys.find(bearer_of(request));
}

bool has_key(const GateOptions& options, const HttpRequest& request,
             const std::optional<std::string>& key) {
  return options.keys.empty() || key.has_value() || !needs_key(request);
}

bool is_origin(std::string_view text) {
  const size_t mark = text.find("://");
  if (mark == std::string_view::npos || mark == 0) return false;
  const auto is_lower = [](char c) { return c >= 'a' && c <= 'z'; };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const std::string_view scheme = text.substr(0, mark);
  std::string_view host = text.substr(mark + 3);
  const size_t colon = host.find_last_of(":]");
  if (colon != std::string_view::npos && host[colon] == ':') {
    const std::string_view port = host.substr(colon + 1);
    if (port.empty() || port.size() > 5 || !std::ranges::all_of(port, is_digit)) return false;
    host = host.substr(0, colon);
  }
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
    return host.size() > 1 &&
           host.find_first_not_of("0123456789abcdef:.") == std::string_view::npos;
  }
  return is_lower(scheme.front()) &&
         std::ranges::all_of(scheme,
                             [&](char c) {
                               return is_lower(c) || is_digit(c) || c == '+' || c == '-' ||
                                      c == '.';
                             }) &&
         !host.empty() && std::ranges::all_of(host, [&](char c) {
           return is_lower(c) || is_digit(c) || c == '-' || c == '.' || c == '_';
         });
}

}  // namespace

Status check_origin(std::string_view origin) {
  if (origin == "*" || is_origin(origin)) return {};
  return invalid_argument(
      "{}: no origin as browsers write it: give SCHEME://HOST or SCHEME://HOST:PORT in small "
      "letters, with nothing behind it, such as https://chat.example; or * for all",
      origin);
}

BodyFilter make_body_filter(const GateOptions& options) {
  return [options](const HttpRequest& head) {
    return has_key(options, head, key_of(options, head)) && !is_foreign_page(options, head) &&
           !is_foreign_name(options, head);
  };
}

Handler make_gate(GateOptions options, Handler next) {
  auto shared = std::make_shared<const GateOptions>(std::move(options));
  return [shared, next = std::move(next)](HttpRequest request, std::shared_ptr<Answer> answer) {
    const GateOptions& gate = *shared;
    Headers cors = cors_headers(gate, request);
    const std::optional<std::string> name = key_of(gate, request);
    if (name) {
      request.client = *name;
      request.key = hash_key(bearer_of(request));
    }
    answer = std::make_shared<GateAnswer>(std::move(answer), cors, gate.log,
                                          Json{{"event", "request"},
                                               {"request_id", request.id},
                                               {"client", request.client},
                                               {"method", request.method},
                                               {"path", request.path.substr(0, 200)}});
    if (request.method == "OPTIONS" && !cors.empty()) return answer_preflight({}, request, *answer);
    if (is_foreign_page(gate, request)) {
      return send_error(
          *answer,
          error_of(403, "pages of this origin may not ask: start with --cors-origin ORIGIN", "",
                   "origin_not_allowed"));
    }
    if (is_foreign_name(gate, request)) {
      return send_error(*answer,
                        error_of(403,
                                 "without keys this server is not asked by a name that somebody "
                                 "could make stand for it: start with --cors-origin http://NAME, "
                                 "or with --api-key-file",
                                 "", "host_not_allowed"));
    }
    if (!has_key(gate, request, name)) {
      return send_error(*answer,
                        error_of(401, "a valid API key is wanted: Authorization: Bearer KEY", "",
                                 "invalid_api_key"),
                        {{"WWW-Authenticate", "Bearer"}});
    }
    next(std::move(request), std::move(answer));
  };
}

}  // namespace aerie::server
