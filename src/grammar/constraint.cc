#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "grammar/automaton.h"
#include "grammar/front_ends.h"
#include "grammar/grammar.h"
#include "grammar/token_trie.h"

namespace aerie {
namespace {

// What a grammar keeps of states and masks before it begins anew.
constexpr size_t kMaxMemory = size_t{48} << 20;
constexpr size_t kMaxForced = 64;

using Mask = std::vector<uint8_t>;  // a bit for each id

// Eight bits as eight bools.
std::array<uint64_t, 256> spread_table() {
  std::array<uint64_t, 256> table{};
  for (size_t bits = 0; bits < 256; ++bits) {
    std::array<uint8_t, 8> bools{};
    for (size_t i = 0; i < 8; ++i) bools[i] = (bits >> i) & 1;
    std::memcpy(&table[bits], bools.data(), 8);
  }
  return table;
}

void spread(const Mask& mask, std::span<bool> out) {
  static const std::array<uint64_t, 256> table = spread_table();
  static_assert(sizeof(bool) == 1);
  for (size_t i = 0; i < out.size(); i += 8) {
    const uint64_t bools = i / 8 < mask.size() ? table[mask[i / 8]] : 0;
    std::memcpy(out.data() + i, &bools, std::min<size_t>(8, out.size() - i));
  }
}

bool within(const ByteSet& part, const ByteSet& whole) {
  return (part & ~whole).none();
}

// States and masks of a grammar, as far as they are known. Locked by whoever uses it.
struct Memory {
  explicit Memory(const GrammarGraph& graph) : automaton(graph) {}

  std::mutex mutex;
  Automaton automaton;
  std::unordered_map<Automaton::State, Mask> masks;
  size_t mask_bytes = 0;
  std::vector<Automaton::State> path;  // of a walk

  size_t bytes() const { return automaton.bytes() + mask_bytes; }

  const Mask& mask(Automaton::State state, const TokenTrie& trie) {
    const auto [found, added] = masks.try_emplace(state);
    Mask& mask = found->second;
    if (!added) return mask;
    mask.resize((static_cast<size_t>(trie.vocab_size()) + 7) / 8);
    mask_bytes += mask.size() + 64;
    walk(state, trie, mask);
    if (automaton.complete(state) || state == Automaton::kDead) {
      for (const int32_t id : trie.ends()) mask[id / 8] |= uint8_t(1u << (id % 8));
    }
    return mask;
  }

 private:
  void walk(Automaton::State state, const TokenTrie& trie, Mask& mask) {
    const std::vector<TokenTrie::Node>& nodes = trie.nodes();
    const auto allow = [&](uint32_t first, uint32_t last) {
      for (uint32_t rank = first; rank < last; ++rank) {
        const int32_t id = trie.ids()[rank];
        mask[id / 8] |= uint8_t(1u << (id % 8));
      }
    };
    path.assign(static_cast<size_t>(trie.max_depth()) + 1, Automaton::kDead);
    path[0] = state;
    for (uint32_t i = 0; i < nodes.size();) {
      const TokenTrie::Node& node = nodes[i];
      const Automaton::State from = path[node.depth];
      const Automaton::State to = automaton.step(from, node.byte);
      if (to == Automaton::kDead) {
        i = node.next;
      } else if (to == from && within(node.all, automaton.loops(from))) {
        allow(node.first_rank, trie.rank_end(node.next));
        i = node.next;
      } else {
        path[node.depth + 1] = to;
        allow(node.first_rank, trie.rank_end(i + 1));
        ++i;
      }
    }
  }
};

}  // namespace

class Grammar {
 public:
  Grammar(GrammarGraph compiled, std::shared_ptr<const TokenTrie> tokens)
      : graph_(std::move(compiled)),
        trie_(std::move(tokens)),
        memory_(std::make_shared<Memory>(graph_)) {}

  const TokenTrie& trie() const { return *trie_; }

  std::shared_ptr<Memory> memory() const {
    const std::lock_guard lock(mutex_);
    return memory_;
  }

  // Moves to the current memory, which is a new one if `memory` has grown too large. States of an
  // old one live as long as a constraint is in them.
  void refresh(std::shared_ptr<Memory>& memory, Automaton::State& state) const {
    const std::lock_guard lock(mutex_);
    if (memory == memory_) {
      const std::lock_guard mine(memory->mutex);
      if (memory->bytes() < kMaxMemory) return;
      memory_ = std::make_shared<Memory>(graph_);
    }
    const std::shared_ptr<Memory> old = std::exchange(memory, memory_);
    const std::scoped_lock both(old->mutex, memory->mutex);
    state = memory->automaton.import(old->automaton, state);
  }

