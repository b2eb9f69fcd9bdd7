// The program's run: states are sets of (node, stacks), made as they are needed and kept.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/automaton/effort.h"
#include "grammar/automaton/grammar_program.h"
#include "grammar/automaton/shared_bytes.h"
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

// States and what belongs to them. Thread-safe: what is known is read without a lock, and only what
// is not known takes effort. Where that has ended, before or on the way, the answer is none.
class StateTable {
 public:
  // Holds no more than `max_bytes`, and of `shared` (may be null) what it grants.
  StateTable(std::shared_ptr<const Program> program, std::shared_ptr<const TokenTrie> trie,
             size_t max_bytes, std::shared_ptr<SharedBytes> shared);
  ~StateTable();
  StateTable(const StateTable&) = delete;
  StateTable& operator=(const StateTable&) = delete;

  const State* start(Effort& effort);
  // The state of another table of the same program.
  const State* import(const State& state, Effort& effort);

  const State* step(const State& state, uint8_t byte, Effort& effort);
  // One bit for each token of the trie: whether its bytes may come next.
  const uint64_t* mask(const State& state, Effort& effort);
  // Whether the bytes may come next.
  std::optional<bool> takes(const State& state, std::string_view bytes, Effort& effort);
  // As far as the effort goes.
  std::string forced(const State& state, Effort& effort);

  // Whether there is no room for more. What is known remains so.
  bool full() const {
    const size_t bytes = this->bytes();
    return bytes > max_bytes_ || (shared_ != nullptr && !shared_->may_grow(bytes));
  }
  size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  // Gives back what `shared` granted, ahead of being destroyed. For its last user; nothing may be
  // asked of it any more.
  void leave_shared();

 private:
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

  // The lock, and while it is held the effort that is spent. False: others have it.
  class Turn;
  const State* compute_step(const State& state, uint8_t byte_class, Effort& effort);
  void hold(size_t bytes);
  // Requires the lock, as all below. Whether the effort goes on; bytes that are not held for long
  // are let go by close(). Once it does not, what is made is of no use and is not kept.
  bool spend(size_t steps, size_t scratch_bytes);
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
  void drop_scratch();
  // The state that what was add()ed leads to; null if the effort has ended.
  const State* close();

  const std::shared_ptr<const Program> program_;
  const std::shared_ptr<const TokenTrie> trie_;
  const size_t max_bytes_;
  std::shared_ptr<SharedBytes> shared_;
  std::atomic<const State*> start_ = nullptr;
  std::atomic<size_t> bytes_{0};

  std::mutex mutex_;
  Effort* effort_ = nullptr;  // of the turn under way
  bool over_ = false;         // it has ended
  size_t scratch_bytes_ = 0;
  const StackSet* bottom_ = nullptr;  // the empty stack alone
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
