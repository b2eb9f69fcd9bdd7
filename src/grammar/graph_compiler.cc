#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "grammar/grammar_graph.h"

namespace aerie {

// One compilation of a builder's rules.
class GraphCompiler {
 public:
  using Expr = GrammarBuilder::Expr;
  using Rule = GrammarBuilder::Rule;
  using Kind = GrammarBuilder::Kind;

  GraphCompiler(const GrammarBuilder& builder, const ByteSet& bytes)
      : builder_(builder), bytes_(bytes), users_(builder.rules_.size()) {}

  Expected<GrammarGraph> run(Rule root, bool strict) {
    find_reach(root);
    productive_ = fixpoint([&](Expr expr) { return can(expr, current_, true); });
    for (const Rule rule : reach_) {
      if (productive_[rule] || (!strict && rule != root)) continue;
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("rule \"{}\" matches no text that can be written",
                                builder_.rules_[rule].name));
    }
    nullable_ = fixpoint([&](Expr expr) { return can(expr, current_, false); });
    AERIE_RETURN_IF_ERROR(check_left_recursion());
    starts_.assign(builder_.rules_.size(), 0);
    for (const Rule rule : reach_) starts_[rule] = add_node();
    for (const Rule rule : reach_) {
      if (!productive_[rule]) continue;
      const uint32_t end = add_node();
      if (nodes_.size() < GrammarBuilder::kMaxNodes) nodes_[end].end = true;
      build(builder_.rules_[rule].body, starts_[rule], end);
    }
    if (full()) {
      return Status(StatusCode::kResourceExhausted,
                    fmt::format("the grammar needs more than {} states; use smaller repetitions",
                                GrammarBuilder::kMaxNodes));
    }
    return flatten(root);
  }

 private:
  struct Edges {
    std::vector<GrammarGraph::ByteEdge> bytes;
    std::vector<std::pair<Rule, uint32_t>> calls;
    std::vector<uint32_t> free;
    bool end = false;
  };

  const GrammarBuilder::Node& node(Expr expr) const { return builder_.nodes_[expr]; }
  std::span<const Expr> children(Expr expr) const {
    return std::span(builder_.children_).subspan(node(expr).a, node(expr).b);
  }

  // Calls visit(rule) for every call in an expression.
  template <typename Visit>
  void for_calls(Expr expr, const Visit& visit) const {
    switch (node(expr).kind) {
      case Kind::kCall:
        visit(static_cast<Rule>(node(expr).a));
        break;
      case Kind::kRepeat:
        for_calls(node(expr).item, visit);
        break;
      case Kind::kSequence:
      case Kind::kAnyOf:
        for (const Expr child : children(expr)) for_calls(child, visit);
        break;
      default:
        break;
    }
  }

  void find_reach(Rule root) {
    std::vector<bool> seen(users_.size());
    seen[root] = true;
    reach_.push_back(root);
    for (size_t i = 0; i < reach_.size(); ++i) {
      const Rule user = reach_[i];
      for_calls(builder_.rules_[user].body, [&](Rule rule) {
        if (users_[rule].empty() || users_[rule].back() != user) users_[rule].push_back(user);
        if (seen[rule]) return;
        seen[rule] = true;
        reach_.push_back(rule);
      });
    }
  }

  // The least set of rules whose bodies hold, given the set.
  template <typename Holds>
  std::vector<bool> fixpoint(const Holds& holds_now) {
    std::vector<bool>& set = current_;
    set.assign(users_.size(), false);
    std::vector<Rule> todo(reach_.begin(), reach_.end());
    std::vector<bool> waiting(users_.size());
    for (const Rule rule : reach_) waiting[rule] = true;
    while (!todo.empty()) {
      const Rule rule = todo.back();
      todo.pop_back();
      waiting[rule] = false;
      if (set[rule] || !holds_now(builder_.rules_[rule].body)) continue;
      set[rule] = true;
      for (const Rule user : users_[rule]) {
        if (set[user] || waiting[user]) continue;
        waiting[user] = true;
        todo.push_back(user);
      }
    }
    return set;
  }

