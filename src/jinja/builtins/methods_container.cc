// Methods of lists, tuples and dicts. A template may change what it was given: those are copies.
#include <algorithm>

#include "jinja/builtins/native.h"
#include "jinja/values/operations.h"

namespace aerie::jinja {
namespace {

using Items = std::vector<Value>;

Value append_item(Call& call) {
  call.runtime.push(call.subject.sequence, call[0]);
  return Value::none();
}

Value extend_list(Call& call) {
  const Items added = iterate(call.runtime, call[0])->items;  // it may be the list itself
  call.runtime.push(call.subject.sequence, added);
  return Value::none();
}

// Where Python would insert or pop: negative places count from the end.
int64_t place_in_list(const Items& items, int64_t place) {
  return place < 0 ? place + static_cast<int64_t>(items.size()) : place;
}

Value insert_item(Call& call) {
  Items& items = call.subject.sequence->items;
  const auto size = static_cast<int64_t>(items.size());
  const int64_t place = std::clamp<int64_t>(place_in_list(items, call.integer(0)), 0, size);
  call.runtime.push(call.subject.sequence, call[1]);
  if (!call.runtime.spend(items.size() / 4)) return {};
  std::rotate(items.begin() + place, items.end() - 1, items.end());
  return Value::none();
}

Value pop_item(Call& call) {
  Items& items = call.subject.sequence->items;
  const int64_t place = place_in_list(items, call.integer(0, -1));
  if (place < 0 || place >= static_cast<int64_t>(items.size())) {
    return call.runtime.fail("pop() from a place that the list does not have");
  }
  if (!call.runtime.spend((items.size() - static_cast<size_t>(place)) / 4)) return {};
  const Value value = items[static_cast<size_t>(place)];
  items.erase(items.begin() + place);
  return value;
}

// Where the first argument is among the items; at their end if nowhere, which fails.
Items::iterator place_of_value(Call& call) {
  Items& items = call.subject.sequence->items;
  const auto found = std::ranges::find_if(
      items, [&](const Value& item) { return equal(call.runtime, item, call[0]); });
  if (found == items.end()) call.runtime.fail("the value is not in the list");
  return found;
}

Value index_of_item(Call& call) {
  return Value::of(int64_t{place_of_value(call) - call.subject.sequence->items.begin()});
}

Value count_items(Call& call) {
  const Items& items = call.subject.sequence->items;
  return Value::of(int64_t{std::ranges::count_if(
      items, [&](const Value& item) { return equal(call.runtime, item, call[0]); })});
}

Value remove_item(Call& call) {
  Items& items = call.subject.sequence->items;
  const auto found = place_of_value(call);
  if (call.runtime.spend(items.size() / 4)) items.erase(found);
  return Value::none();
}

Value reverse_list(Call& call) {
  Items& items = call.subject.sequence->items;
  if (call.runtime.spend(items.size() / 4)) std::ranges::reverse(items);
  return Value::none();
}

Value clear_list(Call& call) {
  call.subject.sequence->items.clear();
  return Value::none();
}

Value copy_list(Call& call) {
  return get_slice(call.runtime, call.subject, {Value::none(), Value::none(), Value::none()});
}

Value sort_list(Call& call) {
  Items& items = call.subject.sequence->items;
  const auto itself = [](const Value& item) { return item; };
  const auto order = sort_by(call.runtime, items, itself, call.flag(0));
  for (size_t i = 0; i < order.size(); ++i) items[i] = order[i].value;
  return Value::none();
}

Value view_of_items(Call& call) {
  return Value::of(dict_items(call.runtime, *call.subject.dict, Sequence::Flavour::kItems));
}

template <Value Dict::Entry::*part>
Value view_of(Call& call, Sequence::Flavour flavour) {
  Sequence* view = call.runtime.sequence(flavour);
  for (const Dict::Entry& entry : call.subject.dict->entries) {
    call.runtime.push(view, entry.*part);
  }
  call.runtime.spend(view->items.size() / 4);
  return Value::of(view);
}

Value get_value(Call& call) {
  if (const Dict::Entry* entry = call.runtime.find(call.subject.dict, call[0])) {
    return entry->second;
  }
  return call.has(1) ? call[1] : Value::none();
}

Value set_default(Call& call) {
  const Value value = get_value(call);
  Dict* dict = call.subject.dict;
  if (call.runtime.find(dict, call[0]) == nullptr) call.runtime.put(dict, call[0], value);
  return value;
}

Value pop_key(Call& call) {
  const Dict::Entry* entry = call.runtime.find(call.subject.dict, call[0]);
  if (entry == nullptr) {
    return call.has(1) ? call[1] : call.runtime.fail("pop() of a key that the dict does not have");
  }
  const Value value = entry->second;
  call.runtime.erase(call.subject.dict, entry);
  return value;
}

Value pop_entry(Call& call) {
  Dict* dict = call.subject.dict;
  if (dict->entries.empty()) return call.runtime.fail("popitem() of an empty dict");
  const Dict::Entry& last = dict->entries.back();
  const Value pair = call.runtime.pair(last.first, last.second);
  call.runtime.erase(dict, &last);
  return pair;
}

Value update(Call& call) {
  update_dict(call.runtime, call.subject.dict, call.all);
  return Value::none();
}

Value clear_dict(Call& call) {
  *call.subject.dict = {};
  return Value::none();
}

Value copy_dict(Call& call) {
  Dict* copy = call.runtime.dict();
  update_dict(call.runtime, copy, {{call.subject}, {}});
  return Value::of(copy);
}

constexpr Native kAllListMethods[] = {
    {"append", append_item, {"object"}, 1},
    {"clear", clear_list},
    {"copy", copy_list},
    {"count", count_items, {"value"}, 1},
    {"extend", extend_list, {"iterable"}, 1},
    {"index", index_of_item, {"value"}, 1},
    {"insert", insert_item, {"index", "object"}, 2},
    {"pop", pop_item, {"index"}},
    {"remove", remove_item, {"value"}, 1},
    {"reverse", reverse_list},
    {"sort", sort_list, {"reverse"}},
};

constexpr Native kAllTupleMethods[] = {
    {"count", count_items, {"value"}, 1},
    {"index", index_of_item, {"value"}, 1},
};

constexpr Native kAllDictMethods[] = {
    {"clear", clear_dict},
    {"copy", copy_dict},
    {"get", get_value, {"key", "default"}, 1},
    {"items", view_of_items},
    {"keys", [](Call& c) { return view_of<&Dict::Entry::first>(c, Sequence::Flavour::kKeys); }},
    {"pop", pop_key, {"key", "default"}, 1},
    {"popitem", pop_entry},
    {"setdefault", set_default, {"key", "default"}, 1},
    {"update", update, {}, 0, true},
    {"values",
     [](Call& c) { return view_of<&Dict::Entry::second>(c, Sequence::Flavour::kValues); }},
};

}  // namespace

void update_dict(Runtime& runtime, Dict* dict, const Arguments& arguments) {
  if (arguments.positional.size() > 1) runtime.fail("a dict is made of one dict or list of pairs");
  for (const Value& source : arguments.positional) {
    if (source.is(Kind::kDict) || source.is(Kind::kNamespace)) {
      if (source.dict == dict) continue;
      for (const auto& [key, value] : source.dict->entries) runtime.put(dict, key, value);
      continue;
    }
    if (source.is_undefined()) undefined_error(runtime, source);
    for (const Value& item : iterate(runtime, source)->items) {
      const Items& parts = iterate(runtime, item)->items;
      if (parts.size() != 2) runtime.fail("a dict is made of pairs");
      if (runtime.failed()) return;
      runtime.put(dict, parts[0], parts[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) runtime.put(dict, runtime.text(name), value);
}

Sequence* dict_items(Runtime& runtime, const Dict& dict, Sequence::Flavour flavour) {
  Sequence* items = runtime.sequence(flavour);
  for (const auto& [key, value] : dict.entries) {
    if (!runtime.spend()) break;
    runtime.push(items, runtime.pair(key, value));
  }
  return items;
}

const Table kListMethods(kAllListMethods);
const Table kTupleMethods(kAllTupleMethods);
const Table kDictMethods(kAllDictMethods);

}  // namespace aerie::jinja
