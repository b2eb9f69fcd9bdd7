#include "draft/lookup/suffix_trie.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace aerie {
namespace {

constexpr int32_t kRoot = 0;
constexpr int32_t kNone = -1;

// Of positions that may have wrapped around.
bool later(uint32_t a, uint32_t b) {
  return static_cast<int32_t>(a - b) > 0;
}

}  // namespace

SuffixTrie::SuffixTrie(int max_depth, int max_tokens)
    : max_depth_(max_depth),
      open_mask_(std::bit_ceil(static_cast<uint32_t>(max_depth)) - 1),
      open_(size_t{open_mask_} + 1) {
  assert(max_depth >= 1 && max_tokens >= 1);
  reserve(max_tokens);
  nodes_.push_back({kNone, 0, 0, 0, 0, 0, kNone, kRoot, kNone, kNone});
}

void SuffixTrie::reserve(int max_tokens) {
  if (max_tokens <= max_tokens_) return;
  // Each suffix ends at a node of its own or branches off at one, and shares the rest.
  const size_t most = 2 * static_cast<size_t>(max_tokens) + 2;
  nodes_.reserve(most);
  groups_.reserve(most);
  const uint32_t mask = std::bit_ceil(static_cast<uint32_t>(max_tokens)) - 1;
  std::vector<int32_t> text(size_t{mask} + 1);
  std::vector<int32_t> slots(std::bit_ceil(3 * static_cast<size_t>(max_tokens)), kRoot);
  for (uint32_t at = tail_; at != head_; ++at) text[at & mask] = token_at(at);
  text_.swap(text);
  text_mask_ = mask;
  slots_.swap(slots);
  for (const int32_t child : slots) {
    if (child != kRoot) slots_[slot(at(child).parent, at(child).first)] = child;
  }
  max_tokens_ = max_tokens;
}

uint32_t SuffixTrie::first_open() const {
  const uint32_t open = std::min(head_ - start_, static_cast<uint32_t>(max_depth_ - 1));
  return head_ - open;
}

void SuffixTrie::append(int32_t token) {
  assert(size() < max_tokens_);
  text_[head_ & text_mask_] = token;
  open_at(head_) = {};
  const uint32_t first = first_open();
  ++head_;
  for (uint32_t start = first; start != head_; ++start) advance(open_at(start), start, token);
}

// Takes the suffix that begins at `start` and ends at `point` one token further.
void SuffixTrie::advance(Point& point, uint32_t start, int32_t token) {
  if (point.depth < at(point.node).depth) {
    Node& node = at(point.node);
    if (token_at(node.from + static_cast<uint32_t>(point.depth)) == token) {
      if (++point.depth == node.depth) node.from = start;
      return;
    }
    split(point, start);
  }
  const int32_t parent = point.node;
  const size_t place = slot(parent, token);
  int32_t child = slots_[place];
  if (child == kRoot) {
    child = new_node();
    // Its edge goes on as the text does.
    at(child) = {parent, token, start, start, max_depth_, 0, kNone, kNone, kNone, kNone};
    slots_[place] = child;
    add_last(child);
  } else {
    raise(child);
  }
  ++at(parent).onward;
  at(child).latest = start;
  point = {child, point.depth + 1};
  if (point.depth == at(child).depth) at(child).from = start;
}

// Puts a node where the suffix from `start` ends within an edge.
void SuffixTrie::split(Point& point, uint32_t start) {
  const int32_t below = point.node, depth = point.depth;
  const int32_t middle = new_node();
  at(middle) = at(below);
  at(middle).depth = depth;
  at(middle).from = start;
  at(middle).child = kNone;
  slots_[slot(at(below).parent, at(below).first)] = middle;
  replace(below, middle);
  // Suffixes that have come no further than here, this one first, have not entered the lower part.
  int32_t count = group_of(middle).count - 1;
  for (uint32_t other = first_open(); other != head_; ++other) {
    Point& open = open_at(other);
    if (open.node != below || other == start || open.depth > depth) continue;
    open.node = middle;
    --count;
  }
  point.node = middle;
  at(below).parent = middle;
  at(below).first = token_at(at(below).from + static_cast<uint32_t>(depth));
  // An open suffix may be later, but not than any that its siblings will come of.
  at(below).latest = at(below).from;
  at(below).prev = below;
  at(below).next = kNone;
  at(below).group = new_group(count, below);
  at(middle).child = below;
  at(middle).onward = count;
  slots_[slot(middle, at(below).first)] = below;
}

