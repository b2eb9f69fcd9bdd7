// The rules as a graph of transitions on bytes, of which every part can be completed.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "grammar/grammar_rules.h"

namespace aerie::grammar {

inline constexpr size_t kMaxNodes = size_t{1} << 18;
inline constexpr size_t kMaxEdges = size_t{1} << 20;
// Calls that may be open at once; those that would need more are not taken, so that JSON ends its
// nesting in time for its readers.
inline constexpr int kMaxDepth = 256;

struct Edge {
  enum class Kind : uint8_t { kByte, kEmpty, kCall };

  Kind kind = Kind::kEmpty;
  uint8_t first = 0;    // kByte
  uint8_t last = 0;     // kByte, inclusive
  bool tail = false;    // kCall: nothing is left to do behind it
  uint32_t target = 0;  // kCall: where to go on when the callee is done
  uint32_t start = 0;   // kCall: the callee's first node
};

// Immutable.
struct Program {
  struct Node {
    uint32_t first_edge = 0;
    uint32_t byte_edges = 0;   // these come first
    uint32_t other_edges = 0;  // behind them
    uint16_t height = 0;       // the calls that have to be open to finish the rule from here
    bool final = false;        // of its rule
  };

  uint32_t start = 0;
  std::vector<Node> nodes;
  std::vector<Edge> edges;
  std::array<uint8_t, 256> byte_class{};  // bytes that no edge tells apart share one
  std::vector<uint8_t> class_byte;        // a byte of each class
};

struct ProgramOptions {
  RuleId root = 0;
  // Whether it is an error if a rule that the root reaches matches nothing.
  bool every_rule_matches = false;
  // Bytes that no output may hold, because no token spells them, are left out.
  std::bitset<256> spellable;
};

// kInvalidArgument naming the rule that matches nothing or, kUnsupported, is left-recursive;
// kResourceExhausted if the program is too large.
Expected<Program> build_program(const RuleSet& rules, const ProgramOptions& options);

// A program under construction: edges by node.
struct Graph {
  std::vector<std::vector<Edge>> edges;
  std::vector<bool> final;
  std::vector<uint32_t> starts;  // of the rules; a call's edge has the rule in `start`
};

// Every rule as a part of the graph. kResourceExhausted as above.
Expected<Graph> build_graph(const RuleSet& rules);

}  // namespace aerie::grammar
