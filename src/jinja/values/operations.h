// What Python's operators and built-in functions do with values. What is wrong makes the rendering
// fail (runtime.h), saying what without saying where.
#pragma once

#include <optional>
#include <string>

#include "jinja/values/runtime.h"
#include "jinja/values/value.h"

namespace aerie::jinja {

struct Arguments;

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
std::string_view spelling(Operator op);

bool truth(const Value& value);
bool equal(Runtime& runtime, const Value& a, const Value& b, int nesting = 0);
bool is_same(const Value& a, const Value& b);  // the same object
// Requires kLess ... kGreaterEqual.
bool ordered(Runtime& runtime, Operator op, const Value& a, const Value& b, int nesting = 0);
bool contains(Runtime& runtime, const Value& container, const Value& item);
// kEqual ... kNotIn.
bool compare(Runtime& runtime, Operator op, const Value& a, const Value& b);

// kAdd ... kConcatenate.
Value arithmetic(Runtime& runtime, Operator op, const Value& a, const Value& b);
// +value or -value: kAdd, kSubtract.
Value with_sign(Runtime& runtime, Operator sign, const Value& value);

// Whether a dict can have it as a key.
bool is_hashable(const Value& value, int nesting = 0);
// The error of doing anything but printing with something undefined.
Runtime::Failure undefined_error(Runtime& runtime, const Value& undefined);
// "`wanted`, not 'int'"; undefined_error() of what is undefined.
Runtime::Failure type_error(Runtime& runtime, std::string_view wanted, const Value& value);
Runtime::Failure too_large_error(Runtime& runtime);  // for 128 bits

int64_t length(Runtime& runtime, const Value& value);
// The items that going through a value gives: of a list itself (so do not change it without need),
// of a generator what is left of it. Never null.
Sequence* iterate(Runtime& runtime, const Value& value);

// object.name: a method or else an item; undefined if there is neither.
Value get_attribute(Runtime& runtime, const Value& object, const Text& name);
// object[key]: an item or else a method; undefined if there is neither.
Value get_item(Runtime& runtime, const Value& object, const Value& key);
// object[start:stop:step]; absent or None where nothing is given.
struct Slice {
  Value start, stop, step;
};
Value get_slice(Runtime& runtime, const Value& object, const Slice& slice);
// One item of map(), sort() and their like: item[a][b] for the attribute "a.b". `otherwise`, unless
// it is absent or None, stands in for what is undefined on the way.
Value get_path(Runtime& runtime, Value item, const Value& path,
               const Value& otherwise = Value::absent());

// str(value) and repr(value).
void write_text(TextBuilder& out, const Value& value);
Value to_text(Runtime& runtime, const Value& value);
void write_repr(TextBuilder& out, const Value& value);
// As Python's json.dumps writes.
struct JsonStyle {
  bool ascii = false;  // escapes everything else
  bool sort_keys = false;
  std::optional<std::string> indent;       // of one level; absent: all on one line
  std::string_view item_separator = ", ";  // without the space at its end where there is indent
  std::string_view key_separator = ": ";
};
Value to_json(Runtime& runtime, const Value& value, const JsonStyle& style);
void write_escaped(TextBuilder& out, std::string_view text);  // for HTML

// '%s' % arguments: a tuple of values, a dict for %(name)s, or one value.
Value format_percent(Runtime& runtime, std::string_view pattern, const Value& arguments);
// '{}'.format(...).
Value format_braces(Runtime& runtime, std::string_view pattern, const Arguments& arguments);

// As Python prints numbers.
std::string float_text(double value);
// The value of a digit of a base up to 36; 99 for what is none.
int digit_value(char c);
// 16, 8 or 2 if `text` begins with 0x, 0o or 0b and a digit of that base; else 0.
int prefix_base(std::string_view text);
// int(text, base), where base 0 goes by the prefix, and float(text).
std::optional<Int> parse_int(std::string_view text, int base);
std::optional<double> parse_float(std::string_view text);

struct SortItem {
  Value key;  // compared
  Value value;
};
// As Python sorts: fails where two keys cannot be compared; equal items keep their order, in
// reverse too.
void stable_sort(Runtime& runtime, std::vector<SortItem>& items, bool reverse);
// `values` by what `key_of(value)` gives.
template <typename Key>
std::vector<SortItem> sort_by(Runtime& runtime, const std::vector<Value>& values, Key key_of,
                              bool reverse) {
  std::vector<SortItem> order;
  if (!runtime.claim(values.size(), 3 * sizeof(SortItem))) return order;
  for (const Value& value : values) order.push_back({key_of(value), value});
  stable_sort(runtime, order, reverse);
  return order;
}

}  // namespace aerie::jinja