  // Whether some text (`text`) or the empty text can be made of an expression, given which rules
  // can.
  bool can(Expr expr, const std::vector<bool>& rules, bool text) const {
    const auto item_can = [&](Expr item) { return can(item, rules, text); };
    const GrammarBuilder::Node& it = node(expr);
    switch (it.kind) {
      case Kind::kEmpty:
        return true;
      case Kind::kNever:
        return false;
      case Kind::kBytes:
        if (!text) return false;
        for (int byte = it.a; byte <= it.b; ++byte) {
          if (bytes_[byte]) return true;
        }
        return false;
      case Kind::kCall:
        return rules[it.a];
      case Kind::kRepeat:
        return it.a == 0 || item_can(it.item);
      case Kind::kSequence:
        return std::ranges::all_of(children(expr), item_can);
      case Kind::kAnyOf:
        return std::ranges::any_of(children(expr), item_can);
    }
    return false;
  }
  bool is_productive(Expr expr) const { return can(expr, productive_, true); }
  bool is_nullable(Expr expr) const { return can(expr, nullable_, false); }

  // The rules that an expression may call before it has read a byte.
  void first_calls(Expr expr, std::vector<Rule>& out) const {
    if (!is_productive(expr)) return;
    switch (node(expr).kind) {
      case Kind::kCall:
        out.push_back(static_cast<Rule>(node(expr).a));
        break;
      case Kind::kRepeat:
        first_calls(node(expr).item, out);
        break;
      case Kind::kAnyOf:
        for (const Expr child : children(expr)) first_calls(child, out);
        break;
      case Kind::kSequence:
        for (const Expr child : children(expr)) {
          first_calls(child, out);
          if (!is_nullable(child)) break;
        }
        break;
      default:
        break;
    }
  }

  Status check_left_recursion() const {
    enum : uint8_t { kNew, kOpen, kDone };
    std::vector<uint8_t> color(users_.size(), kNew);
    struct Visit {
      Rule rule;
      std::vector<Rule> calls;
      size_t at = 0;
    };
    std::vector<Visit> path;
    const auto enter = [&](Rule rule) {
      color[rule] = kOpen;
      path.push_back({rule, {}, 0});
      first_calls(builder_.rules_[rule].body, path.back().calls);
    };
    for (const Rule rule : reach_) {
      if (color[rule] == kNew) enter(rule);
      while (!path.empty()) {
        Visit& top = path.back();
        if (top.at == top.calls.size()) {
          color[top.rule] = kDone;
          path.pop_back();
          continue;
        }
        const Rule next = top.calls[top.at++];
        if (color[next] == kNew) {
          enter(next);
        } else if (color[next] == kOpen) {
          std::string name = builder_.rules_[next].name;
          for (size_t i = path.size(); name.empty() && i-- > 0;) {
            name = builder_.rules_[path[i].rule].name;
          }
          return Status(StatusCode::kUnsupported,
                        fmt::format("rule \"{}\" begins with itself (left recursion); write it as "
                                    "a repetition",
                                    name));
        }
      }
    }
    return Status();
  }

  bool full() const { return nodes_.size() >= GrammarBuilder::kMaxNodes; }
  uint32_t add_node() {
    if (full()) return 0;
    nodes_.emplace_back();
    return static_cast<uint32_t>(nodes_.size() - 1);
  }

  // Adds edges that lead from `from` to `to` by the texts of an expression. Edges are only ever
  // added out of `from` and into `to`, so both may be the same node.
  void build(Expr expr, uint32_t from, uint32_t to) {
    if (full() || !is_productive(expr)) return;
    const GrammarBuilder::Node& it = node(expr);
    switch (it.kind) {
      case Kind::kNever:
        break;
      case Kind::kEmpty:
        nodes_[from].free.push_back(to);
        break;
      case Kind::kBytes:
        build_bytes(it.a, it.b, from, to);
        break;
      case Kind::kCall:
        nodes_[from].calls.emplace_back(static_cast<Rule>(it.a), to);
        break;
      case Kind::kAnyOf:
        for (const Expr child : children(expr)) build(child, from, to);
        break;
      case Kind::kSequence: {
        const auto items = children(expr);
        for (size_t i = 0; i < items.size(); ++i) {
          const uint32_t next = i + 1 == items.size() ? to : add_node();
          build(items[i], from, next);
          from = next;
        }
        break;
      }
      case Kind::kRepeat:
        build_repeat(it, from, to);
        break;
    }
  }

