#include "grammar/grammar_rules.h"

#include <utility>

namespace aerie::grammar {

RuleId RuleSet::add_rule(std::string name) {
  names_.push_back(std::move(name));
  bodies_.push_back(-1);
  return static_cast<RuleId>(bodies_.size() - 1);
}

ExprId RuleSet::add(Expr expr) {
  exprs_.push_back(std::move(expr));
  return static_cast<ExprId>(exprs_.size() - 1);
}

ExprId RuleSet::bytes(std::string_view text) {
  Expr expr;
  expr.kind = Expr::Kind::kBytes;
  expr.bytes = text;
  return add(std::move(expr));
}

ExprId RuleSet::char_class(const CodePointSet& set) {
  Expr expr;
  expr.kind = Expr::Kind::kClass;
  const auto [entry, added] = set_ids_.try_emplace(set, static_cast<int32_t>(sets_.size()));
  if (added) sets_.push_back(set);
  expr.target = entry->second;
  return add(std::move(expr));
}

ExprId RuleSet::sequence(std::vector<ExprId> parts) {
  if (parts.size() == 1) return parts[0];
  Expr expr;
  expr.kind = Expr::Kind::kSequence;
  expr.children = std::move(parts);
  return add(std::move(expr));
}

ExprId RuleSet::alternatives(std::vector<ExprId> parts) {
  if (parts.size() == 1) return parts[0];
  Expr expr;
  expr.kind = Expr::Kind::kAlternatives;
  expr.children = std::move(parts);
  return add(std::move(expr));
}

ExprId RuleSet::repeat(ExprId part, int min, int max) {
  Expr expr;
  expr.kind = Expr::Kind::kRepeat;
  expr.min = min;
  expr.max = max;
  expr.children = {part};
  return add(std::move(expr));
}

ExprId RuleSet::rule(RuleId rule) {
  Expr expr;
  expr.kind = Expr::Kind::kRule;
  expr.target = rule;
  return add(std::move(expr));
}

RuleId RuleSet::define(std::string name, ExprId body) {
  const RuleId rule = add_rule(std::move(name));
  set_body(rule, body);
  return rule;
}

}  // namespace aerie::grammar
