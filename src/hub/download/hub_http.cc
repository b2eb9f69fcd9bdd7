#include "hub/download/hub_http.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "base/errors.h"
#include "base/interrupt.h"
#include "format/text.h"

namespace aerie {
namespace {

constexpr int kMaxRedirects = 8;
constexpr long kConnectSeconds = 20;
constexpr long kSilentSeconds = 60;  // without a byte the connection counts as cut

// Thread-safe, unlike the library's own start in versions that are still in use.
bool curl_is_ready() {
  static const bool ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
  return ready;
}

struct UrlHandle {
  CURLU* url = curl_url();
  UrlHandle() = default;
  UrlHandle(const UrlHandle&) = delete;
  UrlHandle& operator=(const UrlHandle&) = delete;
  ~UrlHandle() { curl_url_cleanup(url); }

  bool set(const std::string& text) const {
    return curl_url_set(url, CURLUPART_URL, text.c_str(), 0) == CURLUE_OK;
  }
  std::string part(CURLUPart which, unsigned flags = 0) const {
    char* text = nullptr;
    if (curl_url_get(url, which, &text, flags) != CURLUE_OK) return "";
    std::string out = text;
    curl_free(text);
    return out;
  }
};

// "https://host:443"; empty for what is no address.
std::string origin_of(const std::string& text) {
  const UrlHandle url;
  if (!url.set(text)) return "";
  const std::string scheme = url.part(CURLUPART_SCHEME);
  if (scheme != "http" && scheme != "https") return "";
  std::string host = url.part(CURLUPART_HOST);
  std::ranges::transform(host, host.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
  return scheme + "://" + host + ":" + url.part(CURLUPART_PORT, CURLU_DEFAULT_PORT);
}

// Where a redirect from `base` leads; empty for nowhere that may be.
std::string redirected(const std::string& base, const std::string& location) {
  const UrlHandle url;
  if (!url.set(base) || !url.set(location)) return "";
  std::string next = url.part(CURLUPART_URL);
  const std::string origin = origin_of(next);
  if (origin.empty() || (base.starts_with("https:") && origin.starts_with("http:"))) return "";
  return next;
}

std::string_view header_value(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == '\r' || text.back() == '\n' || text.back() == ' ')) {
    text.remove_suffix(1);
  }
  return text;
}

// The start of "bytes 10-99/100".
std::optional<int64_t> range_start(std::string_view text) {
  if (!text.starts_with("bytes ")) return std::nullopt;
  int64_t start = -1;
  std::from_chars(text.data() + 6, text.data() + text.size(), start);
  return start < 0 ? std::nullopt : std::optional(start);
}

// One exchange, without redirects.
struct Exchange {
  const HubRequest* request = nullptr;
  CURL* curl = nullptr;
  HubAnswer* answer = nullptr;
  std::string location;
  std::optional<int64_t> start;  // of the range that comes
  int64_t received = 0;
  std::string stopped;  // why we ended it

  int status() const {
    long code = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &code);
    return static_cast<int>(code);
  }
  void header(std::string_view line);
  bool take(std::string_view bytes);
};

void Exchange::header(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return;
  std::string name(line.substr(0, colon));
  std::ranges::transform(name, name.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
  const std::string_view value = header_value(line.substr(colon + 1));
  if (name == "location") location = value;
  if (name == "x-repo-commit") answer->commit = value;
  if (name == "x-error-code") answer->error_code = value;
  if (name == "content-range") start = range_start(value);
  if (name == "retry-after") {
    int seconds = 0;
    std::from_chars(value.data(), value.data() + value.size(), seconds);
    answer->retry_after = std::max(0, seconds);
  }
  if (name == "x-linked-etag") {
    std::string_view etag = value;
    if (etag.starts_with("W/")) etag.remove_prefix(2);
    if (etag.size() > 1 && etag.front() == '"') etag = etag.substr(1, etag.size() - 2);
    answer->linked_etag = etag;
  }
}

bool Exchange::take(std::string_view bytes) {
  const int code = status();
  const bool good = code == 200 || code == 206;
  constexpr int64_t kMaxErrorBytes = 1 << 16;
  const int64_t most = good ? request->most_bytes : kMaxErrorBytes;
  if (received + static_cast<int64_t>(bytes.size()) > most) {
    stopped = "the answer is longer than it may be";
    return false;
  }
  const int64_t offset = (code == 206 ? start.value_or(request->offset) : 0) + received;
  received += static_cast<int64_t>(bytes.size());
  if (good && request->sink) {
    if (request->sink(offset, bytes)) return true;
    stopped = "it was not taken";
    return false;
  }
  answer->body.append(bytes);
  return true;
}

size_t on_header(char* bytes, size_t size, size_t count, void* exchange) {
  static_cast<Exchange*>(exchange)->header({bytes, size * count});
  return size * count;
}

size_t on_bytes(char* bytes, size_t size, size_t count, void* exchange) {
  return static_cast<Exchange*>(exchange)->take({bytes, size * count}) ? size * count : 0;
}

int on_progress(void*, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return interrupted ? 1 : 0;
}

// Whether the same may do better later: not where there is no network or nobody listens.
bool may_pass(CURL* curl, CURLcode code) {
  curl_off_t connected = 0;
  curl_easy_getinfo(curl, CURLINFO_CONNECT_TIME_T, &connected);
  if (code == CURLE_OPERATION_TIMEDOUT) return connected > 0;
  switch (code) {
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
    case CURLE_SSL_CONNECT_ERROR:
      return true;
    default:
      return false;
  }
}

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

}  // namespace

struct HubHttp::Handle {
  CURL* curl = nullptr;
  std::string origin;  // of the endpoint
  std::string token;
  std::array<char, CURL_ERROR_SIZE> error = {};

