// From the requests of a load on a server to its figures, which are those of `vllm bench serve`.
// Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace aerie::measure {

// One request, in seconds from when it was sent.
struct ServeSample {
  enum class State : uint8_t { kNotReached, kDone, kFailed };
  State state = State::kNotReached;
  std::string error;          // why it failed
  double first_token = 0;     // until the first text
  double latency = 0;         // until the last
  std::vector<double> gaps;   // between one piece of text and the next
  int64_t prompt_tokens = 0;  // as the server counts them
  int64_t output_tokens = 0;  // or the pieces, where it does not
  bool counted = false;       // by the server
  double late = 0;            // sent so long after its time had come, for want of a free client
  uint64_t text_hash = 0;
};

// Counters of vLLM's metrics; what they rose by is what a load did.
struct DraftCounters {
  double drafts = 0, draft_tokens = 0, accepted_tokens = 0;
  std::vector<double> accepted_at;  // by position

  void add(const DraftCounters& other);
  // Of a later reading.
  DraftCounters since(const DraftCounters& before) const;
};

// The vllm:spec_decode_... counters in a page of Prometheus' text format, over all label sets. None
// if they are not there.
std::optional<DraftCounters> read_draft_counters(std::string_view page);

struct Acceptance {
  double drafts = 0, draft_tokens = 0, accepted_tokens = 0;
  double rate = 0;    // accepted of drafted
  double length = 1;  // 1 and the accepted tokens of a draft in the mean
  std::vector<double> per_position;
};
// None where nothing was drafted.
std::optional<Acceptance> acceptance_of(const DraftCounters& counters);

struct Latency {
  double mean = 0, median = 0, p99 = 0;
};

struct ServeFigures {
  int completed = 0, failed = 0;
  double seconds = 0;  // from the first request to the end of the last
  int64_t prompt_tokens = 0, output_tokens = 0;
  bool counted = true;  // all tokens by the server
  double requests_per_second = 0, output_per_second = 0, tokens_per_second = 0;
  // Milliseconds. Per output token: after the first one. Between pieces: of text, which under
  // speculation hold several tokens.
  Latency first_token, per_output_token, between_pieces, end_to_end;
  int late = 0;  // requests sent kLate seconds or more after their time had come
  std::optional<Acceptance> acceptance;
  std::vector<std::string> errors;  // those that differ, the first few
};

inline constexpr double kLate = 0.01;

// Requests that were not reached do not count.
ServeFigures summarize(std::span<const ServeSample> samples, double seconds,
                       const std::optional<DraftCounters>& counters);

}  // namespace aerie::measure
