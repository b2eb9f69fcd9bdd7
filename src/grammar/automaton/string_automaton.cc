#include "grammar/automaton/string_automaton.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "grammar/regex_rules.h"

namespace aerie::grammar {
namespace {

constexpr size_t kMaxStates = 20000;
constexpr size_t kMaxCells = size_t{1} << 20;

Status too_large() {
  return {StatusCode::kResourceExhausted,
          fmt::format("the pattern, length or names need more than {} states", kMaxStates)};
}

// The expression as a graph of sets of code points.
class CodePointGraph {
 public:
  explicit CodePointGraph(const RuleSet& rules) : rules_(rules) {}

  struct Edge {
    const CodePointSet* set;  // null: reads nothing
    uint32_t target;
  };

  uint32_t node() {
    edges_.emplace_back();
    return static_cast<uint32_t>(edges_.size() - 1);
  }

  bool too_large() const { return edges_.size() > 4 * kMaxStates; }
  const std::vector<Edge>& edges(uint32_t node) const { return edges_[node]; }

  void add(ExprId id, uint32_t from, uint32_t to) {
    if (too_large()) return;
    const Expr& expr = rules_.expr(id);
    switch (expr.kind) {
      case Expr::Kind::kClass:
        edges_[from].push_back({&rules_.set(expr), to});
        return;
      case Expr::Kind::kAlternatives:
        for (const ExprId child : expr.children) add(child, from, to);
        return;
      case Expr::Kind::kSequence:
        for (const ExprId child : expr.children) {
          const uint32_t next = node();
          add(child, from, next);
          from = next;
        }
        return empty(from, to);
      case Expr::Kind::kRepeat:
        return add_repeat(expr, from, to);
      default:  // a regular expression has no others
        return;
    }
  }

  void close(std::set<uint32_t>& nodes) const {
    std::vector<uint32_t> todo(nodes.begin(), nodes.end());
    while (!todo.empty()) {
      const uint32_t at = todo.back();
      todo.pop_back();
      for (const Edge& edge : edges_[at]) {
        if (edge.set == nullptr && nodes.insert(edge.target).second) todo.push_back(edge.target);
      }
    }
  }

  std::vector<uint32_t> class_starts() const {
    std::set<uint32_t> starts{0};
    for (const auto& edges : edges_) {
      for (const Edge& edge : edges) {
        if (edge.set == nullptr) continue;
        for (const CodePointRange& range : edge.set->ranges()) {
          starts.insert(range.first);
          if (range.last < kMaxCodePoint) starts.insert(range.last + 1);
        }
      }
    }
    return {starts.begin(), starts.end()};
  }

 private:
  void empty(uint32_t from, uint32_t to) { edges_[from].push_back({nullptr, to}); }

  void add_repeat(const Expr& expr, uint32_t from, uint32_t to) {
    for (int i = 0; (i < expr.min || i < expr.max) && !too_large(); ++i) {
      const uint32_t next = node();
      if (i >= expr.min) empty(from, to);
      add(expr.children[0], from, next);
      from = next;
    }
    if (expr.max == kUnbounded) {
      const uint32_t loop = node();
      const uint32_t again = node();
      empty(from, loop);
      add(expr.children[0], loop, again);
      empty(again, loop);
      from = loop;
    }
    empty(from, to);
  }

  const RuleSet& rules_;
  std::vector<std::vector<Edge>> edges_;
};

}  // namespace

// Numbers the states as they are found.
class StringAutomaton::Builder {
 public:
  Builder(std::vector<uint32_t> class_starts, Budget& budget) : budget_(budget) {
    automaton_.class_starts_ = std::move(class_starts);
  }

  const std::vector<uint32_t>& class_starts() const { return automaton_.class_starts_; }

