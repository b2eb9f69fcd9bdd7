// map, select and their like: filters that apply another filter or test to each item.
#include "format/text.h"
#include "jinja/builtins/native.h"
#include "jinja/values/operations.h"

namespace aerie::jinja {
namespace {

// The filter or test that the argument at `place` names, and the arguments after it.
struct Applied {
  const Native* native = nullptr;
  Arguments arguments;
};

Applied applied(const Call& call, size_t place, bool filter) {
  const auto& given = call.all.positional;
  const Value& name = given[place];
  if (!name.is_text()) return call.runtime.fail("the name of a filter or test is a string");
  const Native* native = filter ? find_filter(name.view()) : find_test(name.view());
  if (native == nullptr) {
    return call.runtime.fail(not_supported("there is no {} named '{}'", filter ? "filter" : "test",
                                           printable(name.view())));
  }
  const auto first = given.begin() + static_cast<std::ptrdiff_t>(place) + 1;
  return {native, {{first, given.end()}, call.all.named}};
}

Value map(Call& call) {
  // A filter may apply itself to its own subject: map('map', 'map', ...).
  const Runtime::Level level(call.runtime);
  Runtime& runtime = call.runtime;
  Sequence* result = runtime.sequence(Sequence::Flavour::kGenerator);
  if (!truth(call.subject) || runtime.failed()) return Value::of(result);
  const Value path = call.all.find("attribute"), otherwise = call.all.find("default");
  const bool by_path = call.all.positional.empty();
  if (by_path && path.is_absent()) return runtime.fail("map() needs a filter or an attribute");
  if (by_path && call.all.named.size() > (otherwise.is_absent() ? 1u : 2u)) {
    return runtime.fail("map() takes 'attribute' and 'default' only");
  }
  const auto& items = call.items();
  const Applied filter = by_path ? Applied() : applied(call, 0, true);
  for (const Value& item : items) {
    if (!runtime.spend()) break;
    runtime.push(result, by_path ? get_path(runtime, item, path, otherwise)
                                 : call_native(runtime, *filter.native, item, filter.arguments));
  }
  return Value::of(result);
}

template <bool wanted, bool by_attribute>
Value selected(Call& call) {
  Runtime& runtime = call.runtime;
  Sequence* result = runtime.sequence(Sequence::Flavour::kGenerator);
  if (!truth(call.subject)) return Value::of(result);
  const auto& given = call.all.positional;
  const size_t place = by_attribute ? 1 : 0;
  if (given.size() < place) return runtime.fail("the name of an attribute is needed");
  const auto& items = call.items();
  const Applied test = given.size() > place ? applied(call, place, false) : Applied();
  for (const Value& item : items) {
    if (!runtime.spend()) break;
    Value value = by_attribute ? get_path(runtime, item, given[0]) : item;
    if (test.native != nullptr) value = call_native(runtime, *test.native, value, test.arguments);
    if (truth(value) == wanted) runtime.push(result, item);
  }
  return Value::of(result);
}

constexpr Native kAllSelectingFilters[] = {
    {"map", map, {}, 0, true},
    {"reject", selected<false, false>, {}, 0, true},
    {"rejectattr", selected<false, true>, {}, 0, true},
    {"select", selected<true, false>, {}, 0, true},
    {"selectattr", selected<true, true>, {}, 0, true},
};

}  // namespace

const Table kSelectingFilters(kAllSelectingFilters);

}  // namespace aerie::jinja
