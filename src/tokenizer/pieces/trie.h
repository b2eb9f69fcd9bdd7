// Finds all names that a text begins with.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace aerie {

// Immutable after construction: safe to share between threads.
class Trie {
 public:
  // No name is empty or there twice; fewer than 2^32 bytes in all.
  explicit Trie(std::vector<std::pair<std::string_view, int32_t>> names);
  Trie() = default;

  // Calls visit(length, value) for each name that `text` begins with, shortest first.
  template <typename Visit>
  void prefixes(std::string_view text, Visit&& visit) const {
    if (values_.empty()) return;
    uint32_t node = 0;
    for (size_t at = 0; at < text.size(); ++at) {
      node = child(node, static_cast<uint8_t>(text[at]));
      if (node == 0) return;
      if (values_[node] != kNone) visit(at + 1, values_[node]);
    }
  }

 private:
  static constexpr int32_t kNone = -1;
  // 0, the root, if there is none.
  uint32_t child(uint32_t node, uint8_t label) const {
    if (node == 0) return root_[label];
    uint32_t low = first_child_[node];
    uint32_t count = first_child_[node + 1] - low;
    while (count > 1) {
      const uint32_t half = count / 2;
      low = labels_[low + half] <= label ? low + half : low;
      count -= half;
    }
    return count == 1 && labels_[low] == label ? low : 0;
  }

  // Nodes are numbered level by level, so a node's children are first_child_[node] up to
  // first_child_[node + 1], by label.
  std::vector<uint32_t> first_child_;
  std::vector<uint8_t> labels_;  // of the edge to the node
  std::vector<int32_t> values_;
  std::vector<uint32_t> root_;
};

}  // namespace aerie
