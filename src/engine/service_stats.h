// What a service did so far.
#pragma once

#include <cstdint>
#include <vector>

#include "core/counts.h"

namespace aerie {

// Counters only rise.
struct ServiceStats {
  int running = 0;
  int waiting = 0;
  double cache_usage = 0.0;  // of the pages, those of running requests, in [0, 1]
  int64_t requests = 0;      // that ended, however
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
  int64_t prefix_queries = 0;  // prompt tokens that were looked up in the cache
  int64_t prefix_hits = 0;     // and found
  int64_t preemptions = 0;
  int64_t passes = 0;           // of the target
  double pass_seconds = 0.0;    // spent in them
  double decode_seconds = 0.0;  // in these, in drafting, sampling and committing
  double busy_seconds = 0.0;    // in all that, and in scheduling and handing out
  // Speculation.
  int64_t drafts = 0;  // rounds of a sequence that drafted
  int64_t draft_tokens = 0;
  int64_t accepted_tokens = 0;
  std::vector<int64_t> accepted_at;  // by depth
  // Of replies that were drawn to be recorded (engine/recording/recording_service.h).
  int64_t records_written = 0;
  int64_t records_dropped = 0;   // since writing them was too slow, or failed
  int64_t records_left_out = 0;  // since they have grammars, which are texts
  // Of replies that are kept for training (engine/learning/learning.h).
  int64_t learned = 0;
  int64_t learned_dropped = 0;  // since writing them was too slow, or failed
};

// Adds the counters of another service; running, waiting and cache_usage stay.
inline void add_counters(const ServiceStats& of, ServiceStats& to) {
  to.requests += of.requests;
  to.prompt_tokens += of.prompt_tokens;
  to.generated_tokens += of.generated_tokens;
  to.prefix_queries += of.prefix_queries;
  to.prefix_hits += of.prefix_hits;
  to.preemptions += of.preemptions;
  to.passes += of.passes;
  to.pass_seconds += of.pass_seconds;
  to.decode_seconds += of.decode_seconds;
  to.busy_seconds += of.busy_seconds;
  to.drafts += of.drafts;
  to.draft_tokens += of.draft_tokens;
  to.accepted_tokens += of.accepted_tokens;
  add_counts(of.accepted_at, to.accepted_at);
  to.records_written += of.records_written;
  to.records_dropped += of.records_dropped;
  to.records_left_out += of.records_left_out;
  to.learned += of.learned;
  to.learned_dropped += of.learned_dropped;
}

}  // namespace aerie