void SuffixTrie::end_text() {
  if (head_ == start_) return;
  for (uint32_t start = first_open(); start != head_; ++start) {
    Point& point = open_at(start);
    Node& node = at(point.node);
    if (point.depth == node.depth) continue;
    if (node.from == start) {
      node.depth = point.depth;  // nobody else has come as far on this edge
    } else {
      split(point, start);
    }
  }
  start_ = head_;
  ends_.push_back(head_);
}

void SuffixTrie::drop_oldest() {
  assert(!ends_.empty() && head_ == start_);
  const uint32_t end = ends_.front();
  ends_.pop_front();
  for (; tail_ != end; ++tail_) {
    remove(tail_, static_cast<int>(std::min(end - tail_, static_cast<uint32_t>(max_depth_))));
  }
}

// What remains was passed by a later text's suffix too, which left its position in `from`.
void SuffixTrie::remove(uint32_t start, int length) {
  int32_t node = kRoot;
  while (at(node).depth < length) {
    const int32_t child = find(node, token_at(start + static_cast<uint32_t>(at(node).depth)));
    assert(child != kRoot);
    --at(node).onward;
    if (group_of(child).count == 1) {
      assert(at(child).child == kNone);
      erase(child);
      break;
    }
    lower(child);
    node = child;
  }
  if (node != kRoot) splice_out(node);
}

// Removes a node at which nothing branches off or ends.
void SuffixTrie::splice_out(int32_t node) {
  const int32_t child = at(node).child;
  if (child == kNone || at(child).next != kNone) return;
  if (group_of(child).count != group_of(node).count) return;
  erase_slot(slot(node, at(child).first));
  slots_[slot(at(node).parent, at(node).first)] = child;
  free_group(at(child).group);
  at(child).parent = at(node).parent;
  at(child).first = at(node).first;
  replace(node, child);
  free_node(node);
}

SuffixTrie::Point SuffixTrie::suffix(int length) const {
  assert(length < max_depth_ && length <= text_size());
  if (length == 0) return {};
  return open_[(head_ - static_cast<uint32_t>(length)) & open_mask_];
}

bool SuffixTrie::step(Point& point, int32_t token) const {
  const Node& node = at(point.node);
  if (point.depth < node.depth) {
    const uint32_t position = node.from + static_cast<uint32_t>(point.depth);
    if (position == head_ || token_at(position) != token) return false;
    ++point.depth;
    return true;
  }
  const int32_t child = find(point.node, token);
  if (child == kRoot) return false;
  point = {child, point.depth + 1};
  return true;
}

void SuffixTrie::continuations(Point point, double least, std::vector<Continuation>& out) const {
  out.clear();
  const Node& node = at(point.node);
  if (point.depth < node.depth) {
    const uint32_t position = node.from + static_cast<uint32_t>(point.depth);
    if (position != head_ && least <= 1.0) {
      out.push_back({token_at(position), 1.0, {point.node, point.depth + 1}, node.latest});
    }
    return;
  }
  for (int32_t child = node.child; child != kNone; child = at(child).next) {
    const double share = static_cast<double>(group_of(child).count) / node.onward;
    if (share < least) break;
    out.push_back({at(child).first, share, {child, point.depth + 1}, at(child).latest});
  }
  std::ranges::sort(out, [](const Continuation& a, const Continuation& b) {
    return a.share != b.share ? a.share > b.share : later(a.latest, b.latest);
  });
}

int32_t SuffixTrie::new_node() {
  if (free_node_ == kNone) {
    nodes_.emplace_back();
    return static_cast<int32_t>(nodes_.size()) - 1;
  }
  --free_count_;
  const int32_t node = free_node_;
  free_node_ = at(node).next;
  return node;
}

void SuffixTrie::free_node(int32_t node) {
  ++free_count_;
  at(node).next = free_node_;
  free_node_ = node;
}

int32_t SuffixTrie::new_group(int32_t count, int32_t member) {
  int32_t group = free_group_;
  if (group == kNone) {
    group = static_cast<int32_t>(groups_.size());
    groups_.emplace_back();
  } else {
    free_group_ = groups_[static_cast<size_t>(group)].first;
  }
  groups_[static_cast<size_t>(group)] = {count, member, member};
  return group;
}

void SuffixTrie::free_group(int32_t group) {
  groups_[static_cast<size_t>(group)].first = free_group_;
  free_group_ = group;
}

size_t SuffixTrie::bucket(int32_t parent, int32_t token) const {
  // The finaliser of SplitMix64.
  uint64_t x =
      static_cast<uint64_t>(static_cast<uint32_t>(parent)) << 32 | static_cast<uint32_t>(token);
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return static_cast<size_t>(x ^ (x >> 31)) & (slots_.size() - 1);
}

