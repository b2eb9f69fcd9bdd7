// Expressions, in Jinja's grammar. After a failure (token_stream.h) they are anything, but not
// null.
#pragma once

#include "jinja/syntax/ast.h"
#include "jinja/syntax/token_stream.h"

namespace aerie::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}

  ExpressionPtr expression();
  // One, or several with commas between them, which are a tuple.
  struct Tuple {
    bool conditional = true;  // may be `a if b else c`
    bool may_be_empty = false;
    std::string_view ends_before = {};  // after a comma
  };
  ExpressionPtr tuple(Tuple options);
  ExpressionPtr empty_tuple() { return make(Expression::Kind::kTuple, tokens_.place()); }
  // The filters that follow, "|" first unless `inside`, applied to `operand` (null in a block, and
  // then null if there are none).
  ExpressionPtr filters(ExpressionPtr operand, bool inside);
  Target target(bool may_be_attribute);
  // What `each` reads, any number of times with commas between, until `close`.
  template <typename Each>
  void list_until(std::string_view close, Each each) {
    for (bool first = true; !tokens_.is(close) && !tokens_.failed(); first = false) {
      if (!first) tokens_.expect(",");
      if (!tokens_.is(close)) each();
    }
    tokens_.expect(close);
  }

 private:
  ExpressionPtr binary(int level);
  ExpressionPtr unary(bool with_filters);
  ExpressionPtr primary();
  ExpressionPtr name();
  ExpressionPtr items(Expression::Kind kind, std::string_view close);
  ExpressionPtr postfix(ExpressionPtr operand, bool with_filters);
  ExpressionPtr attribute(ExpressionPtr operand);
  ExpressionPtr item(ExpressionPtr operand);
  ExpressionPtr call(ExpressionPtr operand);
  ExpressionPtr test(ExpressionPtr operand);
  void arguments(Expression& call);
  Target single_target(bool may_be_attribute);

  template <typename... Operands>
  ExpressionPtr make(Expression::Kind kind, const Place& place, Operands... operands) {
    auto expression = std::make_unique<Expression>();
    expression->kind = kind;
    expression->place = place;
    (add(*expression, std::move(operands)), ...);
    return expression;
  }
  ExpressionPtr literal(const Place& place, const Value& value);
  // An operand, whose tree may not be too high; may be null.
  void add(Expression& expression, ExpressionPtr operand);
  void grow(Expression& expression, const Expression& part);

  TokenStream& tokens_;
};

}  // namespace aerie::jinja
