#include "grammar/grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <mutex>

#include "grammar/automaton/automaton.h"
#include "grammar/builtin_rules.h"
#include "grammar/grammar_rules.h"
#include "grammar/notation.h"
#include "grammar/regex_rules.h"
#include "grammar/schema/schema.h"

namespace aerie {

using grammar::ExprId;
using grammar::Program;
using grammar::RuleId;
using grammar::RuleSet;
using grammar::State;
using grammar::StateTable;

class Grammar {
 public:
  Grammar(Program program, std::shared_ptr<const TokenTrie> trie)
      : program_(std::make_shared<const Program>(std::move(program))),
        trie_(std::move(trie)),
        table_(std::make_shared<StateTable>(program_, trie_)) {}

  const TokenTrie& trie() const { return *trie_; }

  // The newest, which is made anew when it is full; who holds an old one may go on with it, and
  // takes its state along to this one when it next can.
  std::shared_ptr<StateTable> table() const {
    const std::lock_guard lock(mutex_);
    if (table_->full()) table_ = std::make_shared<StateTable>(program_, trie_);
    return table_;
  }

 private:
  const std::shared_ptr<const Program> program_;
  const std::shared_ptr<const TokenTrie> trie_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<StateTable> table_;
};

namespace {

Expected<RuleId> add_choice(const std::vector<std::string>& choices, RuleSet& rules) {
  constexpr size_t kMaxChoices = 10000;
  if (choices.empty()) {
    return Status(StatusCode::kInvalidArgument, "choice: there is nothing to choose from");
  }
  if (choices.size() > kMaxChoices) {
    return Status(
        StatusCode::kResourceExhausted,
        fmt::format("choice: {} choices; at most {} are taken", choices.size(), kMaxChoices));
  }
  return rules.define("root", rules.one_of(choices));
}

Expected<RuleId> add_rules(const GrammarSpec& spec, RuleSet& rules) {
  switch (spec.kind) {
    case GrammarKind::kJsonObject:
      return rules.define("root", grammar::JsonRules(rules).object());
    case GrammarKind::kJsonSchema:
      return grammar::parse_schema(spec.text, spec.strict, rules);
    case GrammarKind::kGrammar:
      return grammar::parse_grammar(spec.text, rules);
    case GrammarKind::kRegex: {
      AERIE_ASSIGN_OR_RETURN(const ExprId body,
                             grammar::parse_regex(spec.text, grammar::RegexMatch::kWhole, rules));
      return rules.define("root", body);
    }
    case GrammarKind::kChoice:
      return add_choice(spec.choices, rules);
  }
  return Status(StatusCode::kInvalidArgument, "the kind of grammar is not known");
}

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

std::shared_ptr<const TokenTrie> make_token_trie(const Tokenizer& tokenizer) {
  return std::make_shared<const TokenTrie>(tokenizer);
}

Expected<std::shared_ptr<const Grammar>> compile_grammar(const GrammarSpec& spec,
                                                         std::shared_ptr<const TokenTrie> trie) {
  if (trie->end_tokens().empty()) {
    return Status(StatusCode::kUnsupported,
                  "the model's vocabulary names no end token: a constrained output could not end");
  }
  grammar::Budget budget;
  RuleSet rules(budget);
  AERIE_ASSIGN_OR_RETURN(const RuleId root, add_rules(spec, rules));
  AERIE_RETURN_IF_ERROR(budget.status());
  grammar::ProgramOptions options;
  options.root = root;
  options.every_rule_matches = spec.kind == GrammarKind::kGrammar;
  options.spellable = trie->spellable();
  AERIE_ASSIGN_OR_RETURN(grammar::Program program, grammar::build_program(rules, options));
  return std::shared_ptr<const Grammar>(
      std::make_shared<const Grammar>(std::move(program), std::move(trie)));
}

std::unique_ptr<TokenConstraint> make_constraint(std::shared_ptr<const Grammar> grammar) {
  return std::make_unique<GrammarConstraint>(std::move(grammar));
}

}  // namespace aerie
