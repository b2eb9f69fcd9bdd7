// A program under construction: the rules as nodes and edges.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "grammar/grammar_rules.h"

namespace aerie::grammar {

inline constexpr size_t kMaxNodes = size_t{1} << 18;
inline constexpr size_t kMaxEdges = size_t{1} << 20;

struct Edge {
  enum class Kind : uint8_t { kByte, kEmpty, kCall };

  Kind kind = Kind::kEmpty;
  uint8_t first = 0;    // kByte
  uint8_t last = 0;     // kByte, inclusive
  bool tail = false;    // kCall: nothing is left to do behind it
  uint32_t target = 0;  // kCall: where to go on when the callee is done
  uint32_t start = 0;   // kCall: the callee's first node
};

// Edges by node.
struct Graph {
  std::vector<std::vector<Edge>> edges;
  std::vector<bool> final;
  std::vector<uint32_t> starts;  // of the rules; a call's edge has the rule in `start`
};

// Every rule as a part of the graph. kResourceExhausted if there are too many nodes or edges.
Expected<Graph> build_graph(const RuleSet& rules);

}  // namespace aerie::grammar
