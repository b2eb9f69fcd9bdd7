// The tests, which are what stands after `is`, and the methods of strings that are like them.

#include "jinja/builtins/native.h"
#include "jinja/values/characters.h"
#include "jinja/values/operations.h"

namespace aerie::jinja {
namespace {

template <Kind kind>
Value of_kind(Call& call) {
  return Value::of(call.subject.is(kind));
}

template <bool wanted>
Value is_boolean(Call& call) {
  return Value::of(call.subject.is(Kind::kBool) && call.subject.boolean == wanted);
}

// Has a length and items by number or name; a view of a dict has the former only.
Value is_sequence(Call& call) {
  const Value& it = call.subject;
  return Value::of(it.is_indexable() || it.is_text() || it.is(Kind::kDict) || it.is_undefined());
}

Value is_iterable(Call& call) {
  const Value& it = call.subject;
  return Value::of(it.is(Kind::kSequence) || it.is_text() || it.is(Kind::kDict) ||
                   it.is_undefined() || it.is(Kind::kLoop));
}

// In Python an undefined value can be called too: it raises then.
Value is_callable(Call& call) {
  const Value& it = call.subject;
  return Value::of(it.is(Kind::kCallable) || it.is(Kind::kLoop) || it.is_undefined());
}

template <bool upper>
Value is_in_case(Call& call) {
  return Value::of(has_case(call.view(), upper));
}

Value remainder_is(Call& call, const Value& divisor, Int remainder) {
  if (!call.subject.is_number()) {
    return type_error(call.runtime, "a number is needed", call.subject);
  }
  const Value rest = arithmetic(call.runtime, Operator::kModulo, call.subject, divisor);
  return Value::of(equal(call.runtime, rest, Value::of(remainder)));
}

template <Operator op>
Value compares(Call& call) {
  return Value::of(compare(call.runtime, op, call.subject, call[0]));
}

constexpr Native kAllTests[] = {
    {"!=", compares<Operator::kNotEqual>, {"other"}, 1},
    {"<", compares<Operator::kLess>, {"other"}, 1},
    {"<=", compares<Operator::kLessEqual>, {"other"}, 1},
    {"==", compares<Operator::kEqual>, {"other"}, 1},
    {">", compares<Operator::kGreater>, {"other"}, 1},
    {">=", compares<Operator::kGreaterEqual>, {"other"}, 1},
    {"boolean", of_kind<Kind::kBool>},
    {"callable", is_callable},
    {"defined", [](Call& c) { return Value::of(!c.subject.is_undefined()); }},
    {"divisibleby", [](Call& c) { return remainder_is(c, c[0], 0); }, {"num"}, 1},
    {"eq", compares<Operator::kEqual>, {"other"}, 1},
    {"equalto", compares<Operator::kEqual>, {"other"}, 1},
    {"escaped", [](Call& c) { return Value::of(c.subject.is_text() && c.subject.text->safe); }},
    {"even", [](Call& c) { return remainder_is(c, Value::of(Int{2}), 0); }},
    {"false", is_boolean<false>},
    {"filter",
     [](Call& c) { return Value::of(c.subject.is_text() && find_filter(c.view()) != nullptr); }},
    {"float", of_kind<Kind::kFloat>},
    {"ge", compares<Operator::kGreaterEqual>, {"other"}, 1},
    {"greaterthan", compares<Operator::kGreater>, {"other"}, 1},
    {"gt", compares<Operator::kGreater>, {"other"}, 1},
    {"in", compares<Operator::kIn>, {"seq"}, 1},
    {"integer", of_kind<Kind::kInt>},
    {"iterable", is_iterable},
    {"le", compares<Operator::kLessEqual>, {"other"}, 1},
    {"lessthan", compares<Operator::kLess>, {"other"}, 1},
    of_text("lower", is_in_case<false>),
    {"lt", compares<Operator::kLess>, {"other"}, 1},
    {"mapping", of_kind<Kind::kDict>},
    {"ne", compares<Operator::kNotEqual>, {"other"}, 1},
    {"none", of_kind<Kind::kNone>},
    {"number", [](Call& c) { return Value::of(c.subject.is_number()); }},
    {"odd", [](Call& c) { return remainder_is(c, Value::of(Int{2}), 1); }},
    {"sameas", [](Call& c) { return Value::of(is_same(c.subject, c[0])); }, {"other"}, 1},
    {"sequence", is_sequence},
    {"string", of_kind<Kind::kText>},
    {"test",
     [](Call& c) { return Value::of(c.subject.is_text() && find_test(c.view()) != nullptr); }},
    {"true", is_boolean<true>},
    {"undefined", of_kind<Kind::kUndefined>},
    of_text("upper", is_in_case<true>),
};

// Whether there is a character and all are so.
template <bool (*predicate)(char32_t)>
Value all_are(Call& call) {
  std::string_view rest = call.view();
  while (!rest.empty() && predicate(next_character(rest).code)) {
    rest.remove_prefix(next_character(rest).length);
  }
  return Value::of(rest.empty() && !call.view().empty());
}

// Upper case exactly where a run of letters begins.
Value is_title(Call& call) {
  bool inside = false, found = false;
  for (std::string_view rest = call.view(); !rest.empty();) {
    const Character character = next_character(rest);
    const bool upper = is_upper(character.code), lower = is_lower(character.code);
    if ((upper && inside) || (lower && !inside)) return Value::of(false);
    inside = upper || lower;
    found = found || inside;
    rest.remove_prefix(character.length);
  }
  return Value::of(found);
}

constexpr Native kAllTextPredicates[] = {
    of_text("isalnum", all_are<is_alphanumeric>),
    of_text("isalpha", all_are<is_letter>),
    of_text("isascii", [](Call& c) { return Value::of(c.subject.text->ascii); }),
    of_text("isdecimal", all_are<is_decimal>),
    of_text("isdigit", all_are<is_digit>),
    of_text("islower", is_in_case<false>),
    of_text("isnumeric", all_are<is_numeric>),
    of_text("isspace", all_are<is_space>),
    of_text("istitle", is_title),
    of_text("isupper", is_in_case<true>),
};

}  // namespace

const Table kTests(kAllTests);
const Table kTextPredicates(kAllTextPredicates);

}  // namespace aerie::jinja
