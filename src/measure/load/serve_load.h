// A load on a server that speaks OpenAI's API: requests from several clients at once, each streamed
// and timed.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "measure/load/http_client.h"
#include "measure/load/serve_summary.h"
#include "measure/report_head.h"
#include "report/prompt_set.h"

namespace aerie::measure {

struct ServeTarget {
  std::string url;  // "http://127.0.0.1:8000/v1"
  std::string api_key;
  std::string model;  // empty: none is sent
  bool chat = true;   // else /completions
  int max_tokens = 128;
  double temperature = 0;
  uint64_t seed = 0;
  bool ignore_eos = false;
  Json extra = Json::object();  // keys of every request; they come before all others
  double timeout = 600;         // seconds for a request
  const std::atomic<bool>* cancel = nullptr;

  bool cancelled() const { return cancel != nullptr && cancel->load(); }
  HttpOptions http() const;
  std::string root() const;  // of what lies beside the API: "http://127.0.0.1:8000"
};

// `prompt`'s first turn as a streaming request, with `speculation` unless that is null. A text to
// go on with is a user's message where chats are asked for, and the other way round. Token ids
// stand for the text where none is asked for.
std::string serve_request(const ServeTarget& target, const Prompt& prompt, uint64_t seed,
                          const Json& speculation);

// Sends one and waits for its end. Not reached if it was cancelled.
ServeSample ask_streaming(HttpClient& client, const ServeTarget& target, const std::string& body);

struct ServeLoad {
  int concurrency = 1;  // clients, each with one request at a time
  // Requests in a second, in the mean of a Poisson process; infinite: each client asks again at
  // once.
  double rate = std::numeric_limits<double>::infinity();
  uint64_t seed = 0;  // of the arrivals
};

// Seconds from the first arrival to each, of a Poisson process; all 0 for an infinite rate. Pure.
std::vector<double> arrivals(size_t count, double rate, uint64_t seed);

struct LoadResult {
  std::vector<ServeSample> samples;  // of each body
  double seconds = 0;                // from the first to the end of the last
};
// Ends early if it is cancelled. The errors of HttpClient::create().
Expected<LoadResult> run_load(const ServeTarget& target, std::span<const std::string> bodies,
                              const ServeLoad& load);

}  // namespace aerie::measure
