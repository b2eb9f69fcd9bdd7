#include "jinja/syntax/expression_parser.h"

#include <algorithm>
#include <array>

#include "base/errors.h"
#include "format/text.h"

namespace aerie::jinja {
namespace {

using What = Expression::Kind;
using Type = Token::Type;

// Levels of operators, weakest first; those of one level bind from left to right.
constexpr int kOr = 0, kAnd = 1, kNot = 2, kComparison = 3, kSum = 4, kConcatenation = 5,
              kProduct = 6, kPower = 7;

struct Infix {
  int level;
  std::string_view spelled;
  What kind;
  Operator op = Operator::kAdd;
};
constexpr Infix kInfixes[] = {
    {kOr, "or", What::kOr},
    {kAnd, "and", What::kAnd},
    {kComparison, "==", What::kCompare, Operator::kEqual},
    {kComparison, "!=", What::kCompare, Operator::kNotEqual},
    {kComparison, "<", What::kCompare, Operator::kLess},
    {kComparison, "<=", What::kCompare, Operator::kLessEqual},
    {kComparison, ">", What::kCompare, Operator::kGreater},
    {kComparison, ">=", What::kCompare, Operator::kGreaterEqual},
    {kComparison, "in", What::kCompare, Operator::kIn},
    {kComparison, "not", What::kCompare, Operator::kNotIn},  // with "in" behind it
    {kSum, "+", What::kArithmetic, Operator::kAdd},
    {kSum, "-", What::kArithmetic, Operator::kSubtract},
    {kConcatenation, "~", What::kArithmetic, Operator::kConcatenate},
    {kProduct, "*", What::kArithmetic, Operator::kMultiply},
    {kProduct, "/", What::kArithmetic, Operator::kDivide},
    {kProduct, "//", What::kArithmetic, Operator::kFloorDivide},
    {kProduct, "%", What::kArithmetic, Operator::kModulo},
    {kPower, "**", What::kArithmetic, Operator::kPower},
};

// The operator of that level that comes next, which is taken; null if there is none.
const Infix* take_infix(TokenStream& tokens, int level) {
  for (const Infix& infix : kInfixes) {
    if (infix.level != level || !tokens.is(infix.spelled)) continue;
    if (infix.op == Operator::kNotIn && !tokens.is("in", 1)) return nullptr;
    tokens.take();
    if (infix.op == Operator::kNotIn) tokens.take();
    return &infix;
  }
  return nullptr;
}

// What has a name but is no variable; absent for all else.
Value constant(std::string_view name) {
  if (name == "true" || name == "True") return Value::of(true);
  if (name == "false" || name == "False") return Value::of(false);
  return name == "none" || name == "None" ? Value::none() : Value::absent();
}

}  // namespace

// A chain such as a + b + c + ... is as high as it is long.
void ExpressionParser::grow(Expression& expression, const Expression& part) {
  expression.height = std::max(expression.height, part.height + 1);
  if (expression.height > 2 * tokens_.limits().nesting) tokens_.fail_too_deep();
}

void ExpressionParser::add(Expression& expression, ExpressionPtr operand) {
  if (operand != nullptr) grow(expression, *operand);
  expression.operands.push_back(std::move(operand));
}

ExpressionPtr ExpressionParser::literal(const Place& place, const Value& value) {
  ExpressionPtr expression = make(What::kLiteral, place);
  expression->literal = value;
  return expression;
}

ExpressionPtr ExpressionParser::expression() {
  const TokenStream::Level level(tokens_);
  ExpressionPtr value = binary(kOr);
  while (tokens_.is("if")) {
    const Place place = tokens_.take().place;
    ExpressionPtr condition = binary(kOr);
    ExpressionPtr otherwise = tokens_.skip("else") ? expression() : nullptr;
    value = make(What::kConditional, place, std::move(condition), std::move(value),
                 std::move(otherwise));
  }
  return value;
}

ExpressionPtr ExpressionParser::binary(int level) {
  if (level > kPower) return unary(true);
  if (level == kNot && tokens_.is("not")) {
    const TokenStream::Level nested(tokens_);
    const Place place = tokens_.take().place;
    return make(What::kNot, place, binary(kNot));
  }
  ExpressionPtr left = binary(level + 1);
  bool compared = false;
  for (;;) {
    const Place place = tokens_.place();
    const Infix* infix = take_infix(tokens_, level);
    if (infix == nullptr) return left;
    ExpressionPtr right = binary(level + 1);
    if (compared) {
      add(*left, std::move(right));
    } else {
      left = make(infix->kind, place, std::move(left), std::move(right));
      compared = level == kComparison;
    }
    left->operators.push_back(infix->op);
  }
}

ExpressionPtr ExpressionParser::unary(bool with_filters) {
  const TokenStream::Level level(tokens_);
  ExpressionPtr value;
  if (tokens_.is("-") || tokens_.is("+")) {
    const Token& sign = tokens_.take();
    value = make(What::kSign, sign.place, unary(false));
    value->operators = {sign.text == "-" ? Operator::kSubtract : Operator::kAdd};
  } else {
    value = primary();
  }
  return postfix(std::move(value), with_filters);
}

ExpressionPtr ExpressionParser::name() {
  const Token& token = tokens_.take();
  if (const Value value = constant(token.text); !value.is_absent()) {
    return literal(token.place, value);
  }
  ExpressionPtr expression = make(What::kName, token.place);
  expression->name = tokens_.number_of(token.text);
  expression->native = find_function(token.text);
  expression->text = std::make_unique<Text>(token.text);
  tokens_.note_use(expression->name);
  return expression;
}

ExpressionPtr ExpressionParser::primary() {
  const Place place = tokens_.place();
  if (tokens_.is(Type::kName)) return name();
  if (tokens_.is(Type::kInteger)) return literal(place, Value::of(tokens_.take().integer));
  if (tokens_.is(Type::kFloat)) return literal(place, Value::of(tokens_.take().real));
  if (tokens_.is(Type::kString)) {
    std::string text;
    while (tokens_.is(Type::kString)) text += tokens_.take().text;
    auto owned = std::make_unique<Text>(std::move(text));
    ExpressionPtr expression = literal(place, Value::of(owned.get()));
    expression->text = std::move(owned);
    return expression;
  }
  if (tokens_.skip("(")) {
    ExpressionPtr value = tuple({true, true});
    tokens_.expect(")");
    return value;
  }
  if (tokens_.is("[")) return items(What::kList, "]");
  if (tokens_.is("{")) return items(What::kDict, "}");
  tokens_.fail_unexpected("an expression");
  return make(What::kLiteral, place);
}

ExpressionPtr ExpressionParser::tuple(Tuple options) {
  ExpressionPtr result = make(What::kTuple, tokens_.place());
  bool comma = false;
  const auto ends = [&] {
    return tokens_.is("}}") || tokens_.is("%}") || tokens_.is(")") ||
           tokens_.is(options.ends_before);
  };
  while (!ends()) {
    add(*result, options.conditional ? expression() : binary(kOr));
    if (!tokens_.skip(",")) break;
    comma = true;
  }
  if (!comma && result->operands.size() == 1) return std::move(result->operands[0]);
  if (!comma && !options.may_be_empty) tokens_.fail_unexpected("an expression");
  return result;
}

ExpressionPtr ExpressionParser::items(What kind, std::string_view close) {
  ExpressionPtr result = make(kind, tokens_.take().place);
  list_until(close, [&] {
    add(*result, expression());
    if (kind != What::kDict) return;
    tokens_.expect(":");
    add(*result, expression());
  });
  return result;
}

// What stands behind an operand; filters and tests come last.
ExpressionPtr ExpressionParser::postfix(ExpressionPtr operand, bool with_filters) {
  for (bool filtered = false;;) {
    if (tokens_.is("(")) {
      operand = call(std::move(operand));
    } else if (!filtered && tokens_.is(".")) {
      operand = attribute(std::move(operand));
    } else if (!filtered && tokens_.is("[")) {
      operand = item(std::move(operand));
    } else if (with_filters && tokens_.is("|")) {
      operand = filters(std::move(operand), false);
      filtered = true;
    } else if (with_filters && tokens_.is("is")) {
      operand = test(std::move(operand));
      filtered = true;
    } else {
      return operand;
    }
  }
}

ExpressionPtr ExpressionParser::attribute(ExpressionPtr operand) {
  const Place place = tokens_.take().place;
  const Token& token = tokens_.take();
  if (token.type == Type::kInteger) {
    ExpressionPtr key = literal(token.place, Value::of(token.integer));
    return make(What::kItem, place, std::move(operand), std::move(key));
  }
  if (token.type != Type::kName) {
    tokens_.fail(token.place,
                 invalid_data("expected the name or number of an attribute after '.'"));
  }
  ExpressionPtr result = make(What::kAttribute, place, std::move(operand));
  result->text = std::make_unique<Text>(token.text);
  return result;
}

ExpressionPtr ExpressionParser::item(ExpressionPtr operand) {
  const Place place = tokens_.take().place;
  std::array<ExpressionPtr, 3> parts;
  size_t part = 0;
  for (;; ++part) {
    if (!tokens_.is("]") && !tokens_.is(":")) parts[part] = expression();
    if (part == 2 || !tokens_.skip(":")) break;
  }
  if (part == 0 && tokens_.is(",")) {
    ExpressionPtr key = make(What::kTuple, place, std::move(parts[0]));
    while (tokens_.skip(",")) add(*key, expression());
    parts[0] = std::move(key);
  }
  tokens_.expect("]");
  if (part > 0) {
    return make(What::kSlice, place, std::move(operand), std::move(parts[0]), std::move(parts[1]),
                std::move(parts[2]));
  }
  if (parts[0] == nullptr) {
    tokens_.fail(place, invalid_data("expected an index between '[' and ']'"));
  }
  return make(What::kItem, place, std::move(operand), std::move(parts[0]));
}

void ExpressionParser::arguments(Expression& call) {
  using Given = Argument::Kind;
  const Place place = tokens_.place();
  tokens_.expect("(");
  Given last = Given::kPositional;
  list_until(")", [&] {
    Argument argument;
    if (tokens_.skip("*")) {
      argument.kind = Given::kSpread;
    } else if (tokens_.skip("**")) {
      argument.kind = Given::kSpreadNamed;
    } else if (tokens_.is(Type::kName) && tokens_.is("=", 1)) {
      argument.kind = Given::kNamed;
      argument.name = tokens_.take().text;
      tokens_.take();
    }
    // Positions come first, then names; * may stand before names too.
    if (argument.kind == Given::kPositional && last != Given::kPositional) {
      tokens_.fail(place, invalid_data("an argument without a name after one with a name"));
    }
    last = argument.kind;
    argument.value = expression();
    grow(call, *argument.value);
    call.arguments.push_back(std::move(argument));
  });
}

ExpressionPtr ExpressionParser::call(ExpressionPtr operand) {
  ExpressionPtr result = make(What::kCall, tokens_.place(), std::move(operand));
  arguments(*result);
  return result;
}

ExpressionPtr ExpressionParser::filters(ExpressionPtr operand, bool inside) {
  for (; inside || tokens_.skip("|"); inside = false) {
    const Token& token = tokens_.expect_name();
    operand = make(What::kFilter, token.place, std::move(operand));
    operand->native = find_filter(token.text);
    if (operand->native == nullptr) {
      tokens_.fail(token.place, not_supported("there is no filter '{}'", printable(token.text)));
    }
    if (tokens_.is("(")) arguments(*operand);
  }
  return operand;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr operand) {
  tokens_.take();
  const bool negated = tokens_.skip("not");
  const Token& token = tokens_.expect_name();
  ExpressionPtr result = make(What::kTest, token.place, std::move(operand));
  result->native = find_test(token.text);
  if (result->native == nullptr) {
    tokens_.fail(token.place, not_supported("there is no test '{}'", printable(token.text)));
  }
  if (tokens_.is("is")) tokens_.fail(tokens_.place(), invalid_data("two tests in a row"));
  const bool word = tokens_.is("else") || tokens_.is("or") || tokens_.is("and");
  const Type type = tokens_.peek().type;
  const bool value = type == Type::kName || type == Type::kString || type == Type::kInteger ||
                     type == Type::kFloat || tokens_.is("[") || tokens_.is("{");
  if (tokens_.is("(")) {
    arguments(*result);
  } else if (value && !word) {
    const TokenStream::Level level(tokens_);
    Argument argument;
    argument.value = postfix(primary(), false);
    grow(*result, *argument.value);
    result->arguments.push_back(std::move(argument));
  }
  return negated ? make(What::kNot, token.place, std::move(result)) : std::move(result);
}

Target ExpressionParser::single_target(bool may_be_attribute) {
  Target result;
  result.place = tokens_.place();
  if (tokens_.skip("(")) {
    result = target(may_be_attribute);
    tokens_.expect(")");
    return result;
  }
  if (!tokens_.is(Type::kName)) tokens_.fail_unexpected("a name to assign to");
  const Token& token = tokens_.take();
  if (!constant(token.text).is_absent()) {
    tokens_.fail(token.place, invalid_data("'{}' cannot be assigned to", token.text));
  }
  result.name = tokens_.number_of(token.text);
  result.spelled = token.text;
  if (may_be_attribute && tokens_.skip(".")) {
    result.attribute = std::make_unique<Text>(tokens_.expect_name().text);
  }
  return result;
}

Target ExpressionParser::target(bool may_be_attribute) {
  const TokenStream::Level level(tokens_);
  const Place place = tokens_.place();
  Target first = single_target(may_be_attribute);
  if (!tokens_.is(",")) return first;
  Target result;
  result.place = place;
  result.is_tuple = true;
  result.parts.push_back(std::move(first));
  while (tokens_.skip(",")) {
    if (tokens_.is("in") || (!tokens_.is(Type::kName) && !tokens_.is("("))) break;
    result.parts.push_back(single_target(may_be_attribute));
  }
  return result;
}

}  // namespace aerie::jinja
