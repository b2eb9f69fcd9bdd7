// How much memory a model would take and how much there is.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "core/model_config.h"

namespace aerie {

// What this process may still take: the system's available memory, cut by the cgroup's limit. -1 if
// unknown.
int64_t available_memory();

// kResourceExhausted with the sizes if a model of `weight_bytes` with a cache of `cache_bytes` and
// `work_bytes` of working memory does not fit into `available` (ignored if negative).
Status check_memory(const std::string& name, int64_t weight_bytes, int64_t cache_bytes,
                    int64_t work_bytes, int64_t available);

}  // namespace aerie
