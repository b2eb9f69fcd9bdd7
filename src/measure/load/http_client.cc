#include "measure/load/http_client.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/errors.h"

namespace aerie::measure {
namespace {

// Thread-safe, unlike the library's own start in versions that are still in use.
bool library_is_ready() {
  static const bool ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
  return ready;
}

struct Answer {
  std::string body;
  CURL* curl = nullptr;
  const HttpClient::Receiver* receive = nullptr;
  size_t bytes_left = 0;
  bool too_long = false;
  bool enough = false;

  bool is_streamed() const {
    if (receive == nullptr) return false;
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    return status == 200;
  }
};

size_t take(char* bytes, size_t size, size_t count, void* into) {
  auto& answer = *static_cast<Answer*>(into);
  const size_t n = size * count;
  if (n > answer.bytes_left) {
    answer.too_long = true;
    return 0;
  }
  answer.bytes_left -= n;
  if (answer.is_streamed()) {
    answer.enough = !(*answer.receive)({bytes, n});
    return answer.enough ? 0 : n;
  }
  answer.body.append(bytes, n);
  return n;
}

int is_cancelled(void* flag, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  const auto* cancel = static_cast<const std::atomic<bool>*>(flag);
  return cancel->load() ? 1 : 0;
}

StatusCode code_of(CURLcode code, const Answer& answer) {
  switch (code) {
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
      return StatusCode::kInvalidArgument;
    case CURLE_ABORTED_BY_CALLBACK:
      return StatusCode::kCancelled;
    case CURLE_WRITE_ERROR:
      return answer.too_long ? StatusCode::kResourceExhausted : StatusCode::kNotFound;
    case CURLE_OUT_OF_MEMORY:
      return StatusCode::kResourceExhausted;
    default:
      return StatusCode::kNotFound;
  }
}

}  // namespace

struct HttpClient::Handle {
  HttpOptions options;
  CURL* curl = nullptr;
  curl_slist* headers = nullptr;
  std::array<char, CURL_ERROR_SIZE> error = {};

  Handle() = default;
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
  }
  bool add_header(const std::string& line) {
    curl_slist* longer = curl_slist_append(headers, line.c_str());
    if (longer != nullptr) headers = longer;
    return longer != nullptr;
  }
  void set_options();
  void set_body(const std::string& json);  // which must outlive the exchange
};

void HttpClient::Handle::set_options() {
  const auto set = [&](auto option, auto value) { curl_easy_setopt(curl, option, value); };
  set(CURLOPT_ERRORBUFFER, error.data());
  set(CURLOPT_HTTPHEADER, headers);
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_PROXY, "");
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options.connect_timeout * 1e3));
  set(CURLOPT_TIMEOUT_MS, std::max(1L, static_cast<long>(options.timeout * 1e3)));
  set(CURLOPT_WRITEFUNCTION, &take);
  if (options.cancel != nullptr) {
    set(CURLOPT_NOPROGRESS, 0L);
    set(CURLOPT_XFERINFOFUNCTION, &is_cancelled);
    set(CURLOPT_XFERINFODATA, static_cast<const void*>(options.cancel));
  }
}

void HttpClient::Handle::set_body(const std::string& json) {
  curl_easy_setopt(curl, CURLOPT_POST, 1L);
  curl_easy_setopt(curl, CURLOPT_POSTFIELDS, json.c_str());
  curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(json.size()));
}

HttpClient::HttpClient(std::unique_ptr<Handle> handle) : handle_(std::move(handle)) {}
HttpClient::HttpClient(HttpClient&& other) noexcept = default;
HttpClient::~HttpClient() = default;

Expected<HttpClient> HttpClient::create(const HttpOptions& options) {
  const bool has_control =
      std::ranges::any_of(options.bearer, [](char c) { return c < ' ' || c > '~'; });
  if (has_control) return invalid_argument("the API key holds characters that no HTTP header can");
  auto handle = std::make_unique<Handle>();
  handle->options = options;
  if (library_is_ready()) handle->curl = curl_easy_init();
  // "Expect": a server that waits for the body would cost a second.
  const bool whole =
      handle->curl != nullptr && handle->add_header("Content-Type: application/json") &&
      handle->add_header("Expect:") &&
      (options.bearer.empty() || handle->add_header("Authorization: Bearer " + options.bearer));
  if (!whole) return resource_exhausted("there is no memory for an HTTP client");
  handle->set_options();
  return HttpClient(std::move(handle));
}

Expected<HttpResponse> HttpClient::post(const std::string& url, const std::string& json) {
  handle_->set_body(json);
  return exchange(url, nullptr);
}

Expected<HttpResponse> HttpClient::post(const std::string& url, const std::string& json,
                                        const Receiver& receive) {
  handle_->set_body(json);
  return exchange(url, &receive);
}

Expected<HttpResponse> HttpClient::get(const std::string& url) {
  curl_easy_setopt(handle_->curl, CURLOPT_HTTPGET, 1L);
  return exchange(url, nullptr);
}

Expected<HttpResponse> HttpClient::exchange(const std::string& url, const Receiver* receive) {
  Handle& handle = *handle_;
  Answer answer;
  answer.curl = handle.curl;
  answer.receive = receive;
  answer.bytes_left = handle.options.most_bytes;
  handle.error[0] = '\0';
  curl_easy_setopt(handle.curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(handle.curl, CURLOPT_WRITEDATA, &answer);
  const CURLcode code = curl_easy_perform(handle.curl);
  if (code != CURLE_OK && !answer.enough) {
    const char* reason = handle.error[0] != '\0' ? handle.error.data() : curl_easy_strerror(code);
    return Status(code_of(code, answer), answer.too_long
                                             ? fmt::format("{}: the answer is longer than {} MiB",
                                                           url, handle.options.most_bytes >> 20)
                                             : fmt::format("{}: {}", url, reason));
  }
  HttpResponse response;
  curl_easy_getinfo(handle.curl, CURLINFO_RESPONSE_CODE, &response.status);
  response.body = std::move(answer.body);
  return response;
}

}  // namespace aerie::measure
