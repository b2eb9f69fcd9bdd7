// What the front ends write and the program is built from: rules of expressions.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/automaton/code_points.h"
#include "grammar/budget.h"

namespace aerie::grammar {

using ExprId = int32_t;
using RuleId = int32_t;

inline constexpr int kUnbounded = -1;

// Of what people write: groups in one another, and repetitions.
inline constexpr int kMaxNesting = 100;
inline constexpr int kMaxRepeat = 100000;

struct Expr {
  enum class Kind : uint8_t { kBytes, kClass, kSequence, kAlternatives, kRepeat, kRule };

  Kind kind = Kind::kBytes;
  int min = 0;                   // kRepeat
  int max = 0;                   // kRepeat; kUnbounded
  int32_t target = 0;            // kRule: the rule; kClass: the set
  std::string bytes;             // kBytes
  std::vector<ExprId> children;  // kSequence, kAlternatives (none: nothing matches), kRepeat (one)
};

// A rule without a body matches nothing. What is added is paid from the budget, which must outlive
// it; once that is spent nothing more is kept, and the set is of no use: what adds in a loop or a
// recursion looks for that.
class RuleSet {
 public:
  explicit RuleSet(Budget& budget) : budget_(budget) {}

  Budget& budget() const { return budget_; }
  bool spent() const { return budget_.spent(); }

  RuleId add_rule(std::string name);
  void set_body(RuleId rule, ExprId body) { bodies_[static_cast<size_t>(rule)] = body; }

  ExprId bytes(std::string_view text);
  ExprId char_class(const CodePointSet& set);
  ExprId sequence(std::vector<ExprId> parts);
  ExprId alternatives(std::vector<ExprId> parts);
  ExprId repeat(ExprId part, int min, int max);
  ExprId optional(ExprId part) { return repeat(part, 0, 1); }
  ExprId rule(RuleId rule);
  ExprId nothing() { return alternatives({}); }
  // One of these texts. What they begin with alike is there once.
  ExprId one_of(std::vector<std::string> texts);

  // A rule with this body; the name is for messages.
  RuleId define(std::string name, ExprId body);

  size_t rule_count() const { return bodies_.size(); }
  size_t expr_count() const { return exprs_.size(); }
  const std::string& name(RuleId rule) const { return names_[static_cast<size_t>(rule)]; }
  ExprId body(RuleId rule) const { return bodies_[static_cast<size_t>(rule)]; }  // -1: none
  const Expr& expr(ExprId id) const { return exprs_[static_cast<size_t>(id)]; }
  const CodePointSet& set(const Expr& expr) const {
    return sets_[static_cast<size_t>(expr.target)];
  }

 private:
  ExprId add(Expr expr);
  // Of sorted texts that differ, what follows their first `begin` bytes, in which they agree.
  ExprId tails(std::span<const std::string> texts, size_t begin, int depth);

  Budget& budget_;
  std::vector<std::string> names_;
  std::vector<ExprId> bodies_;
  std::vector<Expr> exprs_;
  std::vector<CodePointSet> sets_;
  std::map<CodePointSet, int32_t> set_ids_;
};

}  // namespace aerie::grammar
