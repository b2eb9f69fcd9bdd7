#include "jinja/builtins/native.h"

#include <algorithm>
#include <initializer_list>

#include "format/text.h"
#include "jinja/values/operations.h"

namespace aerie::jinja {
namespace {

const Native* look_up(std::initializer_list<Table> tables, std::string_view name) {
  for (const Table& table : tables) {
    for (const Native& native : table) {
      if (native.name == name) return &native;
    }
  }
  return nullptr;
}

void bind(const Native& native, Call& call) {
  Runtime& runtime = call.runtime;
  const auto end = std::ranges::find(native.parameters, std::string_view());
  const auto count = static_cast<size_t>(end - native.parameters.begin());
  const auto& positional = call.all.positional;
  if (positional.size() > count && !native.any) {
    runtime.fail("{}() takes at most {} arguments, not {}", native.name, count, positional.size());
  }
  for (size_t i = 0; i < Call::kMost; ++i) {
    call.slots[i] = i < positional.size() ? positional[i] : Value::absent();
  }
  for (const auto& [name, value] : call.all.named) {
    const auto found = std::find(native.parameters.begin(), end, name);
    const auto place = static_cast<size_t>(found - native.parameters.begin());
    if (found == end && native.any) continue;
    if (found == end) {
      runtime.fail("{}() has no argument named '{}'", native.name, printable(name));
    } else if (call.has(place)) {
      runtime.fail("{}() got its argument '{}' twice", native.name, name);
    } else {
      call.slots[place] = value;
    }
  }
  for (size_t i = 0; i < static_cast<size_t>(native.required); ++i) {
    if (call.has(i)) continue;
    runtime.fail("{}() needs its argument '{}'", native.name, native.parameters[i]);
  }
}

}  // namespace

Value Arguments::find(std::string_view name) const {
  for (const auto& [key, value] : named) {
    if (key == name) return value;
  }
  return Value::absent();
}

bool Call::flag(size_t i, bool otherwise) const {
  return has(i) ? truth(slots[i]) : otherwise;
}

int64_t Call::integer(size_t i, int64_t otherwise) const {
  const Value& value = slots[i];
  if (!given(i)) return otherwise;
  if (!value.is_integral()) return type_error(runtime, "an integer is needed", value);
  const auto integer = static_cast<int64_t>(value.as_int());
  return integer == value.as_int() ? integer : runtime.fail("an integer is too large");
}

std::string_view Call::string(size_t i, std::string_view otherwise) const {
  const Value& value = slots[i];
  if (!has(i)) return otherwise;
  if (value.is_text()) return value.view();
  return type_error(runtime, "a string is needed", value);
}

const std::vector<Value>& Call::items() const {
  return iterate(runtime, subject)->items;
}

Value call_native(Runtime& runtime, const Native& native, const Value& subject,
                  const Arguments& arguments) {
  Call call{runtime, native.of_text ? to_text(runtime, subject) : subject, arguments, {}};
  bind(native, call);
  const uint64_t steps = native.of_text ? 1 + call.view().size() / 8 : 1;
  return runtime.spend(steps) ? native.call(call) : Value();
}

const Native* find_filter(std::string_view name) {
  return look_up({kTextFilters, kSequenceFilters, kSelectingFilters, kNumberFilters}, name);
}

const Native* find_test(std::string_view name) {
  return look_up({kTests}, name);
}

const Native* find_function(std::string_view name) {
  return look_up({kFunctions}, name);
}

const Native* find_method(const Value& object, std::string_view name) {
  if (object.is_text()) return look_up({kTextMethods, kTextPredicates}, name);
  if (object.is(Kind::kDict)) return look_up({kDictMethods}, name);
  if (object.is_list()) return look_up({kListMethods}, name);
  if (object.is_indexable()) return look_up({kTupleMethods}, name);
  if (object.is(Kind::kLoop)) return look_up({kLoopMethods}, name);
  return object.is(Kind::kCycler) ? look_up({kCyclerMethods}, name) : nullptr;
}

}  // namespace aerie::jinja
