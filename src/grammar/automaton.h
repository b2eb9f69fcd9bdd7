// The push-down automaton of a grammar, made deterministic as far as it is walked.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/grammar_graph.h"

namespace aerie {

// A state is a set of stacks of places in the graph, one for each way to read the text so far;
// equal sets are the same number. States and steps between them are kept as they are met. Not
// thread-safe. The graph must outlive it.
class Automaton {
 public:
  using State = uint32_t;
  static constexpr State kDead = 0;
  // Readings of one text that are followed at once. A grammar so ambiguous that there are more
  // loses some: what it still allows matches, but it no longer allows all that would.
  static constexpr size_t kMaxStacks = 1024;

  explicit Automaton(const GrammarGraph& graph);

  State start() const { return start_; }
  // kDead if nothing that the grammar matches goes on with this byte.
  State step(State state, uint8_t byte) {
    const uint32_t next = steps_[state * classes_ + graph_.class_of[byte]];
    return next != kUnknown ? next : add_step(state, byte);
  }
  // Whether the text so far is a match.
  bool complete(State state) const { return states_[state].complete; }
  // The one byte that can follow, or -1.
  int only_byte(State state) const;
  // The bytes that lead back to the state. The reference lasts until the next call.
  const ByteSet& loops(State state);

  // A state of another automaton of the same graph.
  State import(const Automaton& other, State state);
  // About what it occupies.
  size_t bytes() const { return memory_ + steps_.size() * sizeof(uint32_t); }

 private:
  static constexpr uint32_t kUnknown = UINT32_MAX;
  static constexpr uint32_t kNoFrame = 0;
  struct Frame {
    uint32_t back_to = 0;
    uint32_t below = kNoFrame;
  };
  struct Stack {
    uint32_t node = 0;
    uint32_t frame = kNoFrame;
    bool operator==(const Stack&) const = default;
  };
  struct StateData {
    uint32_t first = 0;  // of its stacks
    uint32_t count = 0;
    bool complete = false;
  };
  struct StackHash {
    size_t operator()(const Stack& stack) const {
      const uint64_t key = (uint64_t{stack.node} << 32) | stack.frame;
      return static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> 16);
    }
  };

  State add_step(State state, uint8_t byte);
  // Follows what reads nothing; `stacks` are left those that wait for a byte. Whether one ended.
  bool close(std::vector<Stack>& stacks);
  void expand(Stack stack, std::vector<Stack>& todo, bool& complete);
  uint32_t push(uint32_t back_to, uint32_t below);
  State intern(std::vector<Stack>& stacks, bool complete);

  const GrammarGraph& graph_;
  size_t classes_ = 0;
  State start_ = kDead;
  std::vector<Frame> frames_;
  std::unordered_map<Stack, uint32_t, StackHash> frame_ids_;
  std::vector<StateData> states_;
  std::vector<Stack> stacks_;
  std::unordered_multimap<uint64_t, State> state_ids_;
  std::vector<uint32_t> steps_;
  std::unordered_map<State, ByteSet> loops_;
  size_t memory_ = 0;

  // Of close(): stacks that were reached, marked with the round's number.
  std::unordered_map<Stack, uint32_t, StackHash> seen_;
  uint32_t round_ = 0;
};

}  // namespace aerie
