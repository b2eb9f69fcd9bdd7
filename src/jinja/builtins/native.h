// Filters, tests, methods and functions that are part of Jinja or of Python.
#pragma once

#include <array>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/values/runtime.h"
#include "jinja/values/value.h"

namespace aerie::jinja {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;

  Value find(std::string_view name) const;  // absent if it is not among those with names
};

// A call of what is built in: its arguments by parameter.
struct Call {
  static constexpr size_t kMost = 4;  // parameters

  Runtime& runtime;
  Value subject;
  const Arguments& all;  // as they were given
  std::array<Value, kMost> slots;

  // Absent if it was not given.
  const Value& operator[](size_t i) const { return slots[i]; }
  bool has(size_t i) const { return !slots[i].is_absent(); }
  bool given(size_t i) const { return has(i) && !slots[i].is_none(); }
  bool flag(size_t i, bool otherwise = false) const;  // its truth
  // Fails unless it is an integer, within the limits of an int64; `otherwise` if absent or None.
  int64_t integer(size_t i, int64_t otherwise = 0) const;
  // Fails unless it is a string; `otherwise` if absent.
  std::string_view string(size_t i, std::string_view otherwise = "") const;

  // What going through the subject gives.
  const std::vector<Value>& items() const;
  // The characters of the subject, which is a string.
  std::string_view view() const { return subject.view(); }
};

struct Native {
  std::string_view name;
  Value (*call)(Call& call);
  std::array<std::string_view, Call::kMost> parameters = {};  // empty: no more
  int required = 0;
  bool any = false;      // takes whatever else is given; see Call::all
  bool of_text = false;  // the subject is made a string first; steps are spent on its length
};

constexpr Native of_text(std::string_view name, Value (*call)(Call&),
                         std::array<std::string_view, Call::kMost> parameters = {},
                         int required = 0, bool any = false) {
  return {name, call, parameters, required, any, true};
}

// Binds the arguments and calls.
Value call_native(Runtime& runtime, const Native& native, const Value& subject,
                  const Arguments& arguments);

// nullptr if there is none of that name.
const Native* find_filter(std::string_view name);
const Native* find_test(std::string_view name);
const Native* find_function(std::string_view name);
const Native* find_method(const Value& object, std::string_view name);

// The tables' parts, in the files that have them.
using Table = std::span<const Native>;
extern const Table kTextFilters, kSequenceFilters, kSelectingFilters, kNumberFilters, kTests,
    kFunctions, kTextMethods, kTextPredicates, kListMethods, kTupleMethods, kDictMethods,
    kCyclerMethods, kLoopMethods;

// What several of those files need.

// dict.update: from at most one dict or sequence of pairs, then from the named arguments.
void update_dict(Runtime& runtime, Dict* dict, const Arguments& arguments);
// (key, value) of all entries.
Sequence* dict_items(Runtime& runtime, const Dict& dict, Sequence::Flavour flavour);
// str(separator).join(str(x) for x in items).
Value join_texts(Runtime& runtime, std::string_view separator, const std::vector<Value>& items);

// Methods of strings that are filters too.
Value upper_text(Call& call);
Value lower_text(Call& call);
Value capitalized_text(Call& call);
Value stripped_text(Call& call);  // chars
Value replaced_text(Call& call);  // old, new, count
Value centered_text(Call& call);  // width, fillchar

}  // namespace aerie::jinja