size_t SuffixTrie::slot(int32_t parent, int32_t token) const {
  for (size_t i = bucket(parent, token);; i = (i + 1) & (slots_.size() - 1)) {
    const int32_t child = slots_[i];
    if (child == kRoot || (at(child).parent == parent && at(child).first == token)) return i;
  }
}

// Closes the gap, so that searches never meet one within a run.
void SuffixTrie::erase_slot(size_t gap) {
  const size_t mask = slots_.size() - 1;
  for (size_t i = (gap + 1) & mask; slots_[i] != kRoot; i = (i + 1) & mask) {
    const size_t home = bucket(at(slots_[i]).parent, at(slots_[i]).first);
    if (((i - home) & mask) < ((i - gap) & mask)) continue;
    slots_[gap] = slots_[i];
    gap = i;
  }
  slots_[gap] = kRoot;
}

void SuffixTrie::unlink(int32_t node) {
  const Node& gone = at(node);
  Node& parent = at(gone.parent);
  const int32_t last = at(parent.child).prev;
  if (gone.next != kNone) at(gone.next).prev = gone.prev;
  if (parent.child == node) {
    parent.child = gone.next;
  } else {
    at(gone.prev).next = gone.next;
    if (last == node) at(parent.child).prev = gone.prev;
  }
}

void SuffixTrie::insert_before(int32_t node, int32_t before) {
  at(node).prev = at(before).prev;
  at(node).next = before;
  Node& parent = at(at(node).parent);
  if (parent.child == before) {
    parent.child = node;
  } else {
    at(at(before).prev).next = node;
  }
  at(before).prev = node;
}

void SuffixTrie::insert_after(int32_t node, int32_t after) {
  at(node).prev = after;
  at(node).next = at(after).next;
  const Node& parent = at(at(node).parent);
  at(at(after).next == kNone ? parent.child : at(after).next).prev = node;
  at(after).next = node;
}

void SuffixTrie::add_last(int32_t node) {
  Node& parent = at(at(node).parent);
  if (parent.child == kNone) {
    parent.child = node;
    at(node).prev = node;
    at(node).next = kNone;
    at(node).group = new_group(1, node);
    return;
  }
  const int32_t last = at(parent.child).prev;
  insert_after(node, last);
  if (group_of(last).count == 1) {
    at(node).group = at(last).group;
    group_of(node).last = node;
  } else {
    at(node).group = new_group(1, node);
  }
}

// `by` stands among the siblings where `node` stood, with its count.
void SuffixTrie::replace(int32_t node, int32_t by) {
  const Node old = at(node);
  Node& parent = at(old.parent);
  const bool only = old.prev == node;
  at(by).prev = only ? by : old.prev;
  at(by).next = old.next;
  at(by).group = old.group;
  Group& group = group_of(by);
  if (group.first == node) group.first = by;
  if (group.last == node) group.last = by;
  if (parent.child == node) {
    parent.child = by;
  } else {
    at(old.prev).next = by;
  }
  if (!only) at(old.next == kNone ? parent.child : old.next).prev = by;
}

// The group goes with its last member.
void SuffixTrie::leave_group(int32_t node) {
  Group& group = group_of(node);
  if (group.first == group.last) {
    free_group(at(node).group);
  } else if (group.first == node) {
    group.first = at(node).next;
  } else if (group.last == node) {
    group.last = at(node).prev;
  }
}

void SuffixTrie::raise(int32_t node) {
  const int32_t old = at(node).group;
  const Group group = groups_[static_cast<size_t>(old)];
  const int32_t above = at(at(node).parent).child == group.first ? kNone : at(group.first).prev;
  leave_group(node);
  if (group.first != node) {
    unlink(node);
    insert_before(node, group.first);
  }
  if (above != kNone && group_of(above).count == group.count + 1) {
    at(node).group = at(above).group;
    group_of(node).last = node;
  } else {
    at(node).group = new_group(group.count + 1, node);
  }
}

void SuffixTrie::lower(int32_t node) {
  const Group group = group_of(node);
  const int32_t below = at(group.last).next;
  leave_group(node);
  if (group.last != node) {
    unlink(node);
    insert_after(node, group.last);
  }
  if (below != kNone && group_of(below).count == group.count - 1) {
    at(node).group = at(below).group;
    group_of(node).first = node;
  } else {
    at(node).group = new_group(group.count - 1, node);
  }
}

void SuffixTrie::erase(int32_t node) {
  erase_slot(slot(at(node).parent, at(node).first));
  leave_group(node);
  unlink(node);
  free_node(node);
}

}  // namespace aerie
