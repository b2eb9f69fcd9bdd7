// How much memory a model would take and how much there is.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "core/model_config.h"

namespace aerie {

// What this process may still take: the system's available memory, cut by the limits of its groups
// and its own. -1 if unknown.
int64_t available_memory();

// Its parts, -1 where there is no limit. `root` stands before the paths that are read: empty, but
// in tests. Of the group that the process is in and all that this is in, by version 1 and 2; what
// the system keeps of files, and would give up, counts as free.
int64_t memory_of_groups(const std::string& root = "");
// Address space and data (setrlimit).
int64_t memory_of_limits();

// Of so much free memory what a process may take where `processes` take as much each; -1, unknown,
// stays.
int64_t memory_of_each(int64_t free, int processes);

// What a model may take and has taken.
struct MemoryRoom {
  int64_t limit = 0;  // bytes of all of it; 0: what is free
  int64_t taken = 0;

  int64_t free() const;  // -1 if unknown
};

// kResourceExhausted with the sizes if a model of `weight_bytes` with a cache of `cache_bytes` and
// `work_bytes` of working memory does not fit into `available` (ignored if negative).
Status check_memory(const std::string& name, int64_t weight_bytes, int64_t cache_bytes,
                    int64_t work_bytes, int64_t available);

}  // namespace aerie
