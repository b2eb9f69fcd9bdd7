// Counts by place: of depths of drafts, as a rule.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace aerie {

// Adds place by place; `to` becomes as long as the longer one.
inline void add_counts(const std::vector<int64_t>& of, std::vector<int64_t>& to) {
  to.resize(std::max(to.size(), of.size()));
  for (size_t i = 0; i < of.size(); ++i) to[i] += of[i];
}

}  // namespace aerie
