#include "jinja/syntax/expression_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "format/text.h"

namespace aerie::jinja {
namespace {

using What = Expression::Kind;
using Type = Token::Type;

ExpressionPtr new_expression(What kind, const Place& place) {
  auto expression = std::make_unique<Expression>();
  expression->kind = kind;
  expression->place = place;
  return expression;
}

// The binary operators that bind from left to right, weakest first. Level 2 is `not` and level 3
// the comparisons, which are special.
constexpr int kOr = 0, kAnd = 1, kNot = 2, kComparison = 3, kSum = 4, kConcatenation = 5,
              kProduct = 6;

bool operator_at(const TokenStream& tokens, int level, Operator& op) {
  struct Entry {
    int level;
    std::string_view spelled;
    Operator op;
  };
  constexpr std::array<Entry, 7> kOperators = {{
      {kSum, "+", Operator::kAdd},
      {kSum, "-", Operator::kSubtract},
      {kConcatenation, "~", Operator::kConcatenate},
      {kProduct, "*", Operator::kMultiply},
      {kProduct, "/", Operator::kDivide},
      {kProduct, "//", Operator::kFloorDivide},
      {kProduct, "%", Operator::kModulo},
  }};
  for (const Entry& entry : kOperators) {
    if (entry.level == level && tokens.is_operator(entry.spelled)) {
      op = entry.op;
      return true;
    }
  }
  return false;
}

}  // namespace

Expected<ExpressionPtr> ExpressionParser::finished(ExpressionPtr expression) const {
  int height = 0;
  for (const auto& operand : expression->operands) {
    if (operand != nullptr) height = std::max(height, operand->height);
  }
  for (const auto& argument : expression->arguments) {
    height = std::max(height, argument.value->height);
  }
  expression->height = height + 1;
  // A chain such as a + b + c + ... is as high as it is long.
  if (expression->height > 2 * tokens_.limits().nesting) return tokens_.too_deep();
  return expression;
}

template <typename... Operands>
Expected<ExpressionPtr> ExpressionParser::make(What kind, const Place& place,
                                               Operands... operands) {
  ExpressionPtr expression = new_expression(kind, place);
  (expression->operands.push_back(std::move(operands)), ...);
  return finished(std::move(expression));
}

Expected<ExpressionPtr> ExpressionParser::expression() {
  const TokenStream::Level level(tokens_);
  if (level.too_deep()) return tokens_.too_deep();
  AERIE_ASSIGN_OR_RETURN(ExpressionPtr value, binary(kOr));
  while (tokens_.is_name("if")) {
    const Place place = tokens_.take().place;
    AERIE_ASSIGN_OR_RETURN(ExpressionPtr condition, binary(kOr));
    ExpressionPtr otherwise;
    if (tokens_.skip_name("else")) {
      AERIE_ASSIGN_OR_RETURN(otherwise, expression());
    }
    AERIE_ASSIGN_OR_RETURN(value, make(What::kConditional, place, std::move(condition),
                                       std::move(value), std::move(otherwise)));
  }
  return value;
}

Expected<ExpressionPtr> ExpressionParser::binary(int level) {
  if (level == kNot && tokens_.is_name("not")) {
    const TokenStream::Level nested(tokens_);
    if (nested.too_deep()) return tokens_.too_deep();
    const Place place = tokens_.take().place;
    AERIE_ASSIGN_OR_RETURN(ExpressionPtr operand, binary(kNot));
    return make(What::kNot, place, std::move(operand));
  }
  if (level > kProduct) return power();
  AERIE_ASSIGN_OR_RETURN(ExpressionPtr left, binary(level + 1));
  if (level == kNot) return left;
  if (level == kComparison) return compared(std::move(left));
  for (;;) {
    const Place place = tokens_.place();
    Operator op = Operator::kAdd;
    const bool word =
        level == kOr ? tokens_.skip_name("or") : level == kAnd && tokens_.skip_name("and");
    if (!word) {
      if (!operator_at(tokens_, level, op)) return left;
      tokens_.take();
    }
    AERIE_ASSIGN_OR_RETURN(ExpressionPtr right, binary(level + 1));
    const What kind = level == kOr ? What::kOr : level == kAnd ? What::kAnd : What::kArithmetic;
    AERIE_ASSIGN_OR_RETURN(left, make(kind, place, std::move(left), std::move(right)));
    if (!word) left->operators.push_back(op);
  }
}

bool ExpressionParser::next_comparison(Operator& op) {
  struct Entry {
    std::string_view spelled;
    Operator op;
  };
  constexpr std::array<Entry, 6> kOperators = {{{"==", Operator::kEqual},
                                                {"!=", Operator::kNotEqual},
                                                {"<", Operator::kLess},
                                                {"<=", Operator::kLessEqual},
                                                {">", Operator::kGreater},
                                                {">=", Operator::kGreaterEqual}}};
  for (const Entry& entry : kOperators) {
    if (tokens_.skip_operator(entry.spelled)) {
      op = entry.op;
      return true;
    }
  }
  if (tokens_.skip_name("in")) {
    op = Operator::kIn;
    return true;
  }
  if (tokens_.is_name("not") && tokens_.is_name("in", 1)) {
    tokens_.take();
    tokens_.take();
    op = Operator::kNotIn;
    return true;
  }
  return false;
}

Expected<ExpressionPtr> ExpressionParser::compared(ExpressionPtr first) {
  ExpressionPtr comparison;
  Operator op = Operator::kEqual;
  for (Place place = tokens_.place(); next_comparison(op); place = tokens_.place()) {
    if (comparison == nullptr) {
      comparison = new_expression(What::kCompare, place);
      comparison->operands.push_back(std::move(first));
    }
    AERIE_ASSIGN_OR_RETURN(ExpressionPtr operand, binary(kSum));
    comparison->operators.push_back(op);
    comparison->operands.push_back(std::move(operand));
  }
  if (comparison == nullptr) return first;
  return finished(std::move(comparison));
}

Expected<ExpressionPtr> ExpressionParser::power() {
  AERIE_ASSIGN_OR_RETURN(ExpressionPtr left, unary(true));
  while (tokens_.is_operator("**")) {
    const Place place = tokens_.take().place;
    AERIE_ASSIGN_OR_RETURN(ExpressionPtr right, unary(true));
    AERIE_ASSIGN_OR_RETURN(left, make(What::kArithmetic, place, std::move(left), std::move(right)));
    left->operators.push_back(Operator::kPower);
  }
  return left;
}

Expected<ExpressionPtr> ExpressionParser::unary(bool with_filters) {
  const TokenStream::Level level(tokens_);
  if (level.too_deep()) return tokens_.too_deep();
  ExpressionPtr value;
  if (tokens_.is_operator("-") || tokens_.is_operator("+")) {
    const Token sign = tokens_.take();
    AERIE_ASSIGN_OR_RETURN(ExpressionPtr operand, unary(false));
    AERIE_ASSIGN_OR_RETURN(value, make(sign.text == "-" ? What::kNegate : What::kPositive,
                                       sign.place, std::move(operand)));
  } else {
    AERIE_ASSIGN_OR_RETURN(value, primary());
  }
  AERIE_ASSIGN_OR_RETURN(value, postfix(std::move(value)));
  return with_filters ? filtered(std::move(value)) : std::move(value);
}

Expected<ExpressionPtr> ExpressionParser::name() {
  const Token token = tokens_.take();
  const std::string& text = token.text;
  ExpressionPtr expression = new_expression(What::kLiteral, token.place);
  if (text == "true" || text == "True") {
    expression->literal = Value::of(true);
  } else if (text == "false" || text == "False") {
    expression->literal = Value::of(false);
  } else if (text == "none" || text == "None") {
    expression->literal = Value::none();
  } else {
    expression->kind = What::kName;
    expression->name = tokens_.number_of(text);
    expression->native = find_function(text);
    expression->text = std::make_unique<Text>(text);
    tokens_.note_use(expression->name);
  }
  return expression;
}

Expected<ExpressionPtr> ExpressionParser::primary() {
  const Place place = tokens_.place();
  switch (tokens_.peek().type) {
    case Type::kName:
      return name();
    case Type::kString: {
      std::string text;
      while (tokens_.is(Type::kString)) text += tokens_.take().text;
      ExpressionPtr expression = new_expression(What::kLiteral, place);
      expression->text = std::make_unique<Text>(std::move(text));
      expression->literal = Value::of(expression->text.get());
      return expression;
    }
    case Type::kInteger:
    case Type::kFloat: {
      const Token token = tokens_.take();
      ExpressionPtr expression = new_expression(What::kLiteral, place);
      expression->literal =
          token.type == Type::kFloat ? Value::of(token.real) : Value::of(token.integer);
      return expression;
    }
    default:
      break;
  }
  if (tokens_.skip_operator("(")) {
    AERIE_ASSIGN_OR_RETURN(ExpressionPtr value, tuple({true, true, ""}));
    AERIE_RETURN_IF_ERROR(tokens_.expect_operator(")"));
    return value;
  }
  if (tokens_.is_operator("[")) return list();
  if (tokens_.is_operator("{")) return dict();
  return tokens_.unexpected("an expression");
}

Expected<ExpressionPtr> ExpressionParser::tuple(Tuple options) {
  ExpressionPtr result = new_expression(What::kTuple, tokens_.place());
  bool comma = false;
  for (;;) {
    const bool ends = tokens_.is(Type::kOutputEnd) || tokens_.is(Type::kTagEnd) ||
                      tokens_.is_operator(")") || tokens_.is_name(options.ends_before);
    if (ends) break;
    AERIE_ASSIGN_OR_RETURN(ExpressionPtr value,
                           options.conditional ? expression() : unconditional());
    result->operands.push_back(std::move(value));
    if (!tokens_.skip_operator(",")) break;
    comma = true;
  }
  if (!comma && result->operands.size() == 1) return std::move(result->operands[0]);
  if (!comma && !options.may_be_empty) return tokens_.unexpected("an expression");
  return finished(std::move(result));
}

Expected<ExpressionPtr> ExpressionParser::list() {
  ExpressionPtr result = new_expression(What::kList, tokens_.take().place);
  while (!tokens_.is_operator("]")) {
    if (!result->operands.empty()) AERIE_RETURN_IF_ERROR(tokens_.expect_operator(","));
    if (tokens_.is_operator("]")) break;
    AERIE_ASSIGN_OR_RETURN(ExpressionPtr value, expression());
    result->operands.push_back(std::move(value));
  }
  AERIE_RETURN_IF_ERROR(tokens_.expect_operator("]"));
  return finished(std::move(result));
}

Expected<ExpressionPtr> ExpressionParser::dict() {
  ExpressionPtr result = new_expression(What::kDict, tokens_.take().place);
  while (!tokens_.is_operator("}")) {
    if (!result->operands.empty()) AERIE_RETURN_IF_ERROR(tokens_.expect_operator(","));
    if (tokens_.is_operator("}")) break;
    AERIE_ASSIGN_OR_RETURN(ExpressionPtr key, expression());
    AERIE_RETURN_IF_ERROR(tokens_.expect_operator(":"));
    AERIE_ASSIGN_OR_RETURN(ExpressionPtr value, expression());
    result->operands.push_back(std::move(key));
    result->operands.push_back(std::move(value));
  }
  AERIE_RETURN_IF_ERROR(tokens_.expect_operator("}"));
  return finished(std::move(result));
}

Expected<ExpressionPtr> ExpressionParser::postfix(ExpressionPtr operand) {
  for (;;) {
    if (tokens_.is_operator(".") || tokens_.is_operator("[")) {
      AERIE_ASSIGN_OR_RETURN(operand, subscript(std::move(operand)));
    } else if (tokens_.is_operator("(")) {
      AERIE_ASSIGN_OR_RETURN(operand, call(std::move(operand)));
    } else {
      return operand;
    }
  }
}

Expected<ExpressionPtr> ExpressionParser::subscript(ExpressionPtr operand) {
  const Token opening = tokens_.take();
  if (opening.text == "[") return item(std::move(operand), opening.place);
  const Token token = tokens_.take();
  if (token.type == Type::kInteger) {
    ExpressionPtr key = new_expression(What::kLiteral, token.place);
    key->literal = Value::of(token.integer);
    return make(What::kItem, opening.place, std::move(operand), std::move(key));
  }
  if (token.type != Type::kName) {
    return syntax_error(token.place, "expected the name or number of an attribute after '.'");
  }
  AERIE_ASSIGN_OR_RETURN(ExpressionPtr result,
                         make(What::kAttribute, opening.place, std::move(operand)));
  result->text = std::make_unique<Text>(token.text);
  return result;
}

Expected<ExpressionPtr> ExpressionParser::item(ExpressionPtr operand, const Place& place) {
  std::array<ExpressionPtr, 3> parts;
  size_t part = 0;
  const auto ends = [&] { return tokens_.is_operator("]") || tokens_.is_operator(":"); };
  for (;;) {
    if (!ends()) {
      AERIE_ASSIGN_OR_RETURN(parts[part], expression());
    }
    if (part == 2 || !tokens_.skip_operator(":")) break;
    ++part;
  }
  if (part == 0 && tokens_.is_operator(",")) {
    ExpressionPtr key = new_expression(What::kTuple, place);
    key->operands.push_back(std::move(parts[0]));
    while (tokens_.skip_operator(",")) {
      AERIE_ASSIGN_OR_RETURN(ExpressionPtr value, expression());
      key->operands.push_back(std::move(value));
    }
    AERIE_ASSIGN_OR_RETURN(parts[0], finished(std::move(key)));
  }
  AERIE_RETURN_IF_ERROR(tokens_.expect_operator("]"));
  if (part > 0) {
    return make(What::kSlice, place, std::move(operand), std::move(parts[0]), std::move(parts[1]),
                std::move(parts[2]));
  }
  if (parts[0] == nullptr) return syntax_error(place, "expected an index between '[' and ']'");
  return make(What::kItem, place, std::move(operand), std::move(parts[0]));
}

Expected<std::vector<Argument>> ExpressionParser::arguments() {
  const Place place = tokens_.place();
  AERIE_RETURN_IF_ERROR(tokens_.expect_operator("("));
  std::vector<Argument> result;
  Argument::Kind last = Argument::Kind::kPositional;
  while (!tokens_.is_operator(")")) {
    if (!result.empty()) AERIE_RETURN_IF_ERROR(tokens_.expect_operator(","));
    if (tokens_.is_operator(")")) break;
    Argument argument;
    if (tokens_.skip_operator("*")) {
      argument.kind = Argument::Kind::kSpread;
    } else if (tokens_.skip_operator("**")) {
      argument.kind = Argument::Kind::kSpreadNamed;
    } else if (tokens_.is(Type::kName) && tokens_.is_operator("=", 1)) {
      argument.kind = Argument::Kind::kNamed;
      argument.name = tokens_.take().text;
      tokens_.take();
    }
    // Positions come first, then names; * may stand before names too.
    if (argument.kind == Argument::Kind::kPositional && last != Argument::Kind::kPositional) {
      return syntax_error(place, "an argument without a name after one with a name");
    }
    last = argument.kind;
    AERIE_ASSIGN_OR_RETURN(argument.value, expression());
    result.push_back(std::move(argument));
  }
  AERIE_RETURN_IF_ERROR(tokens_.expect_operator(")"));
  return result;
}

Expected<ExpressionPtr> ExpressionParser::call(ExpressionPtr operand) {
  ExpressionPtr result = new_expression(What::kCall, tokens_.place());
  result->operands.push_back(std::move(operand));
  AERIE_ASSIGN_OR_RETURN(result->arguments, arguments());
  return finished(std::move(result));
}

Expected<ExpressionPtr> ExpressionParser::filtered(ExpressionPtr operand) {
  for (;;) {
    if (tokens_.is_operator("|")) {
      AERIE_ASSIGN_OR_RETURN(operand, filters(std::move(operand), false));
    } else if (tokens_.is_name("is")) {
      AERIE_ASSIGN_OR_RETURN(operand, test(std::move(operand)));
    } else if (tokens_.is_operator("(")) {
      AERIE_ASSIGN_OR_RETURN(operand, call(std::move(operand)));
    } else {
      return operand;
    }
  }
}

Expected<ExpressionPtr> ExpressionParser::filters(ExpressionPtr operand, bool inside) {
  while (inside || tokens_.is_operator("|")) {
    if (!inside) tokens_.take();
    inside = false;
    AERIE_ASSIGN_OR_RETURN(Token token, tokens_.expect_any_name());
    ExpressionPtr result = new_expression(What::kFilter, token.place);
    result->native = find_filter(token.text);
    if (result->native == nullptr) {
      return at_place(token.place, {StatusCode::kUnsupported,
                                    fmt::format("there is no filter '{}'", printable(token.text))});
    }
    if (tokens_.is_operator("(")) {
      AERIE_ASSIGN_OR_RETURN(result->arguments, arguments());
    }
    result->operands.push_back(std::move(operand));
    AERIE_ASSIGN_OR_RETURN(operand, finished(std::move(result)));
  }
  return operand;
}

Expected<ExpressionPtr> ExpressionParser::test(ExpressionPtr operand) {
  tokens_.take();
  const bool negated = tokens_.skip_name("not");
  AERIE_ASSIGN_OR_RETURN(const Token token, tokens_.expect_any_name());
  ExpressionPtr result = new_expression(What::kTest, token.place);
  result->native = find_test(token.text);
  if (result->native == nullptr) {
    return at_place(token.place, {StatusCode::kUnsupported,
                                  fmt::format("there is no test '{}'", printable(token.text))});
  }
  result->operands.push_back(std::move(operand));
  const bool word = tokens_.is_name("else") || tokens_.is_name("or") || tokens_.is_name("and");
  const Type type = tokens_.peek().type;
  const bool value = type == Type::kName || type == Type::kString || type == Type::kInteger ||
                     type == Type::kFloat || tokens_.is_operator("[") || tokens_.is_operator("{");
  if (tokens_.is_operator("(")) {
    AERIE_ASSIGN_OR_RETURN(result->arguments, arguments());
  } else if (value && !word) {
    if (tokens_.is_name("is")) return tokens_.error("two tests in a row");
    const TokenStream::Level level(tokens_);
    if (level.too_deep()) return tokens_.too_deep();
    Argument argument;
    AERIE_ASSIGN_OR_RETURN(argument.value, primary());
    AERIE_ASSIGN_OR_RETURN(argument.value, postfix(std::move(argument.value)));
    result->arguments.push_back(std::move(argument));
  }
  AERIE_ASSIGN_OR_RETURN(result, finished(std::move(result)));
  if (!negated) return result;
  return make(What::kNot, token.place, std::move(result));
}

Expected<Target> ExpressionParser::single_target(bool may_be_attribute) {
  Target result;
  result.place = tokens_.place();
  if (tokens_.skip_operator("(")) {
    AERIE_ASSIGN_OR_RETURN(result, target(may_be_attribute));
    AERIE_RETURN_IF_ERROR(tokens_.expect_operator(")"));
    return result;
  }
  if (!tokens_.is(Type::kName)) return tokens_.unexpected("a name to assign to");
  const Token token = tokens_.take();
  for (const std::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
    if (token.text == constant) {
      return syntax_error(token.place, fmt::format("'{}' cannot be assigned to", constant));
    }
  }
  result.name = tokens_.number_of(token.text);
  result.spelled = std::make_unique<Text>(token.text);
  if (may_be_attribute && tokens_.skip_operator(".")) {
    AERIE_ASSIGN_OR_RETURN(const Token attribute, tokens_.expect_any_name());
    result.attribute = std::make_unique<Text>(attribute.text);
  }
  return result;
}

Expected<Target> ExpressionParser::target(bool may_be_attribute) {
  const TokenStream::Level level(tokens_);
  if (level.too_deep()) return tokens_.too_deep();
  const Place place = tokens_.place();
  AERIE_ASSIGN_OR_RETURN(Target first, single_target(may_be_attribute));
  if (!tokens_.is_operator(",")) return first;
  Target result;
  result.place = place;
  result.is_tuple = true;
  result.parts.push_back(std::move(first));
  while (tokens_.skip_operator(",")) {
    if (!tokens_.is(Type::kName) && !tokens_.is_operator("(")) break;
    if (tokens_.is_name("in")) break;
    AERIE_ASSIGN_OR_RETURN(Target part, single_target(may_be_attribute));
    result.parts.push_back(std::move(part));
  }
  return result;
}

}  // namespace aerie::jinja
