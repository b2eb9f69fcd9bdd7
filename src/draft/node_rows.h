// Where the nodes of a draft that were run lie in a drafter's own cache: behind what is committed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "draft/level_tree.h"
#include "kv/kv_cache.h"

namespace aerie {

class NodeRows {
 public:
  // Makes room for trees of this many nodes.
  void reserve(size_t nodes) { entries_.reserve(nodes); }
  // Forgets all. The first node's entry will be `first`, as in KvCache::slot().
  void start(int first = 0) {
    entries_.clear();
    next_ = first;
  }

  // The next entry, for a node that is about to be run.
  int32_t add(int32_t node) {
    const auto index = static_cast<size_t>(node);
    if (entries_.size() <= index) entries_.resize(index + 1, -1);
    return entries_[index] = next_++;
  }
  // -1: it was not run.
  int32_t entry(int32_t node) const {
    const auto index = static_cast<size_t>(node);
    return index < entries_.size() ? entries_[index] : -1;
  }

  // Appends the slots of the node's ancestors, from the root's child down (BatchRow::above).
  // Requires that all of them were run.
  void add_slots_above(const KvCache& cache, KvCache::Id id, const LevelTree& tree, int32_t node,
                       std::vector<int32_t>& out) const {
    const std::span<const LevelTree::Node> nodes = tree.nodes();
    const auto ancestors = static_cast<size_t>(nodes[static_cast<size_t>(node)].depth - 1);
    const size_t first = out.size();
    out.resize(first + ancestors);
    int32_t parent = nodes[static_cast<size_t>(node)].parent;
    for (size_t i = ancestors; i-- > 0; parent = nodes[static_cast<size_t>(parent)].parent) {
      out[first + i] = cache.slot(id, entry(parent));
    }
  }

 private:
  std::vector<int32_t> entries_;  // [node]
  int32_t next_ = 0;
};

}  // namespace aerie
