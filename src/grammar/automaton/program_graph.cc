#include "grammar/automaton/program_graph.h"

#include <fmt/format.h>

#include <map>

namespace aerie::grammar {
namespace {

class GraphBuilder {
 public:
  explicit GraphBuilder(const RuleSet& rules) : rules_(rules) {}

  Expected<Graph> build() {
    for (size_t i = 0; i < rules_.rule_count(); ++i) graph_.starts.push_back(node());
    for (size_t i = 0; i < rules_.rule_count(); ++i) {
      const uint32_t end = node();
      graph_.final[end] = true;
      const ExprId body = rules_.body(static_cast<RuleId>(i));
      if (body >= 0) add(body, graph_.starts[i], end);
      AERIE_RETURN_IF_ERROR(rules_.budget().status());
      if (too_large_) {
        return Status(StatusCode::kResourceExhausted,
                      fmt::format("rule '{}': the grammar needs more than {} nodes or {} edges; "
                                  "shorten repetitions and lists",
                                  rules_.name(static_cast<RuleId>(i)), kMaxNodes, kMaxEdges));
      }
    }
    return std::move(graph_);
  }

 private:
  uint32_t node() {
    if (graph_.edges.size() >= kMaxNodes || !rules_.budget().spend(sizeof(graph_.edges[0]))) {
      too_large_ = true;
      return 0;
    }
    graph_.edges.emplace_back();
    graph_.final.push_back(false);
    return static_cast<uint32_t>(graph_.edges.size() - 1);
  }

  void edge(uint32_t from, const Edge& edge) {
    if (++edge_count_ > kMaxEdges || !rules_.budget().spend(sizeof(edge))) too_large_ = true;
    if (!too_large_) graph_.edges[from].push_back(edge);
  }

  void byte_edge(uint32_t from, uint32_t to, ByteRange range) {
    Edge byte;
    byte.kind = Edge::Kind::kByte;
    byte.first = range.first;
    byte.last = range.last;
    byte.target = to;
    edge(from, byte);
  }

  void empty_edge(uint32_t from, uint32_t to) {
    Edge empty;
    empty.target = to;
    edge(from, empty);
  }

  void call_edge(uint32_t from, uint32_t to, uint32_t rule) {
    Edge call;
    call.kind = Edge::Kind::kCall;
    call.start = rule;
    call.target = to;
    edge(from, call);
  }

  // Adds no edge into `from` and none out of `to`, so that alternatives can share both.
  void add(ExprId id, uint32_t from, uint32_t to) {
    if (too_large_) return;
    const Expr& expr = rules_.expr(id);
    switch (expr.kind) {
      case Expr::Kind::kBytes:
        return add_bytes(expr.bytes, from, to);
      case Expr::Kind::kClass:
        return add_class(rules_.set(expr), from, to);
      case Expr::Kind::kSequence:
        return add_sequence(expr.children, from, to);
      case Expr::Kind::kAlternatives:
        for (const ExprId child : expr.children) add(child, from, to);
        return;
      case Expr::Kind::kRepeat:
        return add_repeat(expr, from, to);
      case Expr::Kind::kRule:
        return call_edge(from, to, static_cast<uint32_t>(expr.target));
    }
  }

  void add_bytes(const std::string& bytes, uint32_t from, uint32_t to) {
    if (bytes.empty()) return empty_edge(from, to);
    for (size_t i = 0; i < bytes.size() && !too_large_; ++i) {
      const uint32_t next = i + 1 == bytes.size() ? to : node();
      const auto byte = static_cast<uint8_t>(bytes[i]);
      byte_edge(from, next, {byte, byte});
      from = next;
    }
  }

  void add_sequence(const std::vector<ExprId>& parts, uint32_t from, uint32_t to) {
    if (parts.empty()) return empty_edge(from, to);
    for (size_t i = 0; i < parts.size() && !too_large_; ++i) {
      const uint32_t next = i + 1 == parts.size() ? to : node();
      add(parts[i], from, next);
      from = next;
    }
  }

  void add_repeat(const Expr& expr, uint32_t from, uint32_t to) {
    const ExprId part = expr.children[0];
    for (int i = 0; i < expr.min && !too_large_; ++i) {
      const uint32_t next = node();
      add(part, from, next);
      from = next;
    }
    if (expr.max == kUnbounded) {
      const uint32_t loop = node();
      const uint32_t again = node();
      empty_edge(from, loop);
      add(part, loop, again);
      empty_edge(again, loop);
      return empty_edge(loop, to);
    }
    for (int i = expr.min; i < expr.max && !too_large_; ++i) {
      const uint32_t next = node();
      empty_edge(from, to);
      add(part, from, next);
      from = next;
    }
    empty_edge(from, to);
  }

  void add_sequences(const CodePointRange& range, uint32_t from, uint32_t to) {
    for (const auto& sequence : utf8_sequences(range)) {
      uint32_t at = from;
      for (size_t i = 0; i < sequence.size() && !too_large_; ++i) {
        const uint32_t next = i + 1 == sequence.size() ? to : node();
        byte_edge(at, next, sequence[i]);
        at = next;
      }
    }
  }

  // What lies beyond ASCII is a part of its own that all places share.
  void add_class(const CodePointSet& set, uint32_t from, uint32_t to) {
    static const CodePointSet ascii({{0, 0x7F}});
    const CodePointSet within = set.intersected(ascii);
    for (const CodePointRange& range : within.ranges()) {
      byte_edge(from, to, {static_cast<uint8_t>(range.first), static_cast<uint8_t>(range.last)});
    }
    const CodePointSet beyond = set.intersected(ascii.complement());
    if (beyond.empty()) return;
    const auto [entry, added] = shared_.try_emplace(beyond, 0);
    if (added) {
      const uint32_t start = node();
      const uint32_t end = node();
      if (too_large_) return;
      graph_.final[end] = true;
      for (const CodePointRange& range : beyond.ranges()) add_sequences(range, start, end);
      entry->second = static_cast<uint32_t>(graph_.starts.size());
      graph_.starts.push_back(start);
    }
    call_edge(from, to, entry->second);
  }

  const RuleSet& rules_;
  Graph graph_;
  std::map<CodePointSet, uint32_t> shared_;
  size_t edge_count_ = 0;
  bool too_large_ = false;
};

}  // namespace

Expected<Graph> build_graph(const RuleSet& rules) {
  return GraphBuilder(rules).build();
}

}  // namespace aerie::grammar
