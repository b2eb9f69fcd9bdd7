#include "grammar/free_text.h"

#include <cstdint>
#include <map>
#include <utility>

#include "base/errors.h"
#include "grammar/automaton/code_points.h"

namespace aerie::grammar {
namespace {

// The automaton of Aho and Corasick ("Efficient string matching", CACM 18, 1975), over code points:
// a state is the longest end of the text that a stop begins with.
class StopAutomaton {
 public:
  void add(const std::vector<uint32_t>& stop) {
    size_t at = 0;
    for (const uint32_t c : stop) {
      const auto [entry, added] = states_[at].next.try_emplace(c, states_.size());
      at = entry->second;
      if (added) states_.emplace_back();
    }
    states_[at].stops = true;
  }

  void finish() {
    std::vector<size_t> order{0};
    for (size_t i = 0; i < order.size(); ++i) {
      const size_t from = order[i];
      for (const auto& [c, to] : states_[from].next) {
        states_[to].fail = from == 0 ? 0 : step(states_[from].fail, c);
        states_[to].stops = states_[to].stops || states_[states_[to].fail].stops;
        order.push_back(to);
      }
    }
  }

  size_t size() const { return states_.size(); }
  bool stops(size_t state) const { return states_[state].stops; }

  // Where each character leads that does not lead back to the beginning.
  std::map<uint32_t, size_t> steps(size_t state) const {
    std::map<uint32_t, size_t> out;
    for (size_t at = state;; at = states_[at].fail) {
      for (const auto& [c, to] : states_[at].next) out.try_emplace(c, to);
      if (at == 0) return out;
    }
  }

 private:
  struct State {
    std::map<uint32_t, size_t> next;
    size_t fail = 0;
    bool stops = false;
  };

  size_t step(size_t state, uint32_t c) const {
    for (;; state = states_[state].fail) {
      const auto it = states_[state].next.find(c);
      if (it != states_[state].next.end()) return it->second;
      if (state == 0) return 0;
    }
  }

  std::vector<State> states_ = std::vector<State>(1);
};

Expected<std::vector<uint32_t>> code_points_of(std::string_view text) {
  if (text.size() > kMaxStopBytes) {
    return resource_exhausted("a text that ends another has {} bytes; at most {} are taken",
                              text.size(), kMaxStopBytes);
  }
  std::vector<uint32_t> out;
  for (uint32_t c = 0; take_code_point(text, c);) out.push_back(c);
  if (!text.empty() || out.empty()) {
    return invalid_argument("a text that ends another is empty or no UTF-8");
  }
  return out;
}

ExprId body_of(const StopAutomaton& automaton, size_t state, const std::vector<RuleId>& ids,
               RuleSet& rules) {
  std::vector<CodePointRange> special;
  std::map<size_t, std::vector<CodePointRange>> ways;
  for (const auto& [c, to] : automaton.steps(state)) {
    special.push_back({c, c});
    if (!automaton.stops(to)) ways[to].push_back({c, c});
  }
  std::vector<ExprId> parts{rules.bytes("")};
  const auto go = [&](const CodePointSet& set, size_t to) {
    parts.push_back(rules.sequence({rules.char_class(set), rules.rule(ids[to])}));
  };
  go(CodePointSet(special).complement(), 0);
  for (const auto& [to, characters] : ways) go(CodePointSet(characters), to);
  return rules.alternatives(std::move(parts));
}

}  // namespace

Expected<RuleId> add_free_text(const std::vector<std::string>& stops, RuleSet& rules) {
  if (stops.size() > kMostStops) {
    return resource_exhausted("{} texts end another; at most {} are taken", stops.size(),
                              kMostStops);
  }
  StopAutomaton automaton;
  for (const std::string& stop : stops) {
    AERIE_ASSIGN_OR_RETURN(const std::vector<uint32_t> characters, code_points_of(stop));
    automaton.add(characters);
  }
  automaton.finish();
  std::vector<RuleId> ids;
  for (size_t i = 0; i < automaton.size(); ++i) ids.push_back(rules.add_rule("text"));
  for (size_t i = 0; i < automaton.size(); ++i) {
    if (!automaton.stops(i)) rules.set_body(ids[i], body_of(automaton, i, ids, rules));
  }
  return ids.front();
}

}  // namespace aerie::grammar
