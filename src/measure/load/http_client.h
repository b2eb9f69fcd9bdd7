// Requests to a server that the user named, over libcurl.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace aerie::measure {

struct HttpOptions {
  double timeout = 600.0;                // seconds for a whole exchange; > 0
  double connect_timeout = 10.0;         // of them until there is a connection
  size_t most_bytes = size_t{64} << 20;  // of an answer
  std::string bearer;                    // sent as "Authorization: Bearer ..."; empty: nothing is
  // Asked about once a second: true ends an exchange. May be null.
  const std::atomic<bool>* cancel = nullptr;
};

struct HttpResponse {
  long status = 0;  // 200, 404, ...
  std::string body;
};

// Keeps its connection between exchanges. One thread at a time, one client for each thread.
//
// http and https, whose certificates are checked. Follows no redirection, asks no proxy and reads
// no settings from the environment: nothing but the URL's own host is spoken to.
class HttpClient {
 public:
  // kInvalidArgument if `bearer` holds what no header can.
  static Expected<HttpClient> create(const HttpOptions& options);
  ~HttpClient();
  HttpClient(HttpClient&& other) noexcept;
  HttpClient& operator=(HttpClient&&) = delete;

  // Posts JSON; an answer of any status is a value. Errors, which name the URL: kNotFound if no
  // answer came (nobody listens, the time is over, the connection broke), kInvalidArgument for a
  // URL that cannot be, kResourceExhausted for too long an answer, kCancelled.
  Expected<HttpResponse> post(const std::string& url, const std::string& json);
  // The same, but the body of an answer of status 200 goes to `receive` as it arrives, and not into
  // the response. False from it: that is enough, which is no error; the rest is not waited for.
  using Receiver = std::function<bool(std::string_view piece)>;
  Expected<HttpResponse> post(const std::string& url, const std::string& json,
                              const Receiver& receive);
  Expected<HttpResponse> get(const std::string& url);

 private:
  struct Handle;
  explicit HttpClient(std::unique_ptr<Handle> handle);
  Expected<HttpResponse> exchange(const std::string& url, const Receiver* receive);
  std::unique_ptr<Handle> handle_;
};

}  // namespace aerie::measure
