// map, select and their like: filters that apply another filter or test to each item.
#include <fmt/format.h>

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

Expected<Applied> applied(const Bound& bound, size_t place, bool filter) {
  const Arguments& given = *bound.all;
  const Value& name = given.positional[place];
  if (!name.is_text()) return fail("the name of a filter or test is a string");
  Applied result;
  result.native = filter ? find_filter(name.view()) : find_test(name.view());
  if (result.native == nullptr) {
    return Status(StatusCode::kUnsupported,
                  fmt::format("there is no {} named '{}'", filter ? "filter" : "test",
                              printable(name.view())));
  }
  result.arguments.positional.assign(
      given.positional.begin() + static_cast<std::ptrdiff_t>(place) + 1, given.positional.end());
  result.arguments.named = given.named;
  return result;
}

Value named_argument(const Arguments& arguments, std::string_view name) {
  for (const auto& [key, value] : arguments.named) {
    if (key == name) return value;
  }
  return Value::absent();
}

Expected<Value> map_attribute(Runtime& runtime, const Sequence& items, const Arguments& given) {
  const Value path = named_argument(given, "attribute");
  const Value otherwise = named_argument(given, "default");
  if (given.named.size() > (otherwise.is_absent() ? 1u : 2u)) {
    return fail("map() takes 'attribute' and 'default' only");
  }
  Sequence* result = runtime.sequence(Sequence::Flavour::kGenerator);
  for (const Value& item : items.items) {
    AERIE_ASSIGN_OR_RETURN(const Value value, get_path(runtime, item, path, otherwise));
    runtime.push(result, value);
    AERIE_RETURN_IF_ERROR(runtime.spend());
  }
  return Value::of(result);
}

Expected<Value> map(Runtime& runtime, const Value& subject, const Bound& bound) {
  // A filter may apply itself to its own subject: map('map', 'map', ...).
  const Runtime::Level level(runtime);
  if (level.too_deep()) return runtime.too_deep();
  Sequence* result = runtime.sequence(Sequence::Flavour::kGenerator);
  if (!truth(subject)) return Value::of(result);
  AERIE_ASSIGN_OR_RETURN(const Sequence* items, iterate(runtime, subject));
  const Arguments& given = *bound.all;
  if (given.positional.empty()) {
    if (named_argument(given, "attribute").is_absent()) {
      return fail("map() needs a filter or an attribute");
    }
    return map_attribute(runtime, *items, given);
  }
  AERIE_ASSIGN_OR_RETURN(const Applied filter, applied(bound, 0, true));
  for (const Value& item : items->items) {
    AERIE_ASSIGN_OR_RETURN(const Value value,
                           call_native(runtime, *filter.native, item, filter.arguments));
    runtime.push(result, value);
  }
  return Value::of(result);
}

struct Selection {
  bool wanted = true;
  bool by_attribute = false;
};

Expected<Value> selected(Runtime& runtime, const Value& subject, const Bound& bound,
                         Selection selection) {
  Sequence* result = runtime.sequence(Sequence::Flavour::kGenerator);
  if (!truth(subject)) return Value::of(result);
  AERIE_ASSIGN_OR_RETURN(const Sequence* items, iterate(runtime, subject));
  const Arguments& given = *bound.all;
  const size_t place = selection.by_attribute ? 1 : 0;
  if (given.positional.size() < place) return fail("the name of an attribute is needed");
  Applied test;
  if (given.positional.size() > place) {
    AERIE_ASSIGN_OR_RETURN(test, applied(bound, place, false));
  }
  for (const Value& item : items->items) {
    Value value = item;
    if (selection.by_attribute) {
      AERIE_ASSIGN_OR_RETURN(value, get_path(runtime, item, given.positional[0]));
    }
    if (test.native != nullptr) {
      AERIE_ASSIGN_OR_RETURN(value, call_native(runtime, *test.native, value, test.arguments));
    }
    AERIE_RETURN_IF_ERROR(runtime.spend());
    if (truth(value) == selection.wanted) runtime.push(result, item);
  }
  return Value::of(result);
}

Expected<Value> select(Runtime& runtime, const Value& subject, const Bound& bound) {
  return selected(runtime, subject, bound, {true, false});
}

Expected<Value> reject(Runtime& runtime, const Value& subject, const Bound& bound) {
  return selected(runtime, subject, bound, {false, false});
}

Expected<Value> select_attribute(Runtime& runtime, const Value& subject, const Bound& bound) {
  return selected(runtime, subject, bound, {true, true});
}

Expected<Value> reject_attribute(Runtime& runtime, const Value& subject, const Bound& bound) {
  return selected(runtime, subject, bound, {false, true});
}

constexpr Native kFilters[] = {
    {"map", map, {}, 0, true},
    {"reject", reject, {}, 0, true},
    {"rejectattr", reject_attribute, {}, 0, true},
    {"select", select, {}, 0, true},
    {"selectattr", select_attribute, {}, 0, true},
};

}  // namespace

std::span<const Native> selecting_filters() {
  return kFilters;
}

}  // namespace aerie::jinja
