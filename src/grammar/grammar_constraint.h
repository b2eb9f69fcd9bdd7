// The compiled grammar, and where a sequence stands in it.
#pragma once

#include <memory>
#include <mutex>

#include "grammar/automaton/automaton.h"
#include "grammar/grammar.h"

namespace aerie {

class Grammar {
 public:
  Grammar(grammar::Program program, std::shared_ptr<const TokenTrie> trie);

  const TokenTrie& trie() const { return *trie_; }
  // The newest, which is made anew when it is full; who holds an old one may go on with it, and
  // takes its state along to this one when it next can.
  std::shared_ptr<grammar::StateTable> table() const;

 private:
  const std::shared_ptr<const grammar::Program> program_;
  const std::shared_ptr<const TokenTrie> trie_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<grammar::StateTable> table_;
};

}  // namespace aerie
