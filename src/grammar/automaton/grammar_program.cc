#include "grammar/automaton/grammar_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <queue>

namespace aerie::grammar {
namespace {

constexpr uint16_t kNever = 0xFFFF;

// How many calls have to be open at least on the way from each node to the end of its rule; kNever
// if there is no way. Without bytes: of the ways that read nothing.
class Heights {
 public:
  Heights(const Graph& graph, bool with_bytes)
      : graph_(graph), height_(graph.edges.size(), kNever) {
    collect(with_bytes);
    for (uint32_t node = 0; node < height_.size(); ++node) {
      if (graph.final[node]) reach(node, 0);
    }
    // The smallest first: what a node gets is never less than what it is made of.
    while (!queue_.empty()) {
      const auto [height, node] = queue_.top();
      queue_.pop();
      if (height != height_[node]) continue;
      for (uint32_t use = first_use_[node]; use < first_use_[node + 1]; ++use) {
        const auto [from, edge] = uses_[use];
        relax(from, graph_.edges[from][edge]);
      }
    }
  }

  uint16_t of(uint32_t node) const { return height_[node]; }

 private:
  void collect(bool with_bytes) {
    std::vector<std::vector<std::pair<uint32_t, uint32_t>>> uses(height_.size());
    for (uint32_t from = 0; from < height_.size(); ++from) {
      const auto& edges = graph_.edges[from];
      for (uint32_t i = 0; i < edges.size(); ++i) {
        if (edges[i].kind == Edge::Kind::kByte && !with_bytes) continue;
        uses[edges[i].target].emplace_back(from, i);
        if (edges[i].kind == Edge::Kind::kCall) {
          uses[graph_.starts[edges[i].start]].emplace_back(from, i);
        }
      }
    }
    first_use_.push_back(0);
    for (const auto& list : uses) {
      uses_.insert(uses_.end(), list.begin(), list.end());
      first_use_.push_back(static_cast<uint32_t>(uses_.size()));
    }
  }

  void relax(uint32_t from, const Edge& edge) {
    uint16_t height = height_[edge.target];
    if (height == kNever) return;
    if (edge.kind == Edge::Kind::kCall) {
      const uint16_t callee = height_[graph_.starts[edge.start]];
      if (callee >= kNever - 1) return;
      height = std::max(height, static_cast<uint16_t>(callee + (edge.tail ? 0 : 1)));
    }
    reach(from, height);
  }

  void reach(uint32_t node, uint16_t height) {
    if (height >= height_[node]) return;
    height_[node] = height;
    queue_.emplace(height, node);
  }

  using Entry = std::pair<uint16_t, uint32_t>;
  const Graph& graph_;
  std::vector<uint16_t> height_;
  std::vector<uint32_t> first_use_;
  std::vector<std::pair<uint32_t, uint32_t>> uses_;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
};

// The nodes that the root's rule leads to.
std::vector<bool> reachable(const Graph& graph, uint32_t root) {
  std::vector<bool> reached(graph.edges.size(), false);
  std::vector<uint32_t> todo{root};
  reached[root] = true;
  const auto visit = [&](uint32_t node) {
    if (!reached[node]) todo.push_back(node);
    reached[node] = true;
  };
  while (!todo.empty()) {
    const uint32_t node = todo.back();
    todo.pop_back();
    for (const Edge& edge : graph.edges[node]) {
      visit(edge.target);
      if (edge.kind == Edge::Kind::kCall) visit(graph.starts[edge.start]);
    }
  }
  return reached;
}

// Groups of nodes that lead to one another before a byte is read (Tarjan's algorithm, with a stack
// of its own).
class EmptyCycles {
 public:
  EmptyCycles(const Graph& graph, const Heights& nullable) : graph_(graph), nullable_(nullable) {
    const size_t count = graph.edges.size();
    index_.assign(count, 0);
    low_.assign(count, 0);
    group_.assign(count, 0);
    for (uint32_t node = 0; node < count; ++node) {
      if (index_[node] == 0) visit(node);
    }
  }

  bool same(uint32_t a, uint32_t b) const { return group_[a] == group_[b]; }

 private:
  struct Frame {
    uint32_t node;
    size_t next;  // two for each edge: the callee's start, the target
  };

