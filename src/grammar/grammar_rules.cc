#include "grammar/grammar_rules.h"

#include <algorithm>
#include <utility>

namespace aerie::grammar {

RuleId RuleSet::add_rule(std::string name) {
  if (!budget_.spend(sizeof(RuleId) + sizeof(std::string) + name.size()) && !bodies_.empty())
    return 0;
  names_.push_back(std::move(name));
  bodies_.push_back(-1);
  return static_cast<RuleId>(bodies_.size() - 1);
}

ExprId RuleSet::add(Expr expr) {
  const size_t size = sizeof(Expr) + expr.bytes.size() + expr.children.size() * sizeof(ExprId);
  if (!budget_.spend(size) && !exprs_.empty()) return 0;
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
  if (added) {
    sets_.push_back(set);
    budget_.spend(2 * (sizeof(CodePointSet) + set.ranges().size() * sizeof(CodePointRange)));
  }
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

ExprId RuleSet::one_of(std::vector<std::string> texts) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return tails(texts, 0, 0);
}

ExprId RuleSet::tails(std::span<const std::string> texts, size_t begin, int depth) {
  // Expressions are walked recursively, so that they must not nest as deep as texts are long.
  constexpr int kMaxBranches = 32;
  std::vector<ExprId> ways;
  for (size_t i = 0; i < texts.size() && !spent();) {
    size_t end = i + 1;
    const std::string_view first = std::string_view(texts[i]).substr(begin);
    while (end < texts.size() && !first.empty() && depth < kMaxBranches &&
           texts[end][begin] == first[0])
      ++end;
    if (end == i + 1) {
      ways.push_back(bytes(first));
    } else {
      // Of sorted texts all share what the first and the last do.
      const std::string_view last = std::string_view(texts[end - 1]).substr(begin);
      const auto common = static_cast<size_t>(
          std::mismatch(first.begin(), first.end(), last.begin(), last.end()).first -
          first.begin());
      const ExprId rest = tails(texts.subspan(i, end - i), begin + common, depth + 1);
      ways.push_back(sequence({bytes(first.substr(0, common)), rest}));
    }
    i = end;
  }
  return alternatives(std::move(ways));
}

RuleId RuleSet::define(std::string name, ExprId body) {
  const RuleId rule = add_rule(std::move(name));
  set_body(rule, body);
  return rule;
}

}  // namespace aerie::grammar
