// Filters, tests, methods and functions that are part of Jinja or of Python.
#pragma once

#include <array>
#include <initializer_list>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "jinja/values/runtime.h"
#include "jinja/values/value.h"

namespace aerie::jinja {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;
};

// The arguments by parameter.
class Bound {
 public:
  static constexpr size_t kMost = 5;

  // Absent if it was not given.
  const Value& operator[](size_t i) const { return slots[i]; }
  bool has(size_t i) const { return !slots[i].is_absent(); }
  bool flag(size_t i, bool otherwise) const;  // its truth

  std::array<Value, kMost> slots;
  const Arguments* all = nullptr;  // as they were given
};

struct Native {
  using Call = Expected<Value> (*)(Runtime& runtime, const Value& subject, const Bound& arguments);

  std::string_view name;
  Call call;
  std::array<std::string_view, Bound::kMost> parameters = {};  // empty: no more
  int required = 0;
  bool any = false;  // takes whatever else is given; see Bound::all
};

// Binds the arguments and calls.
Expected<Value> call_native(Runtime& runtime, const Native& native, const Value& subject,
                            const Arguments& arguments);

// An argument that has to be an integer, within the limits of an int64; `otherwise` if absent or
// None.
Expected<int64_t> int_argument(const Bound& arguments, size_t i, int64_t otherwise);
// An argument that has to be a string; it must be there.
Expected<const Text*> text_argument(const Bound& arguments, size_t i);

// nullptr if there is none of that name.
const Native* find_filter(std::string_view name);
const Native* find_test(std::string_view name);
const Native* find_function(std::string_view name);
const Native* find_method(const Value& object, std::string_view name);

// The tables' parts, one for each file that has some.
std::span<const Native> text_filters();
std::span<const Native> sequence_filters();
std::span<const Native> selecting_filters();
std::span<const Native> number_filters();
std::span<const Native> tests();
std::span<const Native> functions();
std::span<const Native> text_methods();
std::span<const Native> text_predicates();
std::span<const Native> list_methods();
std::span<const Native> tuple_methods();
std::span<const Native> dict_methods();
std::span<const Native> cycler_methods();
std::span<const Native> loop_methods();

// One item of map(), sort() and their like: item[a][b] for the attribute "a.b". `otherwise`, unless
// it is absent or None, stands in for what is undefined on the way.
Expected<Value> get_path(Runtime& runtime, Value item, const Value& path,
                         const Value& otherwise = Value::absent());

}  // namespace aerie::jinja
