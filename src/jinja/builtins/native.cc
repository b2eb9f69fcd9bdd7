#include "jinja/builtins/native.h"

#include <fmt/format.h>

#include <limits>
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

size_t parameter_count(const Native& native) {
  size_t count = 0;
  while (count < Bound::kMost && !native.parameters[count].empty()) ++count;
  return count;
}

Status bind(const Native& native, const Arguments& arguments, Bound& bound) {
  const size_t count = parameter_count(native);
  if (arguments.positional.size() > count && !native.any) {
    return fail(fmt::format("{}() takes at most {} arguments, not {}", native.name, count,
                            arguments.positional.size()));
  }
  for (size_t i = 0; i < count; ++i) {
    bound.slots[i] = i < arguments.positional.size() ? arguments.positional[i] : Value::absent();
  }
  for (const auto& [name, value] : arguments.named) {
    size_t place = 0;
    while (place < count && native.parameters[place] != name) ++place;
    if (place == count) {
      if (native.any) continue;
      return fail(fmt::format("{}() has no argument named '{}'", native.name, printable(name)));
    }
    if (bound.has(place)) {
      return fail(fmt::format("{}() got its argument '{}' twice", native.name, name));
    }
    bound.slots[place] = value;
  }
  for (size_t i = 0; i < static_cast<size_t>(native.required); ++i) {
    if (!bound.has(i)) {
      return fail(fmt::format("{}() needs its argument '{}'", native.name, native.parameters[i]));
    }
  }
  return {};
}

}  // namespace

bool Bound::flag(size_t i, bool otherwise) const {
  return has(i) ? truth(slots[i]) : otherwise;
}

Expected<Value> call_native(Runtime& runtime, const Native& native, const Value& subject,
                            const Arguments& arguments) {
  AERIE_RETURN_IF_ERROR(runtime.spend());
  Bound bound;
  bound.all = &arguments;
  AERIE_RETURN_IF_ERROR(bind(native, arguments, bound));
  return native.call(runtime, subject, bound);
}

Expected<int64_t> int_argument(const Bound& arguments, size_t i, int64_t otherwise) {
  const Value& value = arguments[i];
  if (value.is_absent() || value.is_none()) return otherwise;
  if (value.is_undefined()) return undefined_error(value);
  if (!value.is_integral()) {
    return fail(fmt::format("an integer is needed, not '{}'", type_name(value)));
  }
  const Int integer = value.as_int();
  if (integer > std::numeric_limits<int64_t>::max() ||
      integer < std::numeric_limits<int64_t>::min()) {
    return fail("an integer is too large");
  }
  return static_cast<int64_t>(integer);
}

Expected<const Text*> text_argument(const Bound& arguments, size_t i) {
  const Value& value = arguments[i];
  if (value.is_undefined()) return undefined_error(value);
  if (!value.is_text()) return fail(fmt::format("a string is needed, not '{}'", type_name(value)));
  return value.text;
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
      if (object.sequence->flavour == Sequence::Flavour::kList) return look_up(list, name);
      return object.sequence->is_indexable() ? look_up(tuple, name) : nullptr;
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

Expected<Value> get_path(Runtime& runtime, Value item, const Value& path, const Value& otherwise) {
  if (path.is_absent() || path.is_none()) return item;
  const auto step = [&](const Value& key) -> Status {
    AERIE_ASSIGN_OR_RETURN(item, get_item(runtime, item, key));
    if (item.is_undefined() && !otherwise.is_absent() && !otherwise.is_none()) item = otherwise;
    return {};
  };
  std::string_view rest = path.is_text() ? path.view() : "";
  if (!path.is_text()) AERIE_RETURN_IF_ERROR(step(path));
  while (path.is_text()) {
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    const bool digits = !part.empty() && part.find_first_not_of("0123456789") == part.npos;
    const auto number = digits ? parse_int(part, 10) : std::nullopt;
    AERIE_RETURN_IF_ERROR(step(number ? Value::of(*number) : runtime.text(std::string(part))));
    if (dot == rest.npos) break;
    rest.remove_prefix(dot + 1);
  }
  return item;
}

}  // namespace aerie::jinja
