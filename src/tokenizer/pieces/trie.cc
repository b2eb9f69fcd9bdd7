#include "tokenizer/pieces/trie.h"

#include <algorithm>

namespace aerie {

Trie::Trie(std::vector<std::pair<std::string_view, int32_t>> names) {
  std::ranges::sort(names);
  struct Range {
    uint32_t begin, end;  // of the names that begin as the node does
  };
  std::vector<Range> level = {{0, static_cast<uint32_t>(names.size())}}, below;
  labels_.push_back(0);
  values_.push_back(kNone);
  for (size_t depth = 0; !level.empty(); ++depth) {
    below.clear();
    for (const Range& range : level) {
      first_child_.push_back(static_cast<uint32_t>(labels_.size()));
      uint32_t at = range.begin;
      if (at < range.end && names[at].first.size() == depth) ++at;
      while (at < range.end) {
        const char label = names[at].first[depth];
        uint32_t end = at + 1;
        while (end < range.end && names[end].first[depth] == label) ++end;
        labels_.push_back(static_cast<uint8_t>(label));
        values_.push_back(names[at].first.size() == depth + 1 ? names[at].second : kNone);
        below.push_back({at, end});
        at = end;
      }
    }
    std::swap(level, below);
  }
  first_child_.push_back(static_cast<uint32_t>(labels_.size()));
  root_.assign(256, 0);
  for (uint32_t node = first_child_[0]; node < first_child_[1]; ++node) {
    root_[labels_[node]] = node;
  }
}

}  // namespace aerie