  // The node that a step leads to, or the node itself.
  uint32_t step(uint32_t node, size_t next) const {
    const Edge& edge = graph_.edges[node][next / 2];
    const bool call = edge.kind == Edge::Kind::kCall;
    if (edge.kind == Edge::Kind::kByte) return node;
    if (next % 2 == 0) return call ? graph_.starts[edge.start] : node;
    return !call || nullable_.of(graph_.starts[edge.start]) != kNever ? edge.target : node;
  }

  void open(uint32_t node) {
    index_[node] = low_[node] = ++counter_;
    open_.push_back(node);
    frames_.push_back({node, 0});
  }

  void close(uint32_t node) {
    if (low_[node] == index_[node]) {
      ++groups_;
      for (uint32_t member = ~node; member != node;) {
        member = open_.back();
        open_.pop_back();
        group_[member] = groups_;
      }
    }
    frames_.pop_back();
    if (!frames_.empty()) {
      uint32_t& low = low_[frames_.back().node];
      low = std::min(low, low_[node]);
    }
  }

  void visit(uint32_t root) {
    open(root);
    while (!frames_.empty()) {
      Frame& frame = frames_.back();
      const uint32_t node = frame.node;
      if (frame.next == 2 * graph_.edges[node].size()) {
        close(node);
        continue;
      }
      const uint32_t to = step(node, frame.next++);
      if (index_[to] == 0) {
        open(to);
      } else if (group_[to] == 0) {
        low_[node] = std::min(low_[node], index_[to]);
      }
    }
  }

