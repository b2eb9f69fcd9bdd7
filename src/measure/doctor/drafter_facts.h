// What draft models and heads take beside their target, from their files alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "draft/draft_host.h"
#include "draft/speculative_config.h"

namespace aerie::measure {

struct DrafterFacts {
  std::string method;
  std::string name;  // as it was given
  // Bytes of memory.
  int64_t weight_bytes = 0;
  int64_t cache_bytes = 0;
  int64_t work_bytes = 0;  // 0 of heads, whose own is small

  int64_t bytes() const { return weight_bytes + cache_bytes + work_bytes; }
};

// Of the methods that read a model or a head, in their order; the others take next to nothing.
// `target` without a model: none is loaded. The errors with which these drafters would not be
// opened, as far as files tell them; what comes with the target (methods_of_target()) and cannot be
// is left out.
Expected<std::vector<DrafterFacts>> read_drafter_facts(const SpeculativeConfig& speculation,
                                                       const DraftTarget& target);

}  // namespace aerie::measure
