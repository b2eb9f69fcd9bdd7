// The rules as a graph of transitions on bytes, of which every part can be completed.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "grammar/automaton/program_graph.h"

namespace aerie::grammar {

// Calls that may be open at once; those that would need more are not taken, so that JSON ends its
// nesting in time for its readers.
inline constexpr int kMaxDepth = 256;

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

}  // namespace aerie::grammar
