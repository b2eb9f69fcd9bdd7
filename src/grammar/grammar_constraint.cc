#include "grammar/grammar_constraint.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>

namespace aerie {

using grammar::Program;
using grammar::State;
using grammar::StateTable;

Grammar::Grammar(Program program, std::shared_ptr<const TokenTrie> trie)
    : program_(std::make_shared<const Program>(std::move(program))),
      trie_(std::move(trie)),
      table_(std::make_shared<StateTable>(program_, trie_)) {}

std::shared_ptr<StateTable> Grammar::table() const {
  const std::lock_guard lock(mutex_);
  if (table_->full()) table_ = std::make_shared<StateTable>(program_, trie_);
  return table_;
}

namespace {

// The eight bools that a byte of a mask stands for.
using Bools = std::array<bool, 8>;

std::array<Bools, 256> make_expansion() {
  std::array<Bools, 256> table{};
  for (size_t byte = 0; byte < 256; ++byte) {
    for (size_t bit = 0; bit < 8; ++bit) table[byte][bit] = (byte >> bit & 1) != 0;
  }
  return table;
}

void expand(const uint64_t* bits, std::span<bool> allowed) {
  static const std::array<Bools, 256> expansion = make_expansion();
  size_t id = 0;
  for (; id + 8 <= allowed.size(); id += 8) {
    const Bools& bools = expansion[bits[id / 64] >> id % 64 & 0xFF];
    std::memcpy(allowed.data() + id, bools.data(), sizeof(Bools));
  }
  for (; id < allowed.size(); ++id) allowed[id] = (bits[id / 64] >> id % 64 & 1) != 0;
}

class GrammarConstraint : public TokenConstraint {
 public:
  explicit GrammarConstraint(std::shared_ptr<const Grammar> grammar)
      : grammar_(std::move(grammar)), table_(grammar_->table()), state_(table_->start()) {}

  std::unique_ptr<TokenConstraint> fork() const override {
    return std::make_unique<GrammarConstraint>(*this);
  }

  void advance(int32_t token) override {
    if (ended_) return;
    assert(allows(token));
    const std::string_view bytes = grammar_->trie().bytes(token);
    if (table_->full()) move_on();
    for (const char byte : bytes) state_ = table_->step(*state_, static_cast<uint8_t>(byte));
    // What the mask did not allow ends the output too: nothing could come next.
    ended_ = bytes.empty() || state_->dead();
  }

  void mask(std::span<bool> allowed) const override {
    const TokenTrie& trie = grammar_->trie();
    const size_t known = std::min(allowed.size(), static_cast<size_t>(trie.vocab_size()));
    if (ended_) {
      std::fill(allowed.begin(), allowed.end(), false);
    } else {
      expand(table_->mask(*state_), allowed.first(known));
      std::fill(allowed.begin() + static_cast<std::ptrdiff_t>(known), allowed.end(), false);
    }
    if (!ended_ && !state_->complete) return;
    for (const int32_t end : trie.end_tokens()) {
      if (static_cast<size_t>(end) < allowed.size()) allowed[static_cast<size_t>(end)] = true;
    }
  }

  bool allows(int32_t token) const override {
    const TokenTrie& trie = grammar_->trie();
    if (trie.is_end(token)) return ended_ || state_->complete;
    const std::string_view bytes = trie.bytes(token);
    return !ended_ && !bytes.empty() && table_->takes(*state_, bytes);
  }

  std::string forced() const override { return ended_ ? std::string() : table_->forced(*state_); }

 private:
  void move_on() {
    std::shared_ptr<StateTable> next = grammar_->table();
    if (next == table_) return;
    state_ = next->import(*state_);
    table_ = std::move(next);
  }

  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<StateTable> table_;
  const State* state_;
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<TokenConstraint> make_constraint(std::shared_ptr<const Grammar> grammar) {
  return std::make_unique<GrammarConstraint>(std::move(grammar));
}

}  // namespace aerie
