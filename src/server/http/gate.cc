#include "server/http/gate.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "base/errors.h"
#include "server/http/routes.h"
#include "server/openai/openai_errors.h"
#include "server/page/page.h"

namespace aerie::server {
namespace {

// Adds headers, and tells the account how it goes.
class GateAnswer final : public Answer {
 public:
  GateAnswer(std::shared_ptr<Answer> inner, Headers more, std::shared_ptr<RequestAccount> account)
      : inner_(std::move(inner)), more_(std::move(more)), account_(std::move(account)) {}
  ~GateAnswer() override { end("unfinished"); }

  // Whoever has the answer may ask again: the account is settled before.
  void send(int status, std::string_view content_type, std::string body, Headers headers) override {
    status_ = status;
    bytes_ = body.size();
    end("sent");
    inner_->send(status, content_type, std::move(body), with_more(std::move(headers)));
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
    end("sent");
    inner_->finish();
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
    const Headers limits = account_->headers();
    headers.insert(headers.end(), limits.begin(), limits.end());
    return headers;
  }
  void end(const char* how) {
    account_->on_answered(status_, bytes_, gone_->load() ? "client gone" : how);
  }

  std::shared_ptr<Answer> inner_;
  Headers more_;
  std::shared_ptr<RequestAccount> account_;
  std::shared_ptr<std::atomic<bool>> gone_ = std::make_shared<std::atomic<bool>>(false);
  int status_ = 0;
  size_t bytes_ = 0;
};

std::string header(const HttpRequest& request, const char* name) {
  const auto it = request.headers.find(name);
  return it == request.headers.end() ? std::string() : it->second;
}

bool is_private(const HttpRequest& request) {
  return request.path != "/health" && request.path != "/ready";
}

bool is_for_admin(const HttpRequest& request) {
  return request.path.starts_with(kAdminPrefix);
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

constexpr const char* kExposed =
    "x-request-id, retry-after, x-ratelimit-limit-requests, x-ratelimit-remaining-requests, "
    "x-ratelimit-reset-requests, x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, "
    "x-ratelimit-reset-tokens";

// Those that let a page of another site read the answer; none if it may not.
Headers cors_headers(const GateOptions& options, const HttpRequest& request) {
  const std::string origin = header(request, "origin");
  if (options.cors_origins.empty() || origin.empty()) return {};
  Headers headers = {{"Vary", "Origin, Access-Control-Request-Headers"}};
  if (is_allowed_origin(options, origin)) {
    headers.emplace_back("Access-Control-Allow-Origin", origin);
    headers.emplace_back("Access-Control-Expose-Headers", kExposed);
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
bool is_foreign_page(const GateOptions& options, bool has_keys, const HttpRequest& request) {
  const std::string origin = header(request, "origin");
  if (request.method != "POST" || origin.empty() || is_allowed_origin(options, origin))
    return false;
  const std::string host = header(request, "host");
  const bool is_own = origin == "http://" + host || origin == "https://" + host;
  return !is_own || (!has_keys && !is_plain_host(host));
}

// The same of requests with GET, with which a browser names no origin where the page and the
// request have the same: the name that it asks by is all that tells.
bool is_foreign_name(const GateOptions& options, bool has_keys, const HttpRequest& request) {
  const auto host = request.headers.find("host");
  if (request.method != "GET" || host == request.headers.end() || has_keys) {
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

// Who asks, as far as it is known before the request is let in.
struct Gate::Caller {
  bool keys_wanted = false;             // there are some
  std::optional<ApiKeys::Entry> entry;  // of the request's key
};

Gate::Gate(GateOptions options, Handler next)
    : options_(std::move(options)),
      next_(std::move(next)),
      book_(std::make_shared<AccountBook>()),
      keys_(std::make_shared<const ApiKeys>(options_.keys)) {
  book_->log = options_.log;
}

std::shared_ptr<const ApiKeys> Gate::keys() const {
  const std::lock_guard lock(mutex_);
  return keys_;
}

void Gate::set_keys(ApiKeys keys) {
  auto fresh = std::make_shared<const ApiKeys>(std::move(keys));
  const std::lock_guard lock(mutex_);
  keys_ = std::move(fresh);
}

Gate::Caller Gate::caller_of(const HttpRequest& request) const {
  if (is_for_admin(request)) return {true, options_.admin_keys.find(bearer_of(request))};
  const auto known = keys();
  if (known->empty()) return {};
  return {true, known->find(bearer_of(request))};
}

bool Gate::wants_body(const HttpRequest& head) const {
  return !is_refused(head, caller_of(head), nullptr);
}

// The answer, if it is wanted, says why.
bool Gate::is_refused(const HttpRequest& request, const Caller& caller, Answer* answer) const {
  const auto refuse = [&](const ApiError& error, Headers headers = {}) {
    if (answer != nullptr) send_error(*answer, error, std::move(headers));
    return true;
  };
  if (is_foreign_page(options_, caller.keys_wanted, request)) {
    return refuse(error_of(403, "pages of this origin may not ask: start with --cors-origin ORIGIN",
                           "", "origin_not_allowed"));
  }
  if (is_foreign_name(options_, caller.keys_wanted, request)) {
    return refuse(error_of(403,
                           "without keys this server is not asked by a name that somebody could "
                           "make stand for it: start with --cors-origin http://NAME, or with "
                           "--api-key-file",
                           "", "host_not_allowed"));
  }
  if (is_for_admin(request) && options_.admin_keys.empty()) {
    return refuse(error_of(403, "this server takes no orders: start it with --admin-key-file FILE",
                           "", "no_admin_key"));
  }
  if (caller.keys_wanted && !caller.entry && needs_key(request)) {
    return refuse(error_of(401, "a valid API key is wanted: Authorization: Bearer KEY", "",
                           "invalid_api_key"),
                  {{"WWW-Authenticate", "Bearer"}});
  }
  return false;
}

void Gate::handle(HttpRequest request, std::shared_ptr<Answer> answer) const {
  Headers cors = cors_headers(options_, request);
  const bool is_preflight = request.method == "OPTIONS" && !cors.empty();
  const Caller caller = caller_of(request);
  const auto account = std::make_shared<RequestAccount>(book_, request, request.client);
  request.account = account;
  answer = std::make_shared<GateAnswer>(std::move(answer), std::move(cors), account);
  if (is_preflight) return answer_preflight({}, request, *answer);
  if (is_refused(request, caller, answer.get())) return;
  std::optional<ApiError> error;
  if (caller.entry) {
    request.client = caller.entry->name;
    request.key = hash_key(bearer_of(request));
    request.learn = caller.entry->learn;
    if (needs_key(request)) {
      error = account->enter(request.key, request.client, caller.entry->limits);
    }
  } else if (!caller.keys_wanted && needs_key(request) && options_.client_limits.any()) {
    error = account->enter("address " + request.client, "", options_.client_limits);
  }
  if (error) return send_error(*answer, *error);
  next_(std::move(request), std::move(answer));
}

}  // namespace aerie::server
