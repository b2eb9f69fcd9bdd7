// The program's run: states are sets of (node, stacks), made as they are needed and kept.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/automaton/grammar_program.h"
#include "grammar/automaton/token_trie.h"

namespace aerie::grammar {

// A set of stacks, as a tree by what they have on top; equal sets are one object.
struct StackSet {
  // Where the rule on top returns to, and what lies below; ascending.
  std::vector<std::pair<uint32_t, const StackSet*>> frames;
  bool bottom = false;  // whether the empty stack is in it
  int depth = 0;        // of the deepest
};

// What all outputs so far with the same continuations have in common. Immutable but for what is
// filled in: transitions and the mask.
struct State {
  std::vector<std::pair<uint32_t, const StackSet*>> items;  // nodes with byte edges; ascending
  bool complete = false;                                    // the output may end here
  bool dead() const { return items.empty() && !complete; }

  std::unique_ptr<std::atomic<const State*>[]> next;  // by byte class; null: not known yet
  mutable std::atomic<const uint64_t*> mask{nullptr};
};

// States and what belongs to them. Thread-safe: what is known is read without a lock.
class StateTable {
 public:
  StateTable(std::shared_ptr<const Program> program, std::shared_ptr<const TokenTrie> trie);

  const State* start() const { return start_; }
  // The state of another table of the same program.
  const State* import(const State& state);

  const State* step(const State& state, uint8_t byte);
  // One bit for each token of the trie: whether its bytes may come next.
  const uint64_t* mask(const State& state);
  // Whether the bytes may come next.
  bool takes(const State& state, std::string_view bytes);
  std::string forced(const State& state);

  // Whether it has grown past what one is meant to hold.
  bool full() const { return bytes_.load(std::memory_order_relaxed) > kMaxBytes; }

 private:
  // A mask or an advance goes on past it, which is why it is no hard limit.
  static constexpr size_t kMaxBytes = size_t{64} << 20;

  struct StackHash {
    size_t operator()(const StackSet* set) const;
  };
  struct StackEqual {
    bool operator()(const StackSet* a, const StackSet* b) const;
  };
  using Items = std::vector<std::pair<uint32_t, const StackSet*>>;
  using Frames = decltype(StackSet::frames);
  struct SetsHash {
    size_t operator()(const std::vector<const StackSet*>& sets) const;
  };

  const State* compute_step(const State& state, uint8_t byte_class);
  // Requires the lock, as all below.
  const StackSet* intern(StackSet&& set);
  const StackSet* unite(std::vector<const StackSet*> sets);
  // All stacks of the sets, and those with the frames on top.
  const StackSet* unite(const std::vector<const StackSet*>& sets, Frames frames);
  const StackSet* import_stack(const StackSet* set,
                               std::unordered_map<const StackSet*, const StackSet*>& known);
  const State* intern_state(Items items, bool complete);
  // What a closure has reached of a node: the stacks that it was expanded with, and what came
  // since.
  struct Reached {
    const StackSet* stacks = nullptr;
    std::vector<const StackSet*> more;
    Frames frames;
    bool touched = false;
    bool queued = false;
  };
  Reached& reach(uint32_t node, std::vector<uint32_t>& queue);
  void add(uint32_t node, const StackSet* stacks);
  void expand(uint32_t node);
  void call(const Edge& edge, const StackSet* stacks);
  // The state that what was add()ed leads to.
  const State* close();

  const std::shared_ptr<const Program> program_;
  const std::shared_ptr<const TokenTrie> trie_;
  const State* start_ = nullptr;
  std::atomic<size_t> bytes_{0};

  std::mutex mutex_;
  std::deque<StackSet> stacks_;
  std::unordered_map<const StackSet*, const StackSet*, StackHash, StackEqual> stack_ids_;
  std::unordered_map<std::vector<const StackSet*>, const StackSet*, SetsHash> unions_;
  std::deque<State> states_;
  std::unordered_multimap<size_t, const State*> state_ids_;
  std::deque<std::vector<uint64_t>> masks_;
  // Of the closure that is being computed.
  std::vector<Reached> reached_;  // by node
  // Rules that are called wait until nothing else is to be done, so that all their callers are
  // known by then.
  std::vector<uint32_t> touched_, todo_, called_;
  bool complete_ = false;
};

}  // namespace aerie::grammar
