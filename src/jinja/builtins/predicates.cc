// The tests: what stands after `is`.
#include <fmt/format.h>

#include "jinja/builtins/native.h"
#include "jinja/values/characters.h"
#include "jinja/values/operations.h"

namespace aerie::jinja {
namespace {

bool is_integer(const Value& value) {
  return value.is(Kind::kInt);
}

Expected<Value> defined(Runtime&, const Value& subject, const Bound&) {
  return Value::of(!subject.is_undefined());
}

Expected<Value> undefined(Runtime&, const Value& subject, const Bound&) {
  return Value::of(subject.is_undefined());
}

Expected<Value> none(Runtime&, const Value& subject, const Bound&) {
  return Value::of(subject.is_none());
}

Expected<Value> boolean(Runtime&, const Value& subject, const Bound&) {
  return Value::of(subject.is(Kind::kBool));
}

Expected<Value> is_true(Runtime&, const Value& subject, const Bound&) {
  return Value::of(subject.is(Kind::kBool) && subject.boolean);
}

Expected<Value> is_false(Runtime&, const Value& subject, const Bound&) {
  return Value::of(subject.is(Kind::kBool) && !subject.boolean);
}

Expected<Value> integer(Runtime&, const Value& subject, const Bound&) {
  return Value::of(is_integer(subject));
}

Expected<Value> is_float(Runtime&, const Value& subject, const Bound&) {
  return Value::of(subject.is(Kind::kFloat));
}

Expected<Value> number(Runtime&, const Value& subject, const Bound&) {
  return Value::of(subject.is_number());
}

Expected<Value> string(Runtime&, const Value& subject, const Bound&) {
  return Value::of(subject.is_text());
}

Expected<Value> mapping(Runtime&, const Value& subject, const Bound&) {
  return Value::of(subject.is(Kind::kDict));
}

// Has a length and items by number or name; a view of a dict has the former only.
Expected<Value> sequence(Runtime&, const Value& subject, const Bound&) {
  const bool indexable = subject.is(Kind::kSequence) && subject.sequence->is_indexable();
  return Value::of(indexable || subject.is_text() || subject.is(Kind::kDict) ||
                   subject.is_undefined());
}

Expected<Value> iterable(Runtime&, const Value& subject, const Bound&) {
  return Value::of(subject.is(Kind::kSequence) || subject.is_text() || subject.is(Kind::kDict) ||
                   subject.is_undefined() || subject.is(Kind::kLoop));
}

// In Python an undefined value can be called too: it raises then.
Expected<Value> callable(Runtime&, const Value& subject, const Bound&) {
  return Value::of(subject.is(Kind::kCallable) || subject.is(Kind::kLoop) ||
                   subject.is_undefined());
}

Expected<Value> escaped(Runtime&, const Value& subject, const Bound&) {
  return Value::of(subject.is_text() && subject.text->safe);
}

Expected<Value> filter(Runtime&, const Value& subject, const Bound&) {
  return Value::of(subject.is_text() && find_filter(subject.view()) != nullptr);
}

Expected<Value> test(Runtime&, const Value& subject, const Bound&) {
  return Value::of(subject.is_text() && find_test(subject.view()) != nullptr);
}

Expected<Value> cased(Runtime& runtime, const Value& subject, bool upper) {
  AERIE_ASSIGN_OR_RETURN(const Value text, to_text(runtime, subject));
  AERIE_RETURN_IF_ERROR(runtime.spend_text(4 * text.view().size()));
  return Value::of(has_case(text.view(), upper));
}

Expected<Value> lower(Runtime& runtime, const Value& subject, const Bound&) {
  return cased(runtime, subject, false);
}

Expected<Value> upper(Runtime& runtime, const Value& subject, const Bound&) {
  return cased(runtime, subject, true);
}

Expected<Value> same_as(Runtime&, const Value& subject, const Bound& arguments) {
  const Value& other = arguments[0];
  if (subject.kind != other.kind) return Value::of(false);
  switch (subject.kind) {
    case Kind::kBool:
      return Value::of(subject.boolean == other.boolean);
    case Kind::kInt:
      return Value::of(subject.integer == other.integer);
    case Kind::kFloat:
      return Value::of(subject.real == other.real);
    case Kind::kText:
      return Value::of(subject.text == other.text);
    case Kind::kSequence:
      return Value::of(subject.sequence == other.sequence);
    case Kind::kDict:
    case Kind::kNamespace:
      return Value::of(subject.dict == other.dict);
    case Kind::kCallable:
      return Value::of(subject.callable == other.callable);
    default:
      return Value::of(subject.is_none());
  }
}

Expected<Value> remainder_is(Runtime& runtime, const Value& subject, const Value& divisor,
                             Int remainder) {
  if (!subject.is_undefined() && !subject.is_number()) {
    return fail(fmt::format("a number is needed, not '{}'", type_name(subject)));
  }
  AERIE_ASSIGN_OR_RETURN(const Value rest,
                         arithmetic(runtime, Operator::kModulo, subject, divisor));
  AERIE_ASSIGN_OR_RETURN(const bool same, equal(runtime, rest, Value::of(remainder)));
  return Value::of(same);
}

Expected<Value> odd(Runtime& runtime, const Value& subject, const Bound&) {
  return remainder_is(runtime, subject, Value::of(Int{2}), 1);
}

Expected<Value> even(Runtime& runtime, const Value& subject, const Bound&) {
  return remainder_is(runtime, subject, Value::of(Int{2}), 0);
}

Expected<Value> divisible_by(Runtime& runtime, const Value& subject, const Bound& arguments) {
  return remainder_is(runtime, subject, arguments[0], 0);
}

template <Operator op>
Expected<Value> compares(Runtime& runtime, const Value& subject, const Bound& arguments) {
  AERIE_ASSIGN_OR_RETURN(const bool result, compare(runtime, op, subject, arguments[0]));
  return Value::of(result);
}

constexpr Native kTests[] = {
    {"!=", compares<Operator::kNotEqual>, {"other"}, 1},
    {"<", compares<Operator::kLess>, {"other"}, 1},
    {"<=", compares<Operator::kLessEqual>, {"other"}, 1},
    {"==", compares<Operator::kEqual>, {"other"}, 1},
    {">", compares<Operator::kGreater>, {"other"}, 1},
    {">=", compares<Operator::kGreaterEqual>, {"other"}, 1},
    {"boolean", boolean},
    {"callable", callable},
    {"defined", defined},
    {"divisibleby", divisible_by, {"num"}, 1},
    {"eq", compares<Operator::kEqual>, {"other"}, 1},
    {"equalto", compares<Operator::kEqual>, {"other"}, 1},
    {"escaped", escaped},
    {"even", even},
    {"false", is_false},
    {"filter", filter},
    {"float", is_float},
    {"ge", compares<Operator::kGreaterEqual>, {"other"}, 1},
    {"greaterthan", compares<Operator::kGreater>, {"other"}, 1},
    {"gt", compares<Operator::kGreater>, {"other"}, 1},
    {"in", compares<Operator::kIn>, {"seq"}, 1},
    {"integer", integer},
    {"iterable", iterable},
    {"le", compares<Operator::kLessEqual>, {"other"}, 1},
    {"lessthan", compares<Operator::kLess>, {"other"}, 1},
    {"lower", lower},
    {"lt", compares<Operator::kLess>, {"other"}, 1},
    {"mapping", mapping},
    {"ne", compares<Operator::kNotEqual>, {"other"}, 1},
    {"none", none},
    {"number", number},
    {"odd", odd},
    {"sameas", same_as, {"other"}, 1},
    {"sequence", sequence},
    {"string", string},
    {"test", test},
    {"true", is_true},
    {"undefined", undefined},
    {"upper", upper},
};

}  // namespace

std::span<const Native> tests() {
  return kTests;
}

}  // namespace aerie::jinja
