// Expressions.
#include <fmt/format.h>

#include "jinja/interpreter.h"

namespace aerie::jinja {

Value Interpreter::evaluate(const Expression& expression, Scope* scope) {
  const Runtime::Level level(runtime_);
  Value value;
  if (runtime_.spend()) value = evaluate_kind(expression, scope);
  if (runtime_.failed()) locate(expression.place);
  return value;
}

Value Interpreter::evaluate_kind(const Expression& expression, Scope* scope) {
  using What = Expression::Kind;
  const auto operand = [&](size_t i) { return evaluate(*expression.operands[i], scope); };
  switch (expression.kind) {
    case What::kLiteral:
      return expression.literal;
    case What::kName:
      return look_up(expression, scope);
    case What::kList:
    case What::kTuple:
      return evaluate_sequence(expression, scope);
    case What::kDict:
      return evaluate_dict(expression, scope);
    case What::kAnd:
    case What::kOr:
      return evaluate_logic(expression, scope);
    case What::kNot:
      return Value::of(!truth(operand(0)));
    case What::kNegate:
    case What::kPositive:
      return evaluate_sign(expression, scope);
    case What::kArithmetic: {
      const Value left = operand(0);
      return arithmetic(runtime_, expression.operators[0], left, operand(1));
    }
    case What::kCompare:
      return evaluate_comparison(expression, scope);
    case What::kConditional:
      if (truth(operand(0))) return operand(1);
      return expression.operands[2] == nullptr ? Value() : operand(2);
    case What::kAttribute:
      return get_attribute(runtime_, operand(0), *expression.text);
    case What::kItem: {
      const Value object = operand(0);
      return get_item(runtime_, object, operand(1));
    }
    case What::kSlice:
      return evaluate_slice(expression, scope);
    case What::kCall:
      return evaluate_call(expression, scope, nullptr);
    case What::kFilter:
    case What::kTest:
      return evaluate_native(expression, scope);
  }
  return Value();
}

Value Interpreter::look_up(const Expression& name, const Scope* scope) {
  for (; scope != nullptr; scope = scope->parent) {
    if (const Value* value = scope->find(name.name)) return *value;
  }
  if (name.native == nullptr) return Value::undefined(name.text.get());
  Callable* function = runtime_.callable(Callable::What::kNative);
  function->native = name.native;
  return Value::of(function);
}

Value Interpreter::evaluate_sequence(const Expression& expression, Scope* scope) {
  Sequence* sequence =
      runtime_.sequence(expression.kind == Expression::Kind::kTuple ? Sequence::Flavour::kTuple
                                                                    : Sequence::Flavour::kList);
  for (const auto& operand : expression.operands) {
    runtime_.push(sequence, evaluate(*operand, scope));
  }
  return Value::of(sequence);
}

Value Interpreter::evaluate_dict(const Expression& expression, Scope* scope) {
  Dict* dict = runtime_.dict();
  for (size_t i = 0; i < expression.operands.size(); i += 2) {
    const Value key = evaluate(*expression.operands[i], scope);
    runtime_.put(dict, key, evaluate(*expression.operands[i + 1], scope));
  }
  return Value::of(dict);
}

Value Interpreter::evaluate_logic(const Expression& expression, Scope* scope) {
  const Value left = evaluate(*expression.operands[0], scope);
  if (truth(left) == (expression.kind == Expression::Kind::kOr)) return left;
  return evaluate(*expression.operands[1], scope);
}

Value Interpreter::evaluate_sign(const Expression& expression, Scope* scope) {
  const Value value = evaluate(*expression.operands[0], scope);
  if (expression.kind == Expression::Kind::kNegate) return negate(runtime_, value);
  if (value.is_integral()) return Value::of(value.as_int());
  if (value.is(Kind::kFloat)) return value;
  if (value.is_undefined()) return undefined_error(runtime_, value);
  return runtime_.fail(fmt::format("'+' does not apply to '{}'", type_name(value)));
}

Value Interpreter::evaluate_comparison(const Expression& expression, Scope* scope) {
  Value left = evaluate(*expression.operands[0], scope);
  bool holds = true;
  for (size_t i = 0; i < expression.operators.size() && holds; ++i) {
    const Value right = evaluate(*expression.operands[i + 1], scope);
    holds = compare(runtime_, expression.operators[i], left, right);
    left = right;
  }
  return Value::of(holds);
}

Value Interpreter::evaluate_slice(const Expression& expression, Scope* scope) {
  const auto part = [&](size_t i) {
    const auto& operand = expression.operands[i];
    return operand == nullptr ? Value::none() : evaluate(*operand, scope);
  };
  const Value object = part(0);
  const Slice slice{part(1), part(2), part(3)};
  return get_slice(runtime_, object, slice);
}

Value Interpreter::evaluate_native(const Expression& expression, Scope* scope) {
  const auto& operand = expression.operands[0];
  const Value subject = operand == nullptr ? block_text_ : evaluate(*operand, scope);
  const Arguments arguments = evaluate_arguments(expression, scope);
  if (runtime_.failed()) return {};
  return call_native(runtime_, *expression.native, subject, arguments);
}

}  // namespace aerie::jinja
