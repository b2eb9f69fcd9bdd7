#include "tokenizer/load/merges.h"

#include <algorithm>
#include <cassert>
#include <functional>
#include <numeric>

namespace aerie {
namespace {

// Below this many symbols, looking at all pairs is faster than a heap.
constexpr size_t kShort = 48;
constexpr uint32_t kNone = UINT32_MAX;

}  // namespace

MergeTable::MergeTable(std::span<const MergeRule> rules, int32_t vocab_size) {
  std::vector<uint32_t> ranks(rules.size());
  std::iota(ranks.begin(), ranks.end(), 0u);
  *this = MergeTable(rules, ranks, vocab_size);
}

// Sorted lists rather than a hash table: a hostile file cannot make them slow.
MergeTable::MergeTable(std::span<const MergeRule> rules, std::span<const uint32_t> ranks,
                       int32_t vocab_size)
    : first_(static_cast<size_t>(vocab_size) + 1, 0), entries_(rules.size()) {
  for (const MergeRule& rule : rules) ++first_[static_cast<size_t>(rule.left) + 1];
  for (size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
  std::vector<uint32_t> next(first_.begin(), first_.end() - 1);
  for (size_t i = 0; i < rules.size(); ++i) {
    const MergeRule& rule = rules[i];
    entries_[next[static_cast<size_t>(rule.left)]++] = {rule.right, {ranks[i], rule.result}};
  }
  for (size_t left = 0; left + 1 < first_.size(); ++left) {
    const auto begin = entries_.begin() + first_[left], end = entries_.begin() + first_[left + 1];
    std::sort(begin, end, [](const Entry& a, const Entry& b) {
      return a.right != b.right ? a.right < b.right : a.found.rank < b.found.rank;
    });
    const auto same = std::adjacent_find(
        begin, end, [](const Entry& a, const Entry& b) { return a.right == b.right; });
    if (same != end) duplicate_ = std::min(duplicate_, (same + 1)->found.rank);
  }
}

MergeTable::Found MergeTable::find(int32_t left, int32_t right) const {
  const uint32_t end = first_[static_cast<size_t>(left) + 1];
  const Entry* base = entries_.data() + first_[static_cast<size_t>(left)];
  size_t count = end - first_[static_cast<size_t>(left)];
  if (count == 0) return {};
  // Written so that the compiler makes conditional moves of it: the branch is a coin toss.
  while (count > 1) {
    const size_t half = count / 2;
    base = base[half].right <= right ? base + half : base;
    count -= half;
  }
  return base->right == right ? base->found : Found{};
}

void Merger::merge(std::vector<int32_t>& symbols) {
  assert(symbols.size() < (size_t{1} << 31));
  if (symbols.size() < 2) return;
  if (symbols.size() <= kShort) {
    merge_short(symbols);
  } else {
    merge_long(symbols);
  }
}

void Merger::merge_short(std::vector<int32_t>& symbols) {
  size_t count = symbols.size();
  pairs_.resize(count);
  for (size_t i = 0; i + 1 < count; ++i) pairs_[i] = table_.find(symbols[i], symbols[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (pairs_[i].rank < pairs_[best].rank) best = i;
    }
    if (pairs_[best].rank == MergeTable::kNoRank) break;
    symbols[best] = pairs_[best].result;
    for (size_t i = best + 1; i + 1 < count; ++i) {
      symbols[i] = symbols[i + 1];
      pairs_[i] = pairs_[i + 1];
    }
    --count;
    if (best > 0) pairs_[best - 1] = table_.find(symbols[best - 1], symbols[best]);
    if (best + 1 < count) pairs_[best] = table_.find(symbols[best], symbols[best + 1]);
  }
  symbols.resize(count);
}

void Merger::build(const std::vector<int32_t>& symbols) {
  const auto count = static_cast<uint32_t>(symbols.size());
  nodes_.resize(count);
  heap_.clear();
  for (uint32_t i = 0; i < count; ++i) {
    nodes_[i] = {i == 0 ? kNone : i - 1, i + 1 == count ? kNone : i + 1, symbols[i], {}};
    if (i + 1 == count) continue;
    nodes_[i].pair = table_.find(symbols[i], symbols[i + 1]);
    if (nodes_[i].pair.rank != MergeTable::kNoRank) {
      heap_.push_back(uint64_t{nodes_[i].pair.rank} << 32 | i);
    }
  }
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
}

void Merger::set_pair(uint32_t left) {
  Node& node = nodes_[left];
  node.pair = node.next == kNone ? MergeTable::Found{} : table_.find(node.id, nodes_[node.next].id);
  if (node.pair.rank == MergeTable::kNoRank) return;
  heap_.push_back(uint64_t{node.pair.rank} << 32 | left);
  std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

void Merger::merge_long(std::vector<int32_t>& symbols) {
  build(symbols);
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const auto left = static_cast<uint32_t>(heap_.back());
    const auto rank = static_cast<uint32_t>(heap_.back() >> 32);
    heap_.pop_back();
    Node& node = nodes_[left];
    // Entries are not taken out of the heap when their pair ceases to be. One holds if its node
    // still has a pair of its rank: were it another pair, it would be this one's turn as well.
    if (node.id < 0 || node.pair.rank != rank) continue;
    Node& gone = nodes_[node.next];
    node.id = node.pair.result;
    node.next = gone.next;
    gone.id = -1;
    if (node.next != kNone) nodes_[node.next].previous = left;
    set_pair(left);
    if (node.previous != kNone) set_pair(node.previous);
  }
  symbols.clear();
  for (uint32_t i = 0; i != kNone; i = nodes_[i].next) symbols.push_back(nodes_[i].id);
}

}  // namespace aerie