  void build_bytes(int first, int last, uint32_t from, uint32_t to) {
    for (int byte = first; byte <= last; ++byte) {
      if (!bytes_[byte]) continue;
      const int begin = byte;
      while (byte < last && bytes_[byte + 1]) ++byte;
      nodes_[from].bytes.push_back({static_cast<uint8_t>(begin), static_cast<uint8_t>(byte), to});
    }
  }

  void build_repeat(const GrammarBuilder::Node& it, uint32_t from, uint32_t to) {
    const bool possible = is_productive(it.item);
    const int most = possible ? it.b : 0;
    // Nothing else may begin where a loop comes back to.
    uint32_t at = add_node();
    nodes_[from].free.push_back(at);
    for (int i = 0; i < it.a && !full(); ++i) {
      const uint32_t next = add_node();
      build(it.item, at, next);
      at = next;
    }
    if (most == GrammarBuilder::kUnbounded) {
      const uint32_t loop = add_node();
      nodes_[at].free.push_back(loop);
      build(it.item, loop, loop);
      at = loop;
    }
    for (int i = it.a; i < most && !full(); ++i) {
      nodes_[at].free.push_back(to);
      const uint32_t next = add_node();
      build(it.item, at, next);
      at = next;
    }
    nodes_[at].free.push_back(to);
  }

  // Whether nothing but the end of its rule is ahead of a node.
  bool leads_to_end_only(uint32_t at) const {
    for (size_t steps = 0; steps < 64; ++steps) {
      const Edges& edges = nodes_[at];
      if (!edges.bytes.empty() || !edges.calls.empty()) return false;
      if (edges.end) return edges.free.empty();
      if (edges.free.size() != 1) return false;
      at = edges.free[0];
    }
    return false;
  }

  GrammarGraph flatten(Rule root) const {
    GrammarGraph graph;
    graph.start = starts_[root];
    std::bitset<257> borders;
    for (const Edges& edges : nodes_) {
      graph.nodes.push_back({static_cast<uint32_t>(graph.byte_edges.size()),
                             static_cast<uint32_t>(graph.call_edges.size()),
                             static_cast<uint32_t>(graph.free_edges.size()), edges.end});
      for (const GrammarGraph::ByteEdge& edge : edges.bytes) {
        borders[edge.first] = borders[edge.last + 1] = true;
        graph.byte_edges.push_back(edge);
      }
      for (const auto& [rule, back] : edges.calls) {
        graph.call_edges.push_back({starts_[rule], back, leads_to_end_only(back)});
      }
      graph.free_edges.insert(graph.free_edges.end(), edges.free.begin(), edges.free.end());
    }
    graph.nodes.push_back({static_cast<uint32_t>(graph.byte_edges.size()),
                           static_cast<uint32_t>(graph.call_edges.size()),
                           static_cast<uint32_t>(graph.free_edges.size()), false});
    for (int byte = 0; byte < 256; ++byte) {
      if (byte == 0 || borders[byte]) graph.class_bytes.push_back(static_cast<uint8_t>(byte));
      graph.class_of[byte] = static_cast<uint8_t>(graph.class_bytes.size() - 1);
    }
    return graph;
  }

  const GrammarBuilder& builder_;
  const ByteSet& bytes_;
  std::vector<std::vector<Rule>> users_;
  std::vector<Rule> reach_;
  std::vector<bool> current_;
  std::vector<bool> productive_;
  std::vector<bool> nullable_;
  std::vector<uint32_t> starts_;
  std::vector<Edges> nodes_;
};

Expected<GrammarGraph> GrammarBuilder::compile(Rule root, const ByteSet& bytes, bool strict) {
  AERIE_RETURN_IF_ERROR(status_);
  return GraphCompiler(*this, bytes).run(root, strict);
}

}  // namespace aerie
