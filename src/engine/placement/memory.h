// How much memory a model would take and how much there is.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

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
  std::function<int64_t()> available = available_memory;

  int64_t free() const;  // -1 if unknown
};

// Bytes that a model takes.
struct MemoryNeed {
  int64_t weights = 0;
  int64_t cache = 0;
  int64_t work = 0;

  int64_t all() const { return weights + cache + work; }
};

// kResourceExhausted with the sizes and what is missing if `need` does not fit into `free` (ignored
// if negative). `where` says whose bytes these are.
Status check_memory(const std::string& name, const MemoryNeed& need, int64_t free,
                    std::string_view where = "that are available");

std::string mebibytes(int64_t bytes);  // "12 MiB"

}  // namespace aerie
