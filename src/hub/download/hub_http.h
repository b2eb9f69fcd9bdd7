// Asking the hub over HTTP.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace aerie {

struct HubRequest {
  std::string url;
  int64_t offset = 0;      // bytes from there on are wanted
  int64_t most_bytes = 0;  // of the answer
  // Hears the bytes of a 200 or 206 answer with the offset that they begin at; empty: they go to
  // HubAnswer::body. False ends the exchange.
  std::function<bool(int64_t offset, std::string_view bytes)> sink;
};

// What came of it.
struct HubAnswer {
  int status = 0;             // 0: none came
  std::string problem;        // why it did not come, or not whole; empty otherwise
  bool may_pass = false;      // the same may do better later
  bool is_elsewhere = false;  // another host than the endpoint's gave it
  std::string body;
  std::string commit, linked_etag;  // X-Repo-Commit and X-Linked-Etag of any of the answers
  std::string error_code;           // X-Error-Code
  double retry_after = 0;           // seconds
};

// A connection that is kept. One thread at a time; not movable.
class HubHttp {
 public:
  // The token goes to the endpoint's scheme, host and port alone, whatever redirects say.
  // kInvalidArgument for a token or an endpoint that cannot be.
  static Expected<std::unique_ptr<HubHttp>> create(const std::string& endpoint,
                                                   const std::string& token);
  ~HubHttp();
  HubHttp(const HubHttp&) = delete;
  HubHttp& operator=(const HubHttp&) = delete;

  // Follows redirects, but not from https to http. Ends early after Ctrl-C where that is caught.
  HubAnswer get(const HubRequest& request);

 private:
  struct Handle;
  explicit HubHttp(std::unique_ptr<Handle> handle);
  std::unique_ptr<Handle> handle_;
};

// What an answer that is no success means for the person who wanted `what`: 401, 403, 404, 429, ...
// `page`: where a licence is accepted.
Status hub_error(const HubAnswer& answer, const std::string& what, const std::string& page,
                 bool has_token);

}  // namespace aerie
