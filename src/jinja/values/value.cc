#include "jinja/values/value.h"

#include <algorithm>

namespace aerie::jinja {
namespace {

bool is_ascii(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

std::string_view sequence_name(Sequence::Flavour flavour) {
  switch (flavour) {
    case Sequence::Flavour::kList:
      return "list";
    case Sequence::Flavour::kTuple:
    case Sequence::Flavour::kGroup:
      return "tuple";
    case Sequence::Flavour::kRange:
      return "range";
    case Sequence::Flavour::kKeys:
      return "dict_keys";
    case Sequence::Flavour::kValues:
      return "dict_values";
    case Sequence::Flavour::kItems:
      return "dict_items";
    case Sequence::Flavour::kGenerator:
      return "generator";
  }
  return "sequence";
}

}  // namespace

Text::Text(std::string bytes) : owned(std::move(bytes)), view(owned), ascii(is_ascii(view)) {}
Text::Text(Borrow, std::string_view bytes) : view(bytes), ascii(is_ascii(bytes)) {}

Value Value::undefined(const Text* name, Kind of) {
  Value value;
  value.owner = of;
  value.text = name;
  return value;
}

Value Value::of(bool value) {
  Value result = make(Kind::kBool);
  result.boolean = value;
  return result;
}

Value Value::of(Int value) {
  Value result = make(Kind::kInt);
  result.integer = value;
  return result;
}

Value Value::of(double value) {
  Value result = make(Kind::kFloat);
  result.real = value;
  return result;
}

Value Value::of(const Text* value) {
  Value result = make(Kind::kText);
  result.text = value;
  return result;
}

Value Value::of(Sequence* value) {
  Value result = make(Kind::kSequence);
  result.sequence = value;
  return result;
}

Value Value::of(Dict* value) {
  Value result = make(Kind::kDict);
  result.dict = value;
  return result;
}

Value Value::of_namespace(Dict* value) {
  Value result = make(Kind::kNamespace);
  result.dict = value;
  return result;
}

Value Value::of(Callable* value) {
  Value result = make(Kind::kCallable);
  result.callable = value;
  return result;
}

Value Value::of(Loop* value) {
  Value result = make(Kind::kLoop);
  result.loop = value;
  return result;
}

Value Value::of(Cycler* value) {
  Value result = make(Kind::kCycler);
  result.cycler = value;
  return result;
}

double Value::as_double() const {
  return kind == Kind::kFloat ? real : static_cast<double>(as_int());
}

std::string_view type_name(Kind kind) {
  switch (kind) {
    case Kind::kAbsent:
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kText:
      return "str";
    case Kind::kSequence:
      return "list";
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "namespace";
    case Kind::kCallable:
      return "function";
    case Kind::kLoop:
      return "loop";
    case Kind::kCycler:
      return "cycler";
  }
  return "value";
}

std::string_view type_name(const Value& value) {
  return value.is(Kind::kSequence) ? sequence_name(value.sequence->flavour) : type_name(value.kind);
}

}  // namespace aerie::jinja