  // `expand(key, class)` is the key that follows, `accepts(key)` whether a text may end there.
  template <typename Key, typename Expand, typename Accepts>
  Expected<StringAutomaton> run(Key start, const Expand& expand, const Accepts& accepts) {
    std::map<Key, uint32_t> ids{{start, 0}};
    std::vector<Key> keys{std::move(start)};
    const size_t classes = automaton_.class_starts_.size();
    for (size_t at = 0; at < keys.size(); ++at) {
      State& state = automaton_.states_.emplace_back();
      state.accepts = accepts(keys[at]);
      for (size_t i = 0; i < classes; ++i) {
        Key next = expand(keys[at], i);
        const auto [entry, added] = ids.try_emplace(next, static_cast<uint32_t>(keys.size()));
        if (added) keys.push_back(std::move(next));
        state.next.push_back(entry->second);
      }
      if (keys.size() > kMaxStates || keys.size() * classes > kMaxCells) return too_large();
      // A cell, and a key in the map and behind it.
      budget_.spend(classes * sizeof(uint32_t) + 2 * sizeof(Key) + 64, classes);
      AERIE_RETURN_IF_ERROR(budget_.status());
    }
    automaton_.trim();
    return std::move(automaton_);
  }

 private:
  Budget& budget_;
  StringAutomaton automaton_;
};

Expected<StringAutomaton> StringAutomaton::of(ExprId expr, const RuleSet& rules) {
  CodePointGraph graph(rules);
  const uint32_t start = graph.node();
  const uint32_t end = graph.node();
  graph.add(expr, start, end);
  if (graph.too_large()) return too_large();
  Budget& budget = rules.budget();
  Builder builder(graph.class_starts(), budget);
  std::set<uint32_t> first{start};
  graph.close(first);
  const auto expand = [&](const std::set<uint32_t>& nodes, size_t i) {
    std::set<uint32_t> next;
    // What follows is nothing then, and the result is not used.
    if (!budget.spend(0, nodes.size())) return next;
    for (const uint32_t node : nodes) {
      for (const CodePointGraph::Edge& edge : graph.edges(node)) {
        const bool reads = edge.set != nullptr && edge.set->contains(builder.class_starts()[i]);
        if (reads) next.insert(edge.target);
      }
    }
    graph.close(next);
    constexpr size_t kNodeOfSet = 40;
    budget.spend(next.size() * kNodeOfSet, next.size());
    return next;
  };
  return builder.run(std::move(first), expand,
                     [&](const std::set<uint32_t>& nodes) { return nodes.contains(end); });
}

Expected<StringAutomaton> StringAutomaton::of_pattern(std::string_view pattern, Budget& budget) {
  RuleSet rules(budget);
  AERIE_ASSIGN_OR_RETURN(const ExprId expr, parse_regex(pattern, RegexMatch::kSearch, rules));
  return of(expr, rules);
}

StringAutomaton StringAutomaton::all() {
  StringAutomaton automaton;
  automaton.states_.push_back({{0}, true});
  return automaton;
}

Expected<StringAutomaton> StringAutomaton::of_length(int64_t min, int64_t max, Budget& budget) {
  const int64_t last = max == kUnbounded ? min : max + 1;
  if (last > static_cast<int64_t>(kMaxStates)) return too_large();
  return Builder({0}, budget)
      .run(
          int64_t{0}, [&](int64_t length, size_t) { return std::min(length + 1, last); },
          [&](int64_t length) { return length >= min && (max == kUnbounded || length <= max); });
}

Expected<StringAutomaton> StringAutomaton::of_texts(const std::vector<std::string>& texts,
                                                    Budget& budget) {
  constexpr uint32_t kNowhere = 0xFFFFFFFF;
  constexpr size_t kNodeOfMap = 48;
  std::vector<std::map<uint32_t, uint32_t>> trie(1);
  std::vector<bool> ends(1, false);
  std::set<uint32_t> starts{0};
  for (const std::string& text : texts) {
    uint32_t at = 0;
    std::string_view rest = text;
    for (uint32_t c = 0; take_code_point(rest, c);) {
      const auto [entry, added] = trie[at].try_emplace(c, static_cast<uint32_t>(trie.size()));
      at = entry->second;
      if (!added) continue;
      trie.emplace_back();
      ends.push_back(false);
      starts.insert({c, c + 1});
      budget.spend(2 * kNodeOfMap + sizeof(trie[0]));
    }
    ends[at] = true;
    AERIE_RETURN_IF_ERROR(budget.status());
  }
  starts.erase(kMaxCodePoint + 1);
  Builder builder({starts.begin(), starts.end()}, budget);
  return builder.run(
      uint32_t{0},
      [&](uint32_t at, size_t i) {
        if (at == kNowhere) return at;
        const auto child = trie[at].find(builder.class_starts()[i]);
        return child == trie[at].end() ? kNowhere : child->second;
      },
      [&](uint32_t at) { return at != kNowhere && ends[at]; });
}

Expected<StringAutomaton> StringAutomaton::combined(const StringAutomaton& other, Product product,
                                                    Budget& budget) const {
  std::vector<uint32_t> starts;
  std::set_union(class_starts_.begin(), class_starts_.end(), other.class_starts_.begin(),
                 other.class_starts_.end(), std::back_inserter(starts));
  Builder builder(std::move(starts), budget);
  using Key = std::pair<uint32_t, uint32_t>;
  const auto expand = [&](const Key& key, size_t i) {
    const uint32_t c = builder.class_starts()[i];
    return Key(states_[key.first].next[class_of(c)],
               other.states_[key.second].next[other.class_of(c)]);
  };
  return builder.run(Key(0, 0), expand, [&](const Key& key) {
    return states_[key.first].accepts &&
           other.states_[key.second].accepts == (product == Product::kBoth);
  });
}

void StringAutomaton::trim() {
  std::vector<std::vector<uint32_t>> sources(states_.size());
  std::vector<bool> live(states_.size(), false);
  std::vector<uint32_t> todo;
  for (uint32_t at = 0; at < states_.size(); ++at) {
    for (const uint32_t next : states_[at].next) sources[next].push_back(at);
    if (states_[at].accepts) todo.push_back(at);
  }
  while (!todo.empty()) {
    const uint32_t at = todo.back();
    todo.pop_back();
    if (live[at]) continue;
    live[at] = true;
    todo.insert(todo.end(), sources[at].begin(), sources[at].end());
  }
  // The start keeps its place.
  uint32_t dead = 0;
  while (dead < states_.size() && live[dead]) ++dead;
  for (State& state : states_) {
    for (uint32_t& next : state.next) {
      if (!live[next]) next = dead;
    }
  }
}

bool StringAutomaton::empty() const {
  return !states_[0].accepts &&
         std::all_of(states_[0].next.begin(), states_[0].next.end(), [&](uint32_t next) {
           const State& state = states_[next];
           return !state.accepts && std::all_of(state.next.begin(), state.next.end(),
                                                [&](uint32_t to) { return to == next; });
         });
}

size_t StringAutomaton::class_of(uint32_t code_point) const {
  const auto above = std::upper_bound(class_starts_.begin(), class_starts_.end(), code_point);
  return static_cast<size_t>(above - class_starts_.begin()) - 1;
}

bool StringAutomaton::contains(std::string_view text) const {
  uint32_t at = 0;
  for (uint32_t c = 0; take_code_point(text, c);) at = states_[at].next[class_of(c)];
  return text.empty() && states_[at].accepts;
}

ExprId StringAutomaton::json(JsonRules& json) const {
  RuleSet& rules = json.rules();
  std::vector<RuleId> ids;
  for (size_t i = 0; i < states_.size(); ++i) ids.push_back(rules.add_rule("characters"));
  for (size_t i = 0; i < states_.size() && !rules.spent(); ++i) {
    std::map<uint32_t, std::vector<CodePointRange>> ranges;
    for (size_t c = 0; c < class_starts_.size(); ++c) {
      const bool is_last = c + 1 == class_starts_.size();
      const uint32_t last = is_last ? kMaxCodePoint : class_starts_[c + 1] - 1;
      ranges[states_[i].next[c]].push_back({class_starts_[c], last});
    }
    std::vector<ExprId> ways;
    if (states_[i].accepts) ways.push_back(rules.bytes("\""));
    for (const auto& [next, list] : ranges) {
      const CodePointSet set(list);
      if (set.empty()) continue;
      ways.push_back(rules.sequence({json.character(set), rules.rule(ids[next])}));
    }
    rules.set_body(ids[i], rules.alternatives(std::move(ways)));
  }
  return rules.sequence({rules.bytes("\""), rules.rule(ids[0])});
}

}  // namespace aerie::grammar
