// Expressions.
#include <fmt/format.h>

#include "jinja/interpreter.h"

namespace aerie::jinja {

using What = Expression::Kind;

Expected<Value> Interpreter::evaluate(const Expression& expression, Scope* scope) {
  const Runtime::Level level(runtime_);
  if (level.too_deep()) return located(expression.place, runtime_.too_deep());
  if (Status status = runtime_.spend(); !status.ok()) return located(expression.place, status);
  auto value = evaluate_kind(expression, scope);
  if (!value.ok() && !located_) return located(expression.place, value.status());
  return value;
}

Expected<Value> Interpreter::evaluate_kind(const Expression& expression, Scope* scope) {
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
    case What::kNot:
      return evaluate_logic(expression, scope);
    case What::kNegate:
    case What::kPositive:
      return evaluate_sign(expression, scope);
    case What::kArithmetic:
      return evaluate_arithmetic(expression, scope);
    case What::kCompare:
      return evaluate_comparison(expression, scope);
    case What::kConditional:
      return evaluate_conditional(expression, scope);
    case What::kAttribute:
    case What::kItem:
      return evaluate_access(expression, scope);
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

Expected<Value> Interpreter::evaluate_sequence(const Expression& expression, Scope* scope) {
  Sequence* sequence = runtime_.sequence(
      expression.kind == What::kTuple ? Sequence::Flavour::kTuple : Sequence::Flavour::kList);
  for (const auto& operand : expression.operands) {
    AERIE_ASSIGN_OR_RETURN(const Value item, evaluate(*operand, scope));
    runtime_.push(sequence, item);
  }
  return Value::of(sequence);
}

Expected<Value> Interpreter::evaluate_dict(const Expression& expression, Scope* scope) {
  Dict* dict = runtime_.dict();
  for (size_t i = 0; i < expression.operands.size(); i += 2) {
    AERIE_ASSIGN_OR_RETURN(const Value key, evaluate(*expression.operands[i], scope));
    AERIE_ASSIGN_OR_RETURN(const Value value, evaluate(*expression.operands[i + 1], scope));
    AERIE_RETURN_IF_ERROR(runtime_.put(dict, key, value));
  }
  return Value::of(dict);
}

Expected<Value> Interpreter::evaluate_logic(const Expression& expression, Scope* scope) {
  AERIE_ASSIGN_OR_RETURN(const Value left, evaluate(*expression.operands[0], scope));
  if (expression.kind == What::kNot) return Value::of(!truth(left));
  if (truth(left) == (expression.kind == What::kOr)) return left;
  return evaluate(*expression.operands[1], scope);
}

Expected<Value> Interpreter::evaluate_sign(const Expression& expression, Scope* scope) {
  AERIE_ASSIGN_OR_RETURN(const Value value, evaluate(*expression.operands[0], scope));
  if (expression.kind == What::kNegate) return negate(value);
  if (value.is_undefined()) return undefined_error(value);
  if (!value.is_number()) {
    return fail(fmt::format("'+' does not apply to '{}'", type_name(value)));
  }
  return value.is(Kind::kFloat) ? value : Value::of(value.as_int());
}

Expected<Value> Interpreter::evaluate_arithmetic(const Expression& expression, Scope* scope) {
  AERIE_ASSIGN_OR_RETURN(const Value left, evaluate(*expression.operands[0], scope));
  AERIE_ASSIGN_OR_RETURN(const Value right, evaluate(*expression.operands[1], scope));
  return arithmetic(runtime_, expression.operators[0], left, right);
}

Expected<Value> Interpreter::evaluate_comparison(const Expression& expression, Scope* scope) {
  AERIE_ASSIGN_OR_RETURN(Value left, evaluate(*expression.operands[0], scope));
  bool holds = true;
  for (size_t i = 0; i < expression.operators.size() && holds; ++i) {
    AERIE_ASSIGN_OR_RETURN(const Value right, evaluate(*expression.operands[i + 1], scope));
    AERIE_ASSIGN_OR_RETURN(holds, compare(runtime_, expression.operators[i], left, right));
    left = right;
  }
  return Value::of(holds);
}

Expected<Value> Interpreter::evaluate_conditional(const Expression& expression, Scope* scope) {
  AERIE_ASSIGN_OR_RETURN(const Value condition, evaluate(*expression.operands[0], scope));
  if (truth(condition)) return evaluate(*expression.operands[1], scope);
  if (expression.operands[2] == nullptr) return Value();
  return evaluate(*expression.operands[2], scope);
}

Expected<Value> Interpreter::evaluate_access(const Expression& expression, Scope* scope) {
  AERIE_ASSIGN_OR_RETURN(const Value object, evaluate(*expression.operands[0], scope));
  if (expression.kind == What::kAttribute) {
    return get_attribute(runtime_, object, *expression.text);
  }
  AERIE_ASSIGN_OR_RETURN(const Value key, evaluate(*expression.operands[1], scope));
  return get_item(runtime_, object, key);
}

Expected<Value> Interpreter::evaluate_slice(const Expression& expression, Scope* scope) {
  AERIE_ASSIGN_OR_RETURN(const Value object, evaluate(*expression.operands[0], scope));
  Slice slice{Value::absent(), Value::absent(), Value::absent()};
  Value* const parts[] = {&slice.start, &slice.stop, &slice.step};
  for (size_t i = 0; i < 3; ++i) {
    if (expression.operands[i + 1] == nullptr) continue;
    AERIE_ASSIGN_OR_RETURN(*parts[i], evaluate(*expression.operands[i + 1], scope));
  }
  return get_slice(runtime_, object, slice);
}

Expected<Value> Interpreter::evaluate_native(const Expression& expression, Scope* scope) {
  Value subject;
  if (expression.operands[0] != nullptr) {
    AERIE_ASSIGN_OR_RETURN(subject, evaluate(*expression.operands[0], scope));
  } else {
    subject = *block_text_;
  }
  Arguments arguments;
  AERIE_RETURN_IF_ERROR(evaluate_arguments(expression, scope, arguments));
  return call_native(runtime_, *expression.native, subject, arguments);
}

}  // namespace aerie::jinja
