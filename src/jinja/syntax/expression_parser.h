// Expressions, in Jinja's grammar.
#pragma once

#include "base/status.h"
#include "jinja/syntax/ast.h"
#include "jinja/syntax/token_stream.h"

namespace aerie::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}

  Expected<ExpressionPtr> expression();
  // Without `a if b else c` on its outermost level.
  Expected<ExpressionPtr> unconditional() { return binary(0); }
  // Or several with commas between them, which are a tuple.
  struct Tuple {
    bool conditional = true;
    bool may_be_empty = false;     // in parentheses
    std::string_view ends_before;  // a name, after a comma
  };
  Expected<ExpressionPtr> tuple(Tuple options);
  // The filters that follow, "|" first unless `inside`, applied to `operand` (null in a block).
  Expected<ExpressionPtr> filters(ExpressionPtr operand, bool inside);
  Expected<Target> target(bool may_be_attribute);

 private:
  Expected<ExpressionPtr> binary(int level);
  Expected<ExpressionPtr> compared(ExpressionPtr first);
  bool next_comparison(Operator& op);
  Expected<ExpressionPtr> power();
  Expected<ExpressionPtr> unary(bool with_filters);
  Expected<ExpressionPtr> primary();
  Expected<ExpressionPtr> name();
  Expected<ExpressionPtr> list();
  Expected<ExpressionPtr> dict();
  Expected<ExpressionPtr> postfix(ExpressionPtr operand);
  Expected<ExpressionPtr> subscript(ExpressionPtr operand);
  Expected<ExpressionPtr> item(ExpressionPtr operand, const Place& place);
  Expected<ExpressionPtr> call(ExpressionPtr operand);
  Expected<ExpressionPtr> filtered(ExpressionPtr operand);
  Expected<ExpressionPtr> test(ExpressionPtr operand);
  Expected<std::vector<Argument>> arguments();
  Expected<Target> single_target(bool may_be_attribute);

  // With its operands, whose trees may not be too high.
  template <typename... Operands>
  Expected<ExpressionPtr> make(Expression::Kind kind, const Place& place, Operands... operands);
  Expected<ExpressionPtr> finished(ExpressionPtr expression) const;

  TokenStream& tokens_;
};

}  // namespace aerie::jinja
