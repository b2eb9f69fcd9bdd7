#include "grammar/automaton.h"

#include <algorithm>
#include <tuple>

namespace aerie {

Automaton::Automaton(const GrammarGraph& graph)
    : graph_(graph), classes_(graph.class_bytes.size()) {
  frames_.emplace_back();
  std::vector<Stack> none;
  intern(none, false);  // kDead
  std::fill(steps_.begin(), steps_.end(), kDead);
  std::vector<Stack> stacks = {{graph.start, kNoFrame}};
  const bool complete = close(stacks);
  start_ = intern(stacks, complete);
}

uint32_t Automaton::push(uint32_t back_to, uint32_t below) {
  const auto [found, added] =
      frame_ids_.try_emplace({back_to, below}, static_cast<uint32_t>(frames_.size()));
  if (added) {
    frames_.push_back({back_to, below});
    memory_ += 64;
  }
  return found->second;
}

void Automaton::expand(Stack stack, std::vector<Stack>& todo, bool& complete) {
  const GrammarGraph::Node& node = graph_.nodes[stack.node];
  const GrammarGraph::Node& next = graph_.nodes[stack.node + 1];
  for (uint32_t i = node.free; i < next.free; ++i) {
    todo.push_back({graph_.free_edges[i], stack.frame});
  }
  for (uint32_t i = node.calls; i < next.calls; ++i) {
    const GrammarGraph::CallEdge& call = graph_.call_edges[i];
    todo.push_back({call.start, call.tail ? stack.frame : push(call.back_to, stack.frame)});
  }
  if (!node.end) return;
  if (stack.frame == kNoFrame) {
    complete = true;
  } else {
    todo.push_back({frames_[stack.frame].back_to, frames_[stack.frame].below});
  }
}

bool Automaton::close(std::vector<Stack>& stacks) {
  bool complete = false;
  std::vector<Stack> todo;
  todo.swap(stacks);
  std::reverse(todo.begin(), todo.end());
  if (++round_ == 0 || seen_.size() > 100'000) {
    seen_.clear();
    round_ = 1;
  }
  while (!todo.empty()) {
    const Stack stack = todo.back();
    todo.pop_back();
    uint32_t& mark = seen_[stack];
    if (mark == round_) continue;
    mark = round_;
    expand(stack, todo, complete);
    const bool waits = graph_.nodes[stack.node].bytes < graph_.nodes[stack.node + 1].bytes;
    if (waits && stacks.size() < kMaxStacks) stacks.push_back(stack);
  }
  return complete;
}

Automaton::State Automaton::intern(std::vector<Stack>& stacks, bool complete) {
  std::sort(stacks.begin(), stacks.end(), [](const Stack& a, const Stack& b) {
    return std::tie(a.node, a.frame) < std::tie(b.node, b.frame);
  });
  uint64_t hash = complete ? 1 : 2;
  for (const Stack& stack : stacks) {
    hash = (hash ^ stack.node) * 0x9E3779B97F4A7C15u;
    hash = ((hash ^ (hash >> 29)) ^ stack.frame) * 0xBF58476D1CE4E5B9u;
    hash ^= hash >> 32;
  }
  const auto [begin, end] = state_ids_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    const StateData& data = states_[it->second];
    if (data.complete == complete && data.count == stacks.size() &&
        std::equal(stacks.begin(), stacks.end(), stacks_.begin() + data.first)) {
      return it->second;
    }
  }
  const State made = static_cast<State>(states_.size());
  states_.push_back(
      {static_cast<uint32_t>(stacks_.size()), static_cast<uint32_t>(stacks.size()), complete});
  stacks_.insert(stacks_.end(), stacks.begin(), stacks.end());
  steps_.resize(steps_.size() + classes_, kUnknown);
  state_ids_.emplace(hash, made);
  memory_ += 64 + stacks.size() * sizeof(Stack);
  return made;
}

Automaton::State Automaton::add_step(State state, uint8_t byte) {
  std::vector<Stack> stacks;
  const StateData data = states_[state];
  for (uint32_t i = 0; i < data.count; ++i) {
    const Stack stack = stacks_[data.first + i];
    const uint32_t end = graph_.nodes[stack.node + 1].bytes;
    for (uint32_t edge = graph_.nodes[stack.node].bytes; edge < end; ++edge) {
      const GrammarGraph::ByteEdge& it = graph_.byte_edges[edge];
      if (it.first <= byte && byte <= it.last) stacks.push_back({it.to, stack.frame});
    }
  }
  State next = kDead;
  if (!stacks.empty()) {
    const bool complete = close(stacks);
    next = intern(stacks, complete);
  }
  steps_[state * classes_ + graph_.class_of[byte]] = next;
  return next;
}

int Automaton::only_byte(State state) const {
  int only = -1;
  const StateData& data = states_[state];
  for (uint32_t i = 0; i < data.count; ++i) {
    const Stack& stack = stacks_[data.first + i];
    const uint32_t end = graph_.nodes[stack.node + 1].bytes;
    for (uint32_t edge = graph_.nodes[stack.node].bytes; edge < end; ++edge) {
      const GrammarGraph::ByteEdge& it = graph_.byte_edges[edge];
      if (it.first != it.last || (only >= 0 && only != it.first)) return -1;
      only = it.first;
    }
  }
  return only;
}

const ByteSet& Automaton::loops(State state) {
  const auto [found, added] = loops_.try_emplace(state);
  if (!added) return found->second;
  memory_ += 64;
  for (int byte = 0; byte < 256; ++byte) {
    found->second[byte] = step(state, static_cast<uint8_t>(byte)) == state;
  }
  return found->second;
}

Automaton::State Automaton::import(const Automaton& other, State state) {
  const StateData& data = other.states_[state];
  std::vector<Stack> stacks;
  for (uint32_t i = 0; i < data.count; ++i) {
    const Stack& stack = other.stacks_[data.first + i];
    std::vector<uint32_t> path;
    for (uint32_t frame = stack.frame; frame != kNoFrame; frame = other.frames_[frame].below) {
      path.push_back(other.frames_[frame].back_to);
    }
    uint32_t frame = kNoFrame;
    for (size_t k = path.size(); k-- > 0;) frame = push(path[k], frame);
    stacks.push_back({stack.node, frame});
  }
  return intern(stacks, data.complete);
}

}  // namespace aerie