 private:
  const GrammarGraph graph_;
  const std::shared_ptr<const TokenTrie> trie_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<Memory> memory_;
};

namespace {

class GrammarConstraint : public TokenConstraint {
 public:
  explicit GrammarConstraint(std::shared_ptr<const Grammar> grammar)
      : grammar_(std::move(grammar)),
        memory_(grammar_->memory()),
        state_(memory_->automaton.start()) {}

  std::unique_ptr<TokenConstraint> fork() const override {
    return std::make_unique<GrammarConstraint>(*this);
  }

  void advance(int32_t token) override {
    if (grammar_->trie().is_end(token)) ended_ = true;
    if (ended_) return;
    grammar_->refresh(memory_, state_);
    const std::lock_guard lock(memory_->mutex);
    state_ = after(token);
  }

  void mask(std::span<bool> allowed) const override {
    if (ended_) {
      std::ranges::fill(allowed, false);
      for (const int32_t id : grammar_->trie().ends()) {
        if (static_cast<size_t>(id) < allowed.size()) allowed[id] = true;
      }
      return;
    }
    const std::lock_guard lock(memory_->mutex);
    spread(memory_->mask(state_, grammar_->trie()), allowed);
  }

  bool allows(int32_t token) const override {
    const std::lock_guard lock(memory_->mutex);
    if (grammar_->trie().is_end(token)) {
      return ended_ || memory_->automaton.complete(state_) || state_ == Automaton::kDead;
    }
    return !ended_ && after(token) != Automaton::kDead;
  }

  std::string forced() const override {
    std::string bytes;
    if (ended_) return bytes;
    const std::lock_guard lock(memory_->mutex);
    Automaton& automaton = memory_->automaton;
    Automaton::State state = state_;
    while (bytes.size() < kMaxForced && !automaton.complete(state)) {
      const int byte = automaton.only_byte(state);
      if (byte < 0) break;
      bytes += static_cast<char>(byte);
      state = automaton.step(state, static_cast<uint8_t>(byte));
    }
    return bytes;
  }

 private:
  // kDead for what is not a token of text. Requires the memory's lock.
  Automaton::State after(int32_t token) const {
    const std::string_view bytes = grammar_->trie().bytes(token);
    Automaton::State state = bytes.empty() ? Automaton::kDead : state_;
    for (const char c : bytes) state = memory_->automaton.step(state, static_cast<uint8_t>(c));
    return state;
  }

  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<Memory> memory_;
  Automaton::State state_;
  bool ended_ = false;
};

Expected<GrammarBuilder::Rule> build(const GrammarSpec& spec, GrammarBuilder& builder) {
  switch (spec.kind) {
    case GrammarKind::kJsonObject:
      return build_json_object(builder);
    case GrammarKind::kJsonSchema:
      return build_json_schema(spec.text, builder);
    case GrammarKind::kGbnf:
      return build_gbnf(spec.text, builder);
    case GrammarKind::kRegex:
      return build_regex(spec.text, builder);
    case GrammarKind::kChoice:
      return build_choice(spec.choices, builder);
  }
  return Status(StatusCode::kInvalidArgument, "unknown kind of grammar");
}

}  // namespace

std::shared_ptr<const TokenTrie> make_token_trie(const Tokenizer& tokenizer) {
  return std::make_shared<TokenTrie>(tokenizer);
}

Expected<std::shared_ptr<const Grammar>> compile_grammar(const GrammarSpec& spec,
                                                         std::shared_ptr<const TokenTrie> trie) {
  if (trie->ends().empty()) {
    return Status(StatusCode::kUnsupported,
                  "the model's vocabulary has no end token, so no constrained output could end");
  }
  GrammarBuilder builder;
  const auto root = build(spec, builder);
  // What was left out at a limit makes for other errors.
  AERIE_RETURN_IF_ERROR(builder.status());
  AERIE_RETURN_IF_ERROR(root.status());
  // A byte within longer tokens alone could lead to where no token fits.
  AERIE_ASSIGN_OR_RETURN(GrammarGraph graph, builder.compile(*root, trie->single_bytes(),
                                                             spec.kind == GrammarKind::kGbnf));
  return std::make_shared<const Grammar>(std::move(graph), std::move(trie));
}

std::unique_ptr<TokenConstraint> make_constraint(std::shared_ptr<const Grammar> grammar) {
  return std::make_unique<GrammarConstraint>(std::move(grammar));
}

}  // namespace aerie
