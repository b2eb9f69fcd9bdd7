#include "grammar/automaton/automaton.h"

#include <algorithm>
#include <utility>

namespace aerie::grammar {
namespace {

// What the allocator and a hash table take beside what is asked for.
constexpr size_t kBlockBytes = 16;
constexpr size_t kNodeBytes = 64;

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

class StateTable::Turn {
 public:
  Turn(StateTable& table, Effort& effort) : table_(table), lock_(table.mutex_, std::defer_lock) {
    if (effort.waits()) {
      lock_.lock();
    } else if (!lock_.try_lock()) {
      effort.end(Effort::End::kBusy);
      return;
    }
    table_.effort_ = &effort;
    table_.over_ = false;
    table_.scratch_bytes_ = 0;
    // Of a turn that an exception ended.
    if (!table_.touched_.empty()) table_.drop_scratch();
  }
  ~Turn() {
    if (lock_.owns_lock()) table_.effort_ = nullptr;
  }
  explicit operator bool() const { return lock_.owns_lock(); }

 private:
  StateTable& table_;
  std::unique_lock<std::mutex> lock_;
};

StateTable::StateTable(std::shared_ptr<const Program> program,
                       std::shared_ptr<const TokenTrie> trie, size_t max_bytes,
                       std::shared_ptr<SharedBytes> shared)
    : program_(std::move(program)),
      trie_(std::move(trie)),
      max_bytes_(max_bytes),
      shared_(std::move(shared)) {
  if (shared_ != nullptr) shared_->enter();
  reached_.resize(program_->nodes.size());
  hold(reached_.size() * sizeof(reached_[0]));
  const std::lock_guard lock(mutex_);
  StackSet bottom;
  bottom.bottom = true;
  bottom_ = intern(std::move(bottom));
}

StateTable::~StateTable() {
  leave_shared();
}

void StateTable::leave_shared() {
  if (shared_ != nullptr) shared_->leave(bytes());
  shared_ = nullptr;
}

void StateTable::hold(size_t bytes) {
  bytes_.fetch_add(bytes, std::memory_order_relaxed);
  if (shared_ != nullptr) shared_->add(bytes);
}

bool StateTable::spend(size_t steps, size_t scratch_bytes) {
  if (over_) return false;
  scratch_bytes_ += scratch_bytes;
  over_ = !effort_->spend(steps);
  if (!over_ && (bytes() + scratch_bytes_ > max_bytes_ || full())) {
    effort_->end(Effort::End::kFull);
    over_ = true;
  }
  return !over_;
}

const State* StateTable::start(Effort& effort) {
  if (const State* known = start_.load(std::memory_order_acquire)) return known;
  const Turn turn(*this, effort);
  if (!turn) return nullptr;
  add(program_->start, bottom_);
  const State* state = close();
  if (state != nullptr) start_.store(state, std::memory_order_release);
  return state;
}

const StackSet* StateTable::intern(StackSet&& set) {
  const auto known = stack_ids_.find(&set);
  if (known != stack_ids_.end()) return known->second;
  for (const auto& [node, below] : set.frames) set.depth = std::max(set.depth, below->depth + 1);
  stacks_.push_back(std::move(set));
  const StackSet* stored = &stacks_.back();
  stack_ids_.emplace(stored, stored);
  hold(sizeof(StackSet) + kNodeBytes + kBlockBytes +
       stored->frames.capacity() * sizeof(stored->frames[0]));
  return stored;
}

const StackSet* StateTable::unite(std::vector<const StackSet*> sets) {
  if (!spend(sets.size(), 0)) return bottom_;
  std::sort(sets.begin(), sets.end());
  sets.erase(std::unique(sets.begin(), sets.end()), sets.end());
  if (sets.size() == 1) return sets[0];
  const auto known = unions_.find(sets);
  if (known != unions_.end()) return known->second;
  const StackSet* result = unite(sets, {});
  if (over_) return bottom_;
  hold(sets.capacity() * sizeof(sets[0]) + kNodeBytes + kBlockBytes);
  unions_.emplace(std::move(sets), result);
  return result;
}

// Below one node there is one set, so that sets stay as small as the rules are, however many stacks
// are in them.
const StackSet* StateTable::unite(const std::vector<const StackSet*>& sets, Frames frames) {
  size_t count = frames.size();
  for (const StackSet* set : sets) count += set->frames.size();
  if (!spend(sets.size() + 2 * count, 2 * count * sizeof(Frames::value_type))) return bottom_;
  frames.reserve(count);
  StackSet all;
  for (const StackSet* set : sets) {
    all.bottom |= set->bottom;
    frames.insert(frames.end(), set->frames.begin(), set->frames.end());
  }
  std::sort(frames.begin(), frames.end());
  for (size_t i = 0; i < frames.size() && !over_;) {
    std::vector<const StackSet*> below;
    const uint32_t node = frames[i].first;
    for (; i < frames.size() && frames[i].first == node; ++i) below.push_back(frames[i].second);
    all.frames.emplace_back(node, unite(std::move(below)));
  }
  return over_ ? bottom_ : intern(std::move(all));
}

const StackSet* StateTable::import_stack(
    const StackSet* set, std::unordered_map<const StackSet*, const StackSet*>& known) {
  const auto entry = known.find(set);
  if (entry != known.end()) return entry->second;
  if (!spend(1 + set->frames.size(), kNodeBytes)) return bottom_;
  StackSet copy;
  copy.bottom = set->bottom;
  copy.frames.reserve(set->frames.size());
  for (const auto& [node, below] : set->frames) {
    copy.frames.emplace_back(node, import_stack(below, known));
  }
  if (over_) return bottom_;
  const StackSet* result = intern(std::move(copy));
  known.emplace(set, result);
  return result;
}

const State* StateTable::import(const State& state, Effort& effort) {
  const Turn turn(*this, effort);
  if (!turn) return nullptr;
  std::unordered_map<const StackSet*, const StackSet*> known;
  Items items;
  if (spend(state.items.size(), state.items.size() * sizeof(state.items[0]))) {
    for (const auto& [node, stacks] : state.items) {
      items.emplace_back(node, import_stack(stacks, known));
    }
  }
  return over_ ? nullptr : intern_state(std::move(items), state.complete);
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
  hold(sizeof(State) + state.items.capacity() * sizeof(state.items[0]) + classes * sizeof(void*) +
       kNodeBytes + 2 * kBlockBytes);
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
  if (reached_[node].stacks == stacks || !spend(1, 2 * sizeof(stacks))) return;
  reach(node, todo_).more.push_back(stacks);
}

void StateTable::call(const Edge& edge, const StackSet* stacks) {
  if (edge.tail) return add(edge.start, stacks);
  const int depth = stacks->depth + 1;
  if (stacks->depth + program_->nodes[edge.target].height > kMaxDepth ||
      depth + program_->nodes[edge.start].height > kMaxDepth) {
    return;
  }
  if (!spend(1, 2 * sizeof(Frames::value_type))) return;
  reach(edge.start, called_).frames.emplace_back(edge.target, stacks);
}

void StateTable::expand(uint32_t node) {
  Reached& reached = reached_[node];
  reached.queued = false;
  if (reached.stacks != nullptr) reached.more.push_back(reached.stacks);
  const StackSet* stacks = reached.frames.empty() ? unite(std::exchange(reached.more, {}))
                                                  : unite(std::exchange(reached.more, {}),
                                                          std::exchange(reached.frames, {}));
  if (over_ || stacks == reached.stacks) return;
  reached.stacks = stacks;
  const Program::Node& at = program_->nodes[node];
  if (!spend(at.other_edges + stacks->frames.size(), 0)) return;
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

void StateTable::drop_scratch() {
  todo_.clear();
  called_.clear();
  for (const uint32_t node : touched_) reached_[node] = {};
  touched_.clear();
  complete_ = false;
}

const State* StateTable::close() {
  while (!over_ && (!todo_.empty() || !called_.empty())) {
    std::vector<uint32_t>& queue = todo_.empty() ? called_ : todo_;
    const uint32_t node = queue.back();
    queue.pop_back();
    expand(node);
  }
  spend(2 * touched_.size(), touched_.size() * sizeof(Items::value_type));
  Items items;
  std::sort(touched_.begin(), touched_.end());
  for (const uint32_t node : touched_) {
    if (!over_ && program_->nodes[node].byte_edges > 0) {
      items.emplace_back(node, reached_[node].stacks);
    }
  }
  const bool complete = complete_;
  drop_scratch();
  if (over_) return nullptr;
  items.shrink_to_fit();
  return intern_state(std::move(items), complete);
}

const State* StateTable::compute_step(const State& state, uint8_t byte_class, Effort& effort) {
  const Turn turn(*this, effort);
  if (!turn) return nullptr;
  auto& next = state.next[byte_class];
  if (const State* known = next.load(std::memory_order_relaxed)) return known;
  const uint8_t byte = program_->class_byte[byte_class];
  for (const auto& [node, stacks] : state.items) {
    const Program::Node& at = program_->nodes[node];
    if (!spend(1 + at.byte_edges, 0)) break;
    const Edge* edge = program_->edges.data() + at.first_edge;
    for (uint32_t i = 0; i < at.byte_edges; ++i, ++edge) {
      if (edge->first <= byte && byte <= edge->last) add(edge->target, stacks);
    }
  }
  const State* result = close();
  if (result != nullptr) next.store(result, std::memory_order_release);
  return result;
}

const State* StateTable::step(const State& state, uint8_t byte, Effort& effort) {
  const uint8_t byte_class = program_->byte_class[byte];
  const State* known = state.next[byte_class].load(std::memory_order_acquire);
  return known != nullptr ? known : compute_step(state, byte_class, effort);
}

std::optional<bool> StateTable::takes(const State& state, std::string_view bytes, Effort& effort) {
  const State* at = &state;
  for (const char byte : bytes) {
    at = step(*at, static_cast<uint8_t>(byte), effort);
    if (at == nullptr) return std::nullopt;
    if (at->dead()) return false;
  }
  return true;
}

const uint64_t* StateTable::mask(const State& state, Effort& effort) {
  if (const uint64_t* known = state.mask.load(std::memory_order_acquire)) return known;
  std::vector<uint64_t> bits((static_cast<size_t>(trie_->vocab_size()) + 63) / 64, 0);
  const auto& nodes = trie_->nodes();
  const auto& tokens = trie_->tokens();
  std::vector<const State*> path(static_cast<size_t>(trie_->max_depth()) + 1, &state);
  for (size_t i = 0; i + 1 < nodes.size();) {
    if (!effort.spend()) return nullptr;
    const TokenTrie::Node& node = nodes[i];
    const State* at = step(*path[node.depth - size_t{1}], node.byte, effort);
    if (at == nullptr) return nullptr;
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
  const Turn turn(*this, effort);
  if (!turn) return nullptr;
  if (const uint64_t* known = state.mask.load(std::memory_order_relaxed)) return known;
  const size_t bytes = bits.size() * sizeof(bits[0]);
  if (!spend(bits.size(), bytes)) return nullptr;
  hold(bytes + sizeof(bits) + kBlockBytes);
  masks_.push_back(std::move(bits));
  state.mask.store(masks_.back().data(), std::memory_order_release);
  return masks_.back().data();
}

std::string StateTable::forced(const State& state, Effort& effort) {
  constexpr size_t kMaxForced = 64;
  std::string bytes;
  for (const State* at = &state; bytes.size() < kMaxForced && !at->complete;) {
    if (!effort.spend(1 + at->items.size())) return bytes;
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
    const State* next = step(*at, static_cast<uint8_t>(found), effort);
    if (next == nullptr || next->dead()) return bytes;
    bytes.push_back(static_cast<char>(found));
    at = next;
  }
  return bytes;
}

}  // namespace aerie::grammar
