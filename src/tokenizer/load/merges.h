// Byte-pair merges: which pairs of tokens join, in what order, into what.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace aerie {

struct MergeRule {
  int32_t left = 0;
  int32_t right = 0;
  int32_t result = 0;
};

// Immutable after construction: safe to share between threads.
class MergeTable {
 public:
  static constexpr uint32_t kNoRank = UINT32_MAX;
  struct Found {
    uint32_t rank = kNoRank;  // kNoRank: the two do not join
    int32_t result = -1;
  };

  // A rule's index is its rank. Ids are less than `vocab_size`. Requires at most kNoRank rules, no
  // pair twice (see duplicate()).
  MergeTable(std::span<const MergeRule> rules, int32_t vocab_size);
  // The same with a rank for each rule; several may have one.
  MergeTable(std::span<const MergeRule> rules, std::span<const uint32_t> ranks, int32_t vocab_size);
  MergeTable() = default;

  Found find(int32_t left, int32_t right) const;

  // The rank of a rule whose pair one of lower rank has, or kNoRank.
  uint32_t duplicate() const { return duplicate_; }

 private:
  struct Entry {
    int32_t right;
    Found found;
  };
  // The rules with left token l are entries_[first_[l]] to entries_[first_[l + 1]], by right token.
  std::vector<uint32_t> first_;
  std::vector<Entry> entries_;
  uint32_t duplicate_ = kNoRank;
};

// Joins a word's tokens until no rule applies: always the pair of the least rank, the leftmost of
// these. Keeps its memory between words. The table must outlive it. Not thread-safe.
class Merger {
 public:
  explicit Merger(const MergeTable& table) : table_(table) {}

  // Replaces `symbols` by what they join to. O(n log n). Requires fewer than 2^31 of them.
  void merge(std::vector<int32_t>& symbols);

 private:
  struct Node {
    uint32_t previous, next;
    int32_t id;              // -1 once it has joined its left neighbour
    MergeTable::Found pair;  // with `next`
  };
  void merge_short(std::vector<int32_t>& symbols);
  void merge_long(std::vector<int32_t>& symbols);
  void build(const std::vector<int32_t>& symbols);
  void set_pair(uint32_t left);

  const MergeTable& table_;
  std::vector<MergeTable::Found> pairs_;
  std::vector<Node> nodes_;
  std::vector<uint64_t> heap_;  // rank << 32 | index of the left node
};

}  // namespace aerie