  Handle() = default;
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { curl_easy_cleanup(curl); }

  void exchange(Exchange& exchange, const std::string& url);
};

void HubHttp::Handle::exchange(Exchange& exchange, const std::string& url) {
  curl_easy_reset(curl);  // connections stay
  exchange.curl = curl;
  const auto set = [&](auto option, auto value) { curl_easy_setopt(curl, option, value); };
  curl_slist* headers = nullptr;
  if (!token.empty() && origin_of(url) == origin) {
    headers = curl_slist_append(headers, ("Authorization: Bearer " + token).c_str());
  }
  error[0] = '\0';
  set(CURLOPT_ERRORBUFFER, error.data());
  set(CURLOPT_URL, url.c_str());
  set(CURLOPT_HTTPHEADER, headers);
  set(CURLOPT_USERAGENT, "aerie");
  set(CURLOPT_NETRC, static_cast<long>(CURL_NETRC_IGNORED));
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, kSilentSeconds);
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, &on_progress);
  set(CURLOPT_HEADERFUNCTION, &on_header);
  set(CURLOPT_HEADERDATA, &exchange);
  set(CURLOPT_WRITEFUNCTION, &on_bytes);
  set(CURLOPT_WRITEDATA, &exchange);
  const std::string range = fmt::format("{}-", exchange.request->offset);
  if (exchange.request->offset > 0) set(CURLOPT_RANGE, range.c_str());
  const CURLcode code = curl_easy_perform(curl);
  exchange.answer->status = exchange.status();
  if (code != CURLE_OK) {
    const char* const said = error[0] != '\0' ? error.data() : curl_easy_strerror(code);
    exchange.answer->problem = exchange.stopped.empty() ? said : exchange.stopped;
    exchange.answer->may_pass = may_pass(curl, code);
  }
  curl_slist_free_all(headers);
}

HubHttp::HubHttp(std::unique_ptr<Handle> handle) : handle_(std::move(handle)) {}
HubHttp::~HubHttp() = default;

Expected<std::unique_ptr<HubHttp>> HubHttp::create(const std::string& endpoint,
                                                   const std::string& token) {
  if (std::ranges::any_of(token, [](char c) { return c < '!' || c > '~'; })) {
    return invalid_argument("the token holds characters that no token has: look at HF_TOKEN");
  }
  auto handle = std::make_unique<Handle>();
  handle->origin = origin_of(endpoint);
  handle->token = token;
  if (handle->origin.empty()) {
    return invalid_argument("HF_ENDPOINT {}: give an address such as https://huggingface.co",
                            printable(endpoint));
  }
  if (curl_is_ready()) handle->curl = curl_easy_init();
  if (handle->curl == nullptr) return resource_exhausted("there is no memory for an HTTP client");
  return std::unique_ptr<HubHttp>(new HubHttp(std::move(handle)));
}

HubAnswer HubHttp::get(const HubRequest& request) {
  HubAnswer answer;
  std::string url = request.url;
  for (int hop = 0; hop <= kMaxRedirects; ++hop) {
    Exchange exchange;
    exchange.request = &request;
    exchange.answer = &answer;
    answer.body.clear();
    answer.is_elsewhere = origin_of(url) != handle_->origin;
    handle_->exchange(exchange, url);
    if (!answer.problem.empty() || !is_redirect(answer.status)) return answer;
    const std::string next = redirected(url, exchange.location);
    if (next.empty()) {
      answer.problem = fmt::format("it redirects to '{}', which is no address to go to from {}",
                                   printable(exchange.location), printable(url));
      return answer;
    }
    url = next;
  }
  answer.problem = fmt::format("it redirects more than {} times", kMaxRedirects);
  return answer;
}

Status hub_error(const HubAnswer& answer, const std::string& what, const std::string& page,
                 bool has_token) {
  if (interrupted) return {StatusCode::kCancelled, what + ": interrupted"};
  const bool gated = answer.error_code == "GatedRepo";
  if (!answer.problem.empty()) {
    return not_found(
        "{}: the hub cannot be asked: {}: is there a network? (HF_ENDPOINT names another hub, "
        "--offline takes what is in the cache alone)",
        what, printable(answer.problem, 300));
  }
  if (answer.is_elsewhere) {
    return not_found("{}: where the hub keeps it, the answer is {}: try again later", what,
                     answer.status);
  }
  if (answer.status == 403 || gated) {
    return invalid_argument(
        "{}: the hub gives it only to those who have accepted its licence ({}): accept it on {} "
        "and set HF_TOKEN to a token of that account",
        what, answer.status, page);
  }
  if (answer.status == 401 && !has_token) {
    return invalid_argument(
        "{}: the hub knows no public repository of that name (401): look at the spelling; for a "
        "private or gated one set HF_TOKEN to a token of https://huggingface.co/settings/tokens",
        what);
  }
  if (answer.status == 401) {
    return invalid_argument(
        "{}: the hub does not accept the token (401): it may have expired, or the repository is "
        "not for its account: make another and set HF_TOKEN",
        what);
  }
  if (answer.status == 404 && answer.error_code == "RevisionNotFound") {
    return not_found("{}: the hub has no such revision (404): look at the branches on {}", what,
                     page);
  }
  if (answer.status == 404) {
    return not_found("{}: the hub has no such thing (404): look at the spelling of {}", what, page);
  }
  if (answer.status == 429) {
    return resource_exhausted(
        "{}: the hub wants fewer requests (429): wait a while, or set HF_TOKEN", what);
  }
  return not_found("{}: the hub answers with {}: try again later", what, answer.status);
}

}  // namespace aerie
