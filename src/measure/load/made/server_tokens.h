// How a server makes tokens of texts, asked of itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "measure/load/http_client.h"
#include "measure/load/serve_load.h"

namespace aerie::measure {

// Asks POST /tokenize beside the API, as vLLM, llama.cpp and Aerie have it. A server without it is
// asked once; lengths are then estimated. The client must outlive it.
class ServerTokens {
 public:
  static Expected<ServerTokens> ask(HttpClient& client, const ServeTarget& target);

  // Whether the server counts; else four bytes are taken for a token.
  bool counts() const { return counts_; }
  // What the server puts before texts, such as BOS.
  const std::vector<int32_t>& front() const { return front_; }

  // Without front(). Requires counts().
  Expected<std::vector<int32_t>> ids(const std::string& text);
  // With front().
  Expected<int64_t> count(const std::string& text);
  // Of this as a user's message, with what the template adds where the server tells that.
  Expected<int64_t> count_message(const std::string& text);

 private:
  ServerTokens(HttpClient& client, const ServeTarget& target);
  // None: the server does not know the path or the request.
  Expected<std::vector<int32_t>> post(Json body, bool& known);

  HttpClient* client_;
  std::string url_, model_;
  bool counts_ = false, counts_messages_ = true;
  std::vector<int32_t> front_;
};

}  // namespace aerie::measure
