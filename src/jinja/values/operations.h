// What Python's operators and built-in functions do with values. Errors are kInvalidArgument and
// say what is wrong without saying where, or kResourceExhausted.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "jinja/values/runtime.h"
#include "jinja/values/value.h"

namespace aerie::jinja {

enum class Operator : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kConcatenate,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

bool truth(const Value& value);
Expected<bool> equal(Runtime& runtime, const Value& a, const Value& b, int nesting = 0);
// Requires kLess ... kGreaterEqual.
Expected<bool> ordered(Runtime& runtime, Operator op, const Value& a, const Value& b,
                       int nesting = 0);
Expected<bool> contains(Runtime& runtime, const Value& container, const Value& item);
// kEqual ... kNotIn.
Expected<bool> compare(Runtime& runtime, Operator op, const Value& a, const Value& b);

// kAdd ... kConcatenate.
Expected<Value> arithmetic(Runtime& runtime, Operator op, const Value& a, const Value& b);
Expected<Value> negate(const Value& value);

// Ok if a dict can have it as a key.
Status check_hashable(const Value& value, int nesting = 0);
// The error of doing anything but printing with something undefined.
Status undefined_error(const Value& undefined);

Expected<int64_t> length(Runtime& runtime, const Value& value);
// The items that going through a value gives: of a list itself (so do not change it without need),
// of a generator what is left of it.
Expected<Sequence*> iterate(Runtime& runtime, const Value& value);

// object.name: a method or else an item; undefined if there is neither.
Expected<Value> get_attribute(Runtime& runtime, const Value& object, const Text& name);
// object[key]: an item or else a method; undefined if there is neither.
Expected<Value> get_item(Runtime& runtime, const Value& object, const Value& key);
// object[start:stop:step]; absent or None where nothing is given.
struct Slice {
  Value start, stop, step;
};
Expected<Value> get_slice(Runtime& runtime, const Value& object, const Slice& slice);

// str(value) and repr(value).
void write_text(TextBuilder& out, Runtime& runtime, const Value& value);
Expected<Value> to_text(Runtime& runtime, const Value& value);
void write_repr(TextBuilder& out, Runtime& runtime, const Value& value, int nesting = 0);

// As Python prints numbers.
std::string int_text(Int value);
std::string float_text(double value);
// int(text, base) and float(text).
std::optional<Int> parse_int(std::string_view text, int base);
std::optional<double> parse_float(std::string_view text);

}  // namespace aerie::jinja
