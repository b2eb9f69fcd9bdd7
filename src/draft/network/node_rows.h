// Where the nodes of a draft that were run lie in a drafter's own cache: behind what is committed.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/forward_batch.h"
#include "draft/tree/level_tree.h"
#include "kv/kv_cache.h"

namespace aerie {

class NodeRows {
 public:
  // Makes room for trees of this many nodes.
  void reserve(size_t nodes) { entries_.reserve(nodes); }
  // Forgets all.
  void start() {
    entries_.clear();
    next_ = 0;
  }

  // Adds the row of a node to a batch, behind those of the sequence's other nodes: it sees its
  // ancestors where their passes left them. Their slots go to `above`, which must have room and
  // stay until the pass is over. Requires that all of them were run.
  void add_row(const KvCache& cache, KvCache::Id id, const LevelTree& tree, int32_t node,
               int32_t token, ForwardBatch& batch, std::vector<int32_t>& above) {
    const LevelTree::Node& info = tree.nodes()[static_cast<size_t>(node)];
    const std::span<const int32_t> pages = cache.pages(id);
    if (batch.sequences.empty() || batch.sequences.back().pages.data() != pages.data()) {
      batch.sequences.push_back({pages, cache.committed(id), id});
    }
    const size_t first = above.size();
    assert(first + static_cast<size_t>(info.depth) <= above.capacity() + 1);
    add_slots_above(cache, id, tree, node, above);
    BatchRow row;
    row.sequence = static_cast<int32_t>(batch.sequences.size()) - 1;
    row.token = token;
    row.position = cache.committed(id) + info.depth - 1;
    row.slot = cache.slot(id, add(node));
    row.above = std::span<const int32_t>(above).subspan(first);
    row.wants_logits = true;
    batch.rows.push_back(row);
  }
  // -1: it was not run.
  int32_t entry(int32_t node) const {
    const auto index = static_cast<size_t>(node);
    return index < entries_.size() ? entries_[index] : -1;
  }

 private:
  // The next entry, for a node that is about to be run.
  int32_t add(int32_t node) {
    const auto index = static_cast<size_t>(node);
    if (entries_.size() <= index) entries_.resize(index + 1, -1);
    return entries_[index] = next_++;
  }
  // From the root's child down.
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

  std::vector<int32_t> entries_;  // [node]
  int32_t next_ = 0;
};

}  // namespace aerie
