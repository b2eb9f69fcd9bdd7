#include "grammar/automaton/automaton.h"

#include <algorithm>
#include <utility>

namespace aerie::grammar {
namespace {

size_t mix(size_t hash, size_t value) {
  hash ^= value + 0x9E3779B97F4A7C15u + (hash << 6) + (hash >> 2);
  return hash * 0xFF51AFD7ED558CCDu;
}

size_t hash_items(const std::vector<std::pair<uint32_t, const StackSet*>>& items, bool flag) {
  size_t hash = flag ? 1 : 2;
  for (const auto& [node, stacks] : items) {
    hash = mix(hash, node);
    hash = mix(hash, reinterpret_cast<size_t>(stacks) >> 4);
  }
  return hash;
}

}  // namespace

size_t StateTable::StackHash::operator()(const StackSet* set) const {
  return hash_items(set->frames, set->bottom);
}

bool StateTable::StackEqual::operator()(const StackSet* a, const StackSet* b) const {
  return a->bottom == b->bottom && a->frames == b->frames;
}

size_t StateTable::SetsHash::operator()(const std::vector<const StackSet*>& sets) const {
  size_t hash = sets.size();
  for (const StackSet* set : sets) hash = mix(hash, reinterpret_cast<size_t>(set) >> 4);
  return hash;
}

StateTable::StateTable(std::shared_ptr<const Program> program,
                       std::shared_ptr<const TokenTrie> trie)
    : program_(std::move(program)), trie_(std::move(trie)) {
  reached_.resize(program_->nodes.size());
  const std::lock_guard lock(mutex_);
  StackSet bottom;
  bottom.bottom = true;
  add(program_->start, intern(std::move(bottom)));
  start_ = close();
}

const StackSet* StateTable::intern(StackSet&& set) {
  const auto known = stack_ids_.find(&set);
  if (known != stack_ids_.end()) return known->second;
  for (const auto& [node, below] : set.frames) set.depth = std::max(set.depth, below->depth + 1);
  stacks_.push_back(std::move(set));
  const StackSet* stored = &stacks_.back();
  stack_ids_.emplace(stored, stored);
  bytes_ += sizeof(StackSet) + stored->frames.capacity() * sizeof(stored->frames[0]) + 48;
  return stored;
}

const StackSet* StateTable::unite(std::vector<const StackSet*> sets) {
  std::sort(sets.begin(), sets.end());
  sets.erase(std::unique(sets.begin(), sets.end()), sets.end());
  if (sets.size() == 1) return sets[0];
  const auto known = unions_.find(sets);
  if (known != unions_.end()) return known->second;
  const StackSet* result = unite(sets, {});
  bytes_ += sets.size() * sizeof(sets[0]) + 64;
  unions_.emplace(std::move(sets), result);
  return result;
}

// Below one node there is one set, so that sets stay as small as the rules are, however many stacks
// are in them.
const StackSet* StateTable::unite(const std::vector<const StackSet*>& sets, Frames frames) {
  StackSet all;
  for (const StackSet* set : sets) {
    all.bottom |= set->bottom;
    frames.insert(frames.end(), set->frames.begin(), set->frames.end());
  }
  std::sort(frames.begin(), frames.end());
  for (size_t i = 0; i < frames.size();) {
    std::vector<const StackSet*> below;
    const uint32_t node = frames[i].first;
    for (; i < frames.size() && frames[i].first == node; ++i) below.push_back(frames[i].second);
    all.frames.emplace_back(node, unite(std::move(below)));
  }
  return intern(std::move(all));
}

const StackSet* StateTable::import_stack(
    const StackSet* set, std::unordered_map<const StackSet*, const StackSet*>& known) {
  const auto entry = known.find(set);
  if (entry != known.end()) return entry->second;
  StackSet copy;
  copy.bottom = set->bottom;
  for (const auto& [node, below] : set->frames) {
    copy.frames.emplace_back(node, import_stack(below, known));
  }
  const StackSet* result = intern(std::move(copy));
  known.emplace(set, result);
  return result;
}

const State* StateTable::import(const State& state) {
  const std::lock_guard lock(mutex_);
  std::unordered_map<const StackSet*, const StackSet*> known;
  Items items;
  for (const auto& [node, stacks] : state.items) {
    items.emplace_back(node, import_stack(stacks, known));
  }
  return intern_state(std::move(items), state.complete);
}

const State* StateTable::intern_state(Items items, bool complete) {
  const size_t hash = hash_items(items, complete);
  const auto [first, last] = state_ids_.equal_range(hash);
  for (auto entry = first; entry != last; ++entry) {
    const State* state = entry->second;
    if (state->complete == complete && state->items == items) return state;
  }
  State& state = states_.emplace_back();
  state.items = std::move(items);
  state.complete = complete;
  const size_t classes = program_->class_byte.size();
  state.next = std::make_unique<std::atomic<const State*>[]>(classes);
  state_ids_.emplace(hash, &state);
  bytes_ += sizeof(State) + state.items.capacity() * sizeof(state.items[0]) +
            classes * sizeof(void*) + 64;
  return &state;
}

StateTable::Reached& StateTable::reach(uint32_t node, std::vector<uint32_t>& queue) {
  Reached& reached = reached_[node];
  if (!reached.touched) touched_.push_back(node);
  if (!reached.queued) queue.push_back(node);
  reached.touched = reached.queued = true;
  return reached;
}

void StateTable::add(uint32_t node, const StackSet* stacks) {
  // Some other way is short enough: each state has one that fits.
  if (stacks->depth + program_->nodes[node].height > kMaxDepth) return;
  if (reached_[node].stacks != stacks) reach(node, todo_).more.push_back(stacks);
}

void StateTable::call(const Edge& edge, const StackSet* stacks) {
  if (edge.tail) return add(edge.start, stacks);
  const int depth = stacks->depth + 1;
  if (stacks->depth + program_->nodes[edge.target].height > kMaxDepth ||
      depth + program_->nodes[edge.start].height > kMaxDepth) {
    return;
  }
  reach(edge.start, called_).frames.emplace_back(edge.target, stacks);
}

void StateTable::expand(uint32_t node) {
  Reached& reached = reached_[node];
  reached.queued = false;
  if (reached.stacks != nullptr) reached.more.push_back(reached.stacks);
  const StackSet* stacks = reached.frames.empty() ? unite(std::exchange(reached.more, {}))
                                                  : unite(std::exchange(reached.more, {}),
                                                          std::exchange(reached.frames, {}));
  if (stacks == reached.stacks) return;
  reached.stacks = stacks;
  const Program::Node& at = program_->nodes[node];
  const Edge* edge = program_->edges.data() + at.first_edge + at.byte_edges;
  for (uint32_t i = 0; i < at.other_edges; ++i, ++edge) {
    if (edge->kind == Edge::Kind::kEmpty) {
      add(edge->target, stacks);
    } else {
      call(*edge, stacks);
    }
  }
  if (!at.final) return;
  complete_ |= stacks->bottom;
  for (const auto& [back, below] : stacks->frames) add(back, below);
}

const State* StateTable::close() {
  while (!todo_.empty() || !called_.empty()) {
    std::vector<uint32_t>& queue = todo_.empty() ? called_ : todo_;
    const uint32_t node = queue.back();
    queue.pop_back();
    expand(node);
  }
  Items items;
  std::sort(touched_.begin(), touched_.end());
  for (const uint32_t node : touched_) {
    if (program_->nodes[node].byte_edges > 0) items.emplace_back(node, reached_[node].stacks);
    reached_[node] = {};
  }
  touched_.clear();
  const State* state = intern_state(std::move(items), complete_);
  complete_ = false;
  return state;
}

const State* StateTable::compute_step(const State& state, uint8_t byte_class) {
  const std::lock_guard lock(mutex_);
  auto& next = state.next[byte_class];
  if (const State* known = next.load(std::memory_order_relaxed)) return known;
  const uint8_t byte = program_->class_byte[byte_class];
  for (const auto& [node, stacks] : state.items) {
    const Program::Node& at = program_->nodes[node];
    const Edge* edge = program_->edges.data() + at.first_edge;
    for (uint32_t i = 0; i < at.byte_edges; ++i, ++edge) {
      if (edge->first <= byte && byte <= edge->last) add(edge->target, stacks);
    }
  }
  const State* result = close();
  next.store(result, std::memory_order_release);
  return result;
}

const State* StateTable::step(const State& state, uint8_t byte) {
  const uint8_t byte_class = program_->byte_class[byte];
  const State* known = state.next[byte_class].load(std::memory_order_acquire);
  return known != nullptr ? known : compute_step(state, byte_class);
}

bool StateTable::takes(const State& state, std::string_view bytes) {
  const State* at = &state;
  for (const char byte : bytes) {
    at = step(*at, static_cast<uint8_t>(byte));
    if (at->dead()) return false;
  }
  return true;
}

const uint64_t* StateTable::mask(const State& state) {
  if (const uint64_t* known = state.mask.load(std::memory_order_acquire)) return known;
  std::vector<uint64_t> bits((static_cast<size_t>(trie_->vocab_size()) + 63) / 64, 0);
  const auto& nodes = trie_->nodes();
  const auto& tokens = trie_->tokens();
  std::vector<const State*> path(static_cast<size_t>(trie_->max_depth()) + 1, &state);
  for (size_t i = 0; i + 1 < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    const State* at = step(*path[node.depth - size_t{1}], node.byte);
    if (at->dead()) {
      i = node.after;
      continue;
    }
    path[node.depth] = at;
    ++i;
    for (uint32_t token = node.first_token; token < nodes[i].first_token; ++token) {
      const auto id = static_cast<size_t>(tokens[token]);
      bits[id / 64] |= uint64_t{1} << id % 64;
    }
  }
  const std::lock_guard lock(mutex_);
  if (const uint64_t* known = state.mask.load(std::memory_order_relaxed)) return known;
  bytes_ += bits.size() * sizeof(uint64_t);
  masks_.push_back(std::move(bits));
  state.mask.store(masks_.back().data(), std::memory_order_release);
  return masks_.back().data();
}

std::string StateTable::forced(const State& state) {
  constexpr size_t kMaxForced = 64;
  std::string bytes;
  for (const State* at = &state; bytes.size() < kMaxForced && !at->complete;) {
    int found = -1;
    for (const auto& [node, stacks] : at->items) {
      const Program::Node& from = program_->nodes[node];
      for (uint32_t i = 0; i < from.byte_edges; ++i) {
        const Edge& edge = program_->edges[from.first_edge + i];
        if (edge.first != edge.last || (found >= 0 && found != edge.first)) return bytes;
        found = edge.first;
      }
    }
    if (found < 0) return bytes;
    // The limit of depth may leave nothing of a node: then there is no such byte.
    const State* next = step(*at, static_cast<uint8_t>(found));
    if (next->dead()) return bytes;
    bytes.push_back(static_cast<char>(found));
    at = next;
  }
  return bytes;
}

}  // namespace aerie::grammar
