// From rules to the graph that the automaton walks.
//
// A front end builds expressions (sequences, alternatives, repetitions, bytes, references to rules)
// and compiles them into nodes with edges of three kinds: a range of bytes, a call of a rule, or
// nothing. Every node of a compiled graph lies on a way to the end of its rule, so whoever walks it
// never comes to a dead end.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace aerie {

using ByteSet = std::bitset<256>;

// Immutable after construction: safe to share between threads.
struct GrammarGraph {
  struct ByteEdge {
    uint8_t first = 0;
    uint8_t last = 0;
    uint32_t to = 0;
  };
  struct CallEdge {
    uint32_t start = 0;  // of the rule that is called
    uint32_t back_to = 0;
    bool tail = false;  // nothing is left to do after it
  };
  // Edges of node i are those from its first up to node i + 1's first.
  struct Node {
    uint32_t bytes = 0;
    uint32_t calls = 0;
    uint32_t free = 0;
    bool end = false;  // of its rule
  };

  std::vector<Node> nodes;  // one more than there are
  std::vector<ByteEdge> byte_edges;
  std::vector<CallEdge> call_edges;
  std::vector<uint32_t> free_edges;
  uint32_t start = 0;
  std::array<uint8_t, 256> class_of{};  // bytes that no edge tells apart share a class
  std::vector<uint8_t> class_bytes;     // one byte of each class
};

struct CodePointRange {
  char32_t first = 0;
  char32_t last = 0;
};

// Sorted, disjoint, without surrogates, from ranges in any order.
std::vector<CodePointRange> normalized(std::vector<CodePointRange> ranges);
// All characters but these; `ranges` as normalized() returns them.
std::vector<CodePointRange> complement(std::span<const CodePointRange> ranges);

class GrammarBuilder {
 public:
  using Expr = uint32_t;
  using Rule = uint32_t;
  static constexpr int kUnbounded = -1;
  static constexpr int kMaxRepeat = 100'000;
  static constexpr size_t kMaxNodes = 400'000;
  static constexpr size_t kMaxExpressions = 1'000'000;
  static constexpr int kMaxNesting = 1000;

  GrammarBuilder();

  Expr empty() const { return 0; }
  Expr never() const { return 1; }  // matches nothing, not even the empty text
  Expr byte_range(uint8_t first, uint8_t last);
  Expr literal(std::string_view text);
  // One character of those, in UTF-8.
  Expr code_points(const std::vector<CodePointRange>& ranges);
  Expr sequence(std::vector<Expr> items);
  Expr any_of(std::vector<Expr> branches);
  // `most` may be kUnbounded. Requires 0 <= least.
  Expr repeat(Expr item, int least, int most);
  Expr optional(Expr item) { return repeat(item, 0, 1); }
  Expr call(Rule rule);

  // Rules may be called before they are defined; an undefined one matches nothing. Names are for
  // messages.
  Rule add_rule(std::string name);
  void define(Rule rule, Expr body) { rules_[rule].body = body; }
  // A rule with this body, called.
  Expr shared(std::string name, Expr body);

  // The first limit that was exceeded, else ok.
  Status status() const { return status_; }

  // What can be spelled with `bytes` alone. kUnsupported naming the rule for left recursion;
  // kInvalidArgument if nothing matches, and, with `strict`, if any rule in reach matches nothing.
  Expected<GrammarGraph> compile(Rule root, const ByteSet& bytes, bool strict);

 private:
  friend class GraphCompiler;
  enum class Kind : uint8_t { kEmpty, kNever, kBytes, kSequence, kAnyOf, kRepeat, kCall };
  struct Node {
    Kind kind = Kind::kEmpty;
    uint16_t depth = 0;
    int a = 0;  // first byte, least, rule, first child
    int b = 0;  // last byte, most, number of children
    Expr item = 0;
  };
  struct RuleBody {
    std::string name;
    Expr body = 1;
  };

  Expr add(Node node);
  Expr add_children(Kind kind, const std::vector<Expr>& children);
  void fail(const std::string& message);

  std::vector<Node> nodes_;
  std::vector<Expr> children_;
  std::vector<RuleBody> rules_;
  Status status_;
};

}  // namespace aerie
