// A grammar that was compiled: its program, and the states that are known of it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string_view>

#include "aerie/grammar.h"
#include "base/status.h"
#include "grammar/automaton/automaton.h"
#include "grammar/grammar_pool.h"

namespace aerie {

// Thread-safe.
class Grammar {
 public:
  // A state, and the table that keeps it.
  struct Place {
    std::shared_ptr<grammar::StateTable> table;
    const grammar::State* state = nullptr;
  };

  // What one question may cost: about half a second of a slow core.
  static constexpr uint64_t kMaxSteps = 20'000'000;
  static constexpr size_t kMaxBytes = size_t{64} << 20;

  // `spec` is what the program was made of. `pool` (may be null) lends it memory, and destroys it.
  Grammar(GrammarSpec spec, grammar::Program program, std::shared_ptr<const TokenTrie> trie,
          std::shared_ptr<GrammarPool> pool);
  ~Grammar();
  Grammar(const Grammar&) = delete;
  Grammar& operator=(const Grammar&) = delete;

  const GrammarSpec& spec() const { return spec_; }
  const TokenTrie& trie() const { return *trie_; }
  // Before anything else, once: where outputs begin, with what may come there.
  Status open(grammar::Effort& effort);
  Place start() const;

  // Makes the mask of a place; moves the place by bytes that may come. Both may take the place to
  // another table: what is full is begun afresh, once. Errors say what was too much, or kCancelled
  // if the effort was stopped; then the place is as it was or, of walk(), on the way.
  Status make_mask(Place& place, grammar::Effort& effort) const;
  Status walk(Place& place, std::string_view bytes, grammar::Effort& effort) const;

  // Of specification, program, states and masks, without tables that only those hold who began with
  // them.
  size_t bytes() const;

  // Whether a mask has turned out to be more than little work.
  std::atomic<bool>& is_heavy() const { return is_heavy_; }

 private:
  std::shared_ptr<grammar::StateTable> make_table() const;
  Status begin_afresh(grammar::Effort& effort) const;
  Status move_on(Place& place, bool& renewed, grammar::Effort& effort) const;
  Status problem(const grammar::Effort& effort) const;

  const GrammarSpec spec_;
  const std::shared_ptr<const grammar::Program> program_;
  const std::shared_ptr<const TokenTrie> trie_;
  const std::shared_ptr<GrammarPool> pool_;
  const size_t own_bytes_;  // of specification and program
  const size_t max_bytes_;
  mutable std::atomic<bool> is_heavy_ = false;
  mutable std::mutex mutex_;
  mutable Place start_;  // of the newest table
};

}  // namespace aerie
