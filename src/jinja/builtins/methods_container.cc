// Methods of lists, tuples and dicts. A template may change what it was given: those are copies.
#include <fmt/format.h>

#include <algorithm>

#include "jinja/builtins/native.h"
#include "jinja/values/dicts.h"
#include "jinja/values/operations.h"
#include "jinja/values/sort.h"

namespace aerie::jinja {
namespace {

using Items = std::vector<Value>;

Expected<Value> append(Runtime& runtime, const Value& subject, const Bound& arguments) {
  runtime.push(subject.sequence, arguments[0]);
  return Value::none();
}

Expected<Value> extend(Runtime& runtime, const Value& subject, const Bound& arguments) {
  AERIE_ASSIGN_OR_RETURN(const Sequence* more, iterate(runtime, arguments[0]));
  const Items added = more->items;  // it may be the list itself
  AERIE_RETURN_IF_ERROR(runtime.spend(added.size() / 4));
  for (const Value& item : added) runtime.push(subject.sequence, item);
  return Value::none();
}

// Where Python would insert or pop: negative places count from the end.
int64_t place_in(const Items& items, int64_t place) {
  return place < 0 ? place + static_cast<int64_t>(items.size()) : place;
}

Expected<Value> insert(Runtime& runtime, const Value& subject, const Bound& arguments) {
  Items& items = subject.sequence->items;
  AERIE_ASSIGN_OR_RETURN(const int64_t given, int_argument(arguments, 0, 0));
  const int64_t place =
      std::clamp<int64_t>(place_in(items, given), 0, static_cast<int64_t>(items.size()));
  AERIE_RETURN_IF_ERROR(runtime.spend(items.size() / 4));
  runtime.push(subject.sequence, arguments[1]);
  AERIE_RETURN_IF_ERROR(runtime.spend());
  std::rotate(items.begin() + place, items.end() - 1, items.end());
  return Value::none();
}

Expected<Value> pop(Runtime& runtime, const Value& subject, const Bound& arguments) {
  Items& items = subject.sequence->items;
  AERIE_ASSIGN_OR_RETURN(const int64_t given, int_argument(arguments, 0, -1));
  const int64_t place = place_in(items, given);
  if (place < 0 || place >= static_cast<int64_t>(items.size())) {
    return fail("pop() from a place that the list does not have");
  }
  AERIE_RETURN_IF_ERROR(runtime.spend((items.size() - static_cast<size_t>(place)) / 4));
  const Value value = items[static_cast<size_t>(place)];
  items.erase(items.begin() + place);
  return value;
}

// The first place from `from` on, or -1.
Expected<int64_t> find_in(Runtime& runtime, const Items& items, const Value& value,
                          size_t from = 0) {
  for (size_t i = from; i < items.size(); ++i) {
    AERIE_ASSIGN_OR_RETURN(const bool same, equal(runtime, items[i], value));
    if (same) return static_cast<int64_t>(i);
  }
  return int64_t{-1};
}

Expected<Value> index(Runtime& runtime, const Value& subject, const Bound& arguments) {
  AERIE_ASSIGN_OR_RETURN(const int64_t place,
                         find_in(runtime, subject.sequence->items, arguments[0]));
  if (place < 0) return fail("index() of a value that is not in the list");
  return Value::of(Int{place});
}

Expected<Value> count(Runtime& runtime, const Value& subject, const Bound& arguments) {
  Int found = 0;
  for (const Value& item : subject.sequence->items) {
    AERIE_ASSIGN_OR_RETURN(const bool same, equal(runtime, item, arguments[0]));
    found += same ? 1 : 0;
  }
  return Value::of(found);
}

Expected<Value> remove(Runtime& runtime, const Value& subject, const Bound& arguments) {
  Items& items = subject.sequence->items;
  AERIE_ASSIGN_OR_RETURN(const int64_t place, find_in(runtime, items, arguments[0]));
  if (place < 0) return fail("remove() of a value that is not in the list");
  AERIE_RETURN_IF_ERROR(runtime.spend(items.size() / 4));
  items.erase(items.begin() + place);
  return Value::none();
}

Expected<Value> reverse(Runtime& runtime, const Value& subject, const Bound&) {
  Items& items = subject.sequence->items;
  AERIE_RETURN_IF_ERROR(runtime.spend(items.size() / 4));
  std::reverse(items.begin(), items.end());
  return Value::none();
}

Expected<Value> clear_list(Runtime&, const Value& subject, const Bound&) {
  subject.sequence->items.clear();
  return Value::none();
}

Expected<Value> copy_list(Runtime& runtime, const Value& subject, const Bound&) {
  return get_slice(runtime, subject, {Value::none(), Value::none(), Value::none()});
}

Expected<Value> sort_list(Runtime& runtime, const Value& subject, const Bound& arguments) {
  Items& items = subject.sequence->items;
  AERIE_RETURN_IF_ERROR(runtime.claim(static_cast<Int>(items.size()), 3 * sizeof(SortItem)));
  std::vector<SortItem> order;
  for (const Value& item : items) order.push_back({{item}, item});
  AERIE_RETURN_IF_ERROR(stable_sort(runtime, order, arguments.flag(0, false)));
  for (size_t i = 0; i < order.size(); ++i) items[i] = order[i].value;
  return Value::none();
}

Expected<Value> items_of(Runtime& runtime, const Value& subject, const Bound&) {
  Sequence* view = runtime.sequence(Sequence::Flavour::kItems);
  for (const auto& [key, value] : subject.dict->entries) {
    runtime.push(view, runtime.pair(key, value));
    AERIE_RETURN_IF_ERROR(runtime.spend());
  }
  return Value::of(view);
}

Expected<Value> keys_of(Runtime& runtime, const Value& subject, const Bound&) {
  Sequence* view = runtime.sequence(Sequence::Flavour::kKeys);
  for (const auto& entry : subject.dict->entries) runtime.push(view, entry.first);
  AERIE_RETURN_IF_ERROR(runtime.spend(view->items.size() / 4));
  return Value::of(view);
}

Expected<Value> values_of(Runtime& runtime, const Value& subject, const Bound&) {
  Sequence* view = runtime.sequence(Sequence::Flavour::kValues);
  for (const auto& entry : subject.dict->entries) runtime.push(view, entry.second);
  AERIE_RETURN_IF_ERROR(runtime.spend(view->items.size() / 4));
  return Value::of(view);
}

Value given_or_none(const Bound& arguments, size_t i) {
  return arguments.has(i) ? arguments[i] : Value::none();
}

Expected<Value> get(Runtime& runtime, const Value& subject, const Bound& arguments) {
  AERIE_ASSIGN_OR_RETURN(const int64_t place, runtime.find(subject.dict, arguments[0]));
  if (place < 0) return given_or_none(arguments, 1);
  return subject.dict->entries[static_cast<size_t>(place)].second;
}

Expected<Value> set_default(Runtime& runtime, const Value& subject, const Bound& arguments) {
  AERIE_ASSIGN_OR_RETURN(const int64_t place, runtime.find(subject.dict, arguments[0]));
  if (place >= 0) return subject.dict->entries[static_cast<size_t>(place)].second;
  const Value value = given_or_none(arguments, 1);
  AERIE_RETURN_IF_ERROR(runtime.put(subject.dict, arguments[0], value));
  return value;
}

Expected<Value> pop_key(Runtime& runtime, const Value& subject, const Bound& arguments) {
  AERIE_ASSIGN_OR_RETURN(const int64_t place, runtime.find(subject.dict, arguments[0]));
  if (place < 0) {
    if (arguments.has(1)) return arguments[1];
    return fail("pop() of a key that the dict does not have");
  }
  const Value value = subject.dict->entries[static_cast<size_t>(place)].second;
  AERIE_RETURN_IF_ERROR(runtime.erase(subject.dict, static_cast<size_t>(place)));
  return value;
}

Expected<Value> pop_item(Runtime& runtime, const Value& subject, const Bound&) {
  Dict& dict = *subject.dict;
  if (dict.entries.empty()) return fail("popitem() of an empty dict");
  const Value last = runtime.pair(dict.entries.back().first, dict.entries.back().second);
  AERIE_RETURN_IF_ERROR(runtime.erase(&dict, dict.entries.size() - 1));
  return last;
}

Expected<Value> update(Runtime& runtime, const Value& subject, const Bound& arguments) {
  AERIE_RETURN_IF_ERROR(update_dict(runtime, subject.dict, *arguments.all));
  return Value::none();
}

Expected<Value> clear_dict(Runtime&, const Value& subject, const Bound&) {
  subject.dict->entries.clear();
  subject.dict->index.clear();
  return Value::none();
}

Expected<Value> copy_dict(Runtime& runtime, const Value& subject, const Bound&) {
  Dict* copy = runtime.dict();
  for (const auto& [key, value] : subject.dict->entries) {
    AERIE_RETURN_IF_ERROR(runtime.put(copy, key, value));
  }
  return Value::of(copy);
}

constexpr Native kListMethods[] = {
    {"append", append, {"object"}, 1},
    {"clear", clear_list},
    {"copy", copy_list},
    {"count", count, {"value"}, 1},
    {"extend", extend, {"iterable"}, 1},
    {"index", index, {"value"}, 1},
    {"insert", insert, {"index", "object"}, 2},
    {"pop", pop, {"index"}},
    {"remove", remove, {"value"}, 1},
    {"reverse", reverse},
    {"sort", sort_list, {"reverse"}},
};

constexpr Native kTupleMethods[] = {
    {"count", count, {"value"}, 1},
    {"index", index, {"value"}, 1},
};

constexpr Native kDictMethods[] = {
    {"clear", clear_dict},
    {"copy", copy_dict},
    {"get", get, {"key", "default"}, 1},
    {"items", items_of},
    {"keys", keys_of},
    {"pop", pop_key, {"key", "default"}, 1},
    {"popitem", pop_item},
    {"setdefault", set_default, {"key", "default"}, 1},
    {"update", update, {}, 0, true},
    {"values", values_of},
};

}  // namespace

Status update_dict(Runtime& runtime, Dict* dict, const Arguments& arguments) {
  if (arguments.positional.size() > 1) return fail("a dict is made of one dict or list of pairs");
  for (const Value& source : arguments.positional) {
    const bool copies = source.is(Kind::kDict) || source.is(Kind::kNamespace);
    if (copies && source.dict == dict) continue;
    if (copies) {
      for (const auto& [key, value] : source.dict->entries) {
        AERIE_RETURN_IF_ERROR(runtime.put(dict, key, value));
      }
      continue;
    }
    if (source.is_undefined()) return undefined_error(source);
    AERIE_ASSIGN_OR_RETURN(const Sequence* pairs, iterate(runtime, source));
    for (const Value& item : pairs->items) {
      AERIE_ASSIGN_OR_RETURN(const Sequence* parts, iterate(runtime, item));
      if (parts->items.size() != 2) return fail("a dict is made of pairs");
      AERIE_RETURN_IF_ERROR(runtime.put(dict, parts->items[0], parts->items[1]));
    }
  }
  for (const auto& [name, value] : arguments.named) {
    AERIE_RETURN_IF_ERROR(runtime.put(dict, runtime.text(std::string(name)), value));
  }
  return {};
}

std::span<const Native> list_methods() {
  return kListMethods;
}

std::span<const Native> tuple_methods() {
  return kTupleMethods;
}

std::span<const Native> dict_methods() {
  return kDictMethods;
}

}  // namespace aerie::jinja
