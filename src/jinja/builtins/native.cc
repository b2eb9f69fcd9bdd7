#include "jinja/builtins/native.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "format/text.h"
#include "jinja/values/operations.h"

namespace aerie::jinja {
namespace {

using Table = std::map<std::string_view, const Native*>;

Table table_of(std::initializer_list<std::span<const Native>> parts) {
  Table table;
  for (const auto& part : parts) {
    for (const Native& native : part) table.emplace(native.name, &native);
  }
  return table;
}

const Native* look_up(const Table& table, std::string_view name) {
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

void bind(const Native& native, Call& call) {
  Runtime& runtime = call.runtime;
  const auto end =
      std::find(native.parameters.begin(), native.parameters.end(), std::string_view());
  const auto count = static_cast<size_t>(end - native.parameters.begin());
  const auto& positional = call.all.positional;
  if (positional.size() > count && !native.any) {
    runtime.fail(fmt::format("{}() takes at most {} arguments, not {}", native.name, count,
                             positional.size()));
  }
  for (size_t i = 0; i < Call::kMost; ++i) {
    call.slots[i] = i < positional.size() ? positional[i] : Value::absent();
  }
  for (const auto& [name, value] : call.all.named) {
    const auto found = std::find(native.parameters.begin(), end, name);
    const auto place = static_cast<size_t>(found - native.parameters.begin());
    if (found == end && native.any) continue;
    if (found == end) {
      runtime.fail(fmt::format("{}() has no argument named '{}'", native.name, printable(name)));
    } else if (call.has(place)) {
      runtime.fail(fmt::format("{}() got its argument '{}' twice", native.name, name));
    } else {
      call.slots[place] = value;
    }
  }
  for (size_t i = 0; i < static_cast<size_t>(native.required); ++i) {
    if (call.has(i)) continue;
    runtime.fail(fmt::format("{}() needs its argument '{}'", native.name, native.parameters[i]));
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
  if (value.is_undefined()) return undefined_error(runtime, value);
  if (!value.is_integral()) {
    return runtime.fail(fmt::format("an integer is needed, not '{}'", type_name(value)));
  }
  const auto integer = static_cast<int64_t>(value.as_int());
  return integer == value.as_int() ? integer : runtime.fail("an integer is too large");
}

std::string_view Call::string(size_t i, std::string_view otherwise) const {
  const Value& value = slots[i];
  if (!has(i)) return otherwise;
  if (value.is_text()) return value.view();
  if (value.is_undefined()) return undefined_error(runtime, value);
  return runtime.fail(fmt::format("a string is needed, not '{}'", type_name(value)));
}

const std::vector<Value>& Call::items() const {
  return iterate(runtime, subject)->items;
}

Value call_native(Runtime& runtime, const Native& native, const Value& subject,
                  const Arguments& arguments) {
  Call call{runtime, native.of_text ? to_text(runtime, subject) : subject, arguments, {}};
  bind(native, call);
  return runtime.spend() ? native.call(call) : Value();
}

const Native* find_filter(std::string_view name) {
  static const Table table =
      table_of({text_filters(), sequence_filters(), selecting_filters(), number_filters()});
  return look_up(table, name);
}

const Native* find_test(std::string_view name) {
  static const Table table = table_of({tests()});
  return look_up(table, name);
}

const Native* find_function(std::string_view name) {
  static const Table table = table_of({functions()});
  return look_up(table, name);
}

const Native* find_method(const Value& object, std::string_view name) {
  static const Table text = table_of({text_methods(), text_predicates()});
  static const Table list = table_of({list_methods()});
  static const Table tuple = table_of({tuple_methods()});
  static const Table dict = table_of({dict_methods()});
  static const Table cycler = table_of({cycler_methods()});
  static const Table loop = table_of({loop_methods()});
  switch (object.kind) {
    case Kind::kText:
      return look_up(text, name);
    case Kind::kSequence:
      if (object.is_list()) return look_up(list, name);
      return object.is_indexable() ? look_up(tuple, name) : nullptr;
    case Kind::kDict:
      return look_up(dict, name);
    case Kind::kCycler:
      return look_up(cycler, name);
    case Kind::kLoop:
      return look_up(loop, name);
    default:
      return nullptr;
  }
}

}  // namespace aerie::jinja
