// Which pages of a cache hold which beginnings of sequences: a radix tree whose edges are pages.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace aerie {

// What an entry of the cache is of: a token, or whatever else its content depends on besides the
// keys before it.
using PrefixKey = uint64_t;

// Each tenant (any name) has a tree of its own: what one read is not found by another. Which page
// goes is decided over all of them together.
//
// Holds numbers of pages and counts nobody's references: that is KvCache's. Not thread-safe.
class PrefixTree {
 public:
  PrefixTree();
  ~PrefixTree();
  PrefixTree(PrefixTree&&) noexcept;
  PrefixTree& operator=(PrefixTree&&) noexcept;

  // The pages of the longest beginning of `keys` that is there, into `pages`, and its length; the
  // last page may hold more than that. Marks them as used now.
  int find(std::string_view tenant, std::span<const PrefixKey> keys, std::vector<int32_t>& pages);
  // The length alone; marks nothing.
  int length(std::string_view tenant, std::span<const PrefixKey> keys) const;

  // A page that could come after `depth` of those pages: its first `keys` keys are the same.
  struct Match {
    int depth = 0;
    int32_t page = 0;
    int keys = 0;
  };
  // All such pages, those that find() gives and those beside them. Marks nothing.
  void matches(std::string_view tenant, std::span<const PrefixKey> keys,
               std::vector<Match>& out) const;

  // Adds what is missing of `keys`, of which pages[i] holds those from i * kPagePositions on.
  // held[i] becomes the page that it has for them: this one, or another that was there before.
  void add(std::string_view tenant, std::span<const PrefixKey> keys, std::span<const int32_t> pages,
           std::vector<int32_t>& held);

  // Takes out the page that was not used for the longest time, of those that none hangs on and that
  // `references` counts once; -1 if there is none.
  int32_t evict(std::span<const int32_t> references);

  // All pages, in no particular order.
  std::vector<int32_t> pages() const;
  int size() const { return static_cast<int>(used_.size()); }

 private:
  struct Node;
  struct Step {
    Node* node;
    int keys;  // of the node's that are the same
  };
  static Step best_child(const Node& node, std::span<const PrefixKey> keys);
  template <typename Visit>
  int walk(std::string_view tenant, std::span<const PrefixKey> keys, const Visit& visit) const;
  void touch(Node& node);
  void touch_path(Node* node);

  std::map<std::string, std::unique_ptr<Node>, std::less<>> roots_;  // of tenants that have pages
  std::list<Node*> used_;                                            // the longest unused first
};

}  // namespace aerie