  const Graph& graph_;
  const Heights& nullable_;
  std::vector<uint32_t> index_, low_, group_, open_;
  std::vector<Frame> frames_;
  uint32_t counter_ = 0;
  uint32_t groups_ = 0;
};

Status check_left_recursion(const RuleSet& rules, const Graph& graph) {
  const Heights nullable(graph, false);
  const EmptyCycles cycles(graph, nullable);
  for (uint32_t node = 0; node < graph.edges.size(); ++node) {
    for (const Edge& edge : graph.edges[node]) {
      if (edge.kind != Edge::Kind::kCall || !cycles.same(node, graph.starts[edge.start])) continue;
      return {StatusCode::kUnsupported,
              fmt::format("rule '{}' is left-recursive: it begins with itself; write it as a "
                          "repetition",
                          rules.name(static_cast<RuleId>(edge.start)))};
    }
  }
  return {};
}

// Cuts what cannot be spelled out of the edges.
void keep_spellable(const std::bitset<256>& spellable, Graph& graph) {
  for (auto& edges : graph.edges) {
    std::vector<Edge> kept;
    for (const Edge& edge : edges) {
      if (edge.kind != Edge::Kind::kByte) {
        kept.push_back(edge);
        continue;
      }
      for (int byte = edge.first; byte <= edge.last; ++byte) {
        if (!spellable.test(static_cast<size_t>(byte))) continue;
        const bool goes_on = byte > edge.first && spellable.test(static_cast<size_t>(byte - 1));
        if (!goes_on) {
          kept.push_back(edge);
          kept.back().first = static_cast<uint8_t>(byte);
        }
        kept.back().last = static_cast<uint8_t>(byte);
      }
    }
    edges = std::move(kept);
  }
}

// The nodes from which the end of the rule is all that can come.
std::vector<bool> ends(const Graph& graph) {
  std::vector<bool> end(graph.edges.size(), false);
  std::vector<std::vector<uint32_t>> sources(graph.edges.size());
  std::vector<uint32_t> left(graph.edges.size(), 0);
  std::vector<uint32_t> todo;
  for (uint32_t node = 0; node < graph.edges.size(); ++node) {
    left[node] = static_cast<uint32_t>(graph.edges[node].size());
    for (const Edge& edge : graph.edges[node]) {
      if (edge.kind == Edge::Kind::kEmpty) sources[edge.target].push_back(node);
    }
    if (graph.final[node] && left[node] == 0) todo.push_back(node);
  }
  while (!todo.empty()) {
    const uint32_t node = todo.back();
    todo.pop_back();
    end[node] = true;
    for (const uint32_t source : sources[node]) {
      if (--left[source] == 0) todo.push_back(source);
    }
  }
  return end;
}

void mark_tails(Graph& graph) {
  const std::vector<bool> end = ends(graph);
  for (auto& edges : graph.edges) {
    for (Edge& edge : edges) edge.tail = edge.kind == Edge::Kind::kCall && end[edge.target];
  }
}

void drop_dead_edges(const Heights& heights, Graph& graph) {
  for (auto& edges : graph.edges) {
    std::erase_if(edges, [&](const Edge& edge) {
      return heights.of(edge.target) == kNever ||
             (edge.kind == Edge::Kind::kCall && heights.of(graph.starts[edge.start]) == kNever);
    });
  }
}

void add_classes(Program& program) {
  std::bitset<257> begins;
  begins.set(0);
  for (const Edge& edge : program.edges) {
    if (edge.kind != Edge::Kind::kByte) continue;
    begins.set(edge.first);
    begins.set(size_t{edge.last} + 1);
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    if (begins.test(byte)) {
      program.class_byte.push_back(static_cast<uint8_t>(byte));
    }
    program.byte_class[byte] = static_cast<uint8_t>(program.class_byte.size() - 1);
  }
}

Program flatten(const Graph& graph, const Heights& heights, uint32_t root) {
  Program program;
  const std::vector<bool> used = reachable(graph, root);
  std::vector<uint32_t> number(graph.edges.size(), 0);
  uint32_t count = 0;
  for (uint32_t node = 0; node < number.size(); ++node) {
    if (used[node]) number[node] = count++;
  }
  program.start = number[root];
  for (uint32_t node = 0; node < number.size(); ++node) {
    if (!used[node]) continue;
    Program::Node flat;
    flat.first_edge = static_cast<uint32_t>(program.edges.size());
    flat.final = graph.final[node];
    flat.height = heights.of(node);
    const auto put = [&](Edge edge) {
      if (edge.kind == Edge::Kind::kCall) {
        const uint32_t start = graph.starts[edge.start];
        edge.start = number[start];
      }
      edge.target = number[edge.target];
      program.edges.push_back(edge);
    };
    for (const Edge& edge : graph.edges[node]) {
      if (edge.kind == Edge::Kind::kByte) put(edge);
    }
    flat.byte_edges = static_cast<uint32_t>(program.edges.size()) - flat.first_edge;
    for (const Edge& edge : graph.edges[node]) {
      if (edge.kind != Edge::Kind::kByte) put(edge);
    }
    flat.other_edges =
        static_cast<uint32_t>(program.edges.size()) - flat.first_edge - flat.byte_edges;
    program.nodes.push_back(flat);
  }
  add_classes(program);
  return program;
}

Status check_every_rule(const RuleSet& rules, const Graph& graph, uint32_t root) {
  const Heights heights(graph, true);
  const std::vector<bool> used = reachable(graph, root);
  for (size_t rule = 0; rule < rules.rule_count(); ++rule) {
    const uint32_t start = graph.starts[rule];
    if (!used[start] || heights.of(start) != kNever) continue;
    return {StatusCode::kInvalidArgument,
            fmt::format("rule '{}' has no finite expansion: no text matches it",
                        rules.name(static_cast<RuleId>(rule)))};
  }
  return {};
}

}  // namespace

Expected<Program> build_program(const RuleSet& rules, const ProgramOptions& options) {
  AERIE_ASSIGN_OR_RETURN(Graph graph, build_graph(rules));
  const uint32_t root = graph.starts[static_cast<size_t>(options.root)];
  if (options.every_rule_matches) AERIE_RETURN_IF_ERROR(check_every_rule(rules, graph, root));
  AERIE_RETURN_IF_ERROR(check_left_recursion(rules, graph));
  keep_spellable(options.spellable, graph);
  mark_tails(graph);
  const Heights heights(graph, true);
  if (heights.of(root) == kNever) {
    return Status(StatusCode::kInvalidArgument,
                  "no output fulfils it that the model's vocabulary can spell");
  }
  if (heights.of(root) > kMaxDepth) {
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("the shortest output needs {} open rules; at most {} may be open",
                              heights.of(root), kMaxDepth));
  }
  drop_dead_edges(heights, graph);
  return flatten(graph, heights, root);
}

}  // namespace aerie::grammar
