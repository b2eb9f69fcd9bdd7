// Filters of sequences and dicts.
#include <algorithm>

#include "jinja/builtins/native.h"
#include "jinja/values/characters.h"
#include "jinja/values/operations.h"

namespace aerie::jinja {
namespace {

using Flavour = Sequence::Flavour;

Value length_of(Call& call) {
  return Value::of(length(call.runtime, call.subject));
}

Value default_of(Call& call) {
  const Value& it = call.subject;
  if (!it.is_undefined() && (truth(it) || !call.flag(1))) return it;
  return call.has(0) ? call[0] : call.runtime.borrow("");
}

// What the filters of an empty sequence give: something undefined.
Value nothing(Runtime& runtime, const char* name) {
  return Value::undefined(runtime.borrow(name).text);
}

Value first(Call& call) {
  const auto& items = call.items();
  return items.empty() ? nothing(call.runtime, "first item of an empty sequence") : items.front();
}

Value last(Call& call) {
  if (call.subject.is_generator()) {
    return call.runtime.fail("the last item of a generator; use the filter list first");
  }
  const auto& items = call.items();
  return items.empty() ? nothing(call.runtime, "last item of an empty sequence") : items.back();
}

Sequence* copied(Call& call, Flavour flavour) {
  Sequence* result = call.runtime.sequence(flavour);
  call.runtime.push(result, call.items());
  return result;
}

Value list(Call& call) {
  return Value::of(copied(call, Flavour::kList));
}

Value reversed(Call& call) {
  if (call.subject.is_text()) {
    const Slice backwards = {Value::none(), Value::none(), Value::of(Int{-1})};
    return get_slice(call.runtime, call.subject, backwards);
  }
  Sequence* result =
      copied(call, call.subject.is_generator() ? Flavour::kList : Flavour::kGenerator);
  std::ranges::reverse(result->items);
  return Value::of(result);
}

Value items(Call& call) {
  const Value& it = call.subject;
  if (it.is(Kind::kDict)) return Value::of(dict_items(call.runtime, *it.dict, Flavour::kGenerator));
  if (it.is_undefined()) return Value::of(call.runtime.sequence(Flavour::kGenerator));
  return type_error(call.runtime, "items() needs a dict", it);
}

Value join(Call& call) {
  Sequence* parts = call.runtime.sequence();
  for (const Value& item : call.items()) {
    if (!call.runtime.spend()) break;
    call.runtime.push(parts, get_path(call.runtime, item, call[1]));
  }
  const Value separator = call.has(0) ? to_text(call.runtime, call[0]) : call.runtime.borrow("");
  return join_texts(call.runtime, separator.view(), parts->items);
}

Value sum(Call& call) {
  Value total = call.has(1) ? call[1] : Value::of(Int{0});
  if (total.is_text()) return call.runtime.fail("sum() does not add strings; use join()");
  for (const Value& item : call.items()) {
    if (!call.runtime.spend()) break;
    const Value value = get_path(call.runtime, item, call[0]);
    total = arithmetic(call.runtime, Operator::kAdd, total, value);
  }
  return total;
}

// What items are compared by: an attribute or themselves, without case unless it matters.
Value sort_key(Runtime& runtime, const Value& item, const Value& path, bool case_sensitive,
               const Value& otherwise = Value::absent()) {
  if (!runtime.spend()) return {};
  const Value key = get_path(runtime, item, path, otherwise);
  if (case_sensitive || !key.is_text() || !runtime.spend(key.view().size() / 4)) return key;
  return runtime.text(in_case(key.view(), [](char32_t) { return Case::kLower; }));
}

Value extreme(Call& call, Operator op) {
  Value best = nothing(call.runtime, "least or greatest item of an empty sequence"), best_key;
  bool first_one = true;
  for (const Value& item : call.items()) {
    const Value key = sort_key(call.runtime, item, call[1], call.flag(0));
    if (call.runtime.failed()) break;
    if (!first_one && !ordered(call.runtime, op, key, best_key)) continue;
    first_one = false;
    best = item;
    best_key = key;
  }
  return best;
}

Value values_of(Runtime& runtime, const std::vector<SortItem>& sorted) {
  Sequence* result = runtime.sequence();
  for (const SortItem& item : sorted) runtime.push(result, item.value);
  return Value::of(result);
}

// The key for sort(attribute="a,b"): a list if there are several.
Value sort_keys(Runtime& runtime, const Value& item, const Value& paths, bool case_sensitive) {
  std::string_view rest = paths.is_text() ? paths.view() : "";
  if (rest.find(',') == rest.npos) return sort_key(runtime, item, paths, case_sensitive);
  Sequence* keys = runtime.sequence();
  while (!runtime.failed()) {
    const Value path = runtime.borrow(take_until(rest, ","));
    runtime.push(keys, sort_key(runtime, item, path, case_sensitive));
    if (rest.empty()) break;
    rest.remove_prefix(1);
  }
  return Value::of(keys);
}

Value sorted(Call& call) {
  const auto key_of = [&](const Value& item) {
    return sort_keys(call.runtime, item, call[2], call.flag(1));
  };
  return values_of(call.runtime, sort_by(call.runtime, call.items(), key_of, call.flag(0)));
}

Value sorted_dict(Call& call) {
  Runtime& runtime = call.runtime;
  const Value& it = call.subject;
  if (!it.is(Kind::kDict)) return type_error(runtime, "dictsort() needs a dict", it);
  const std::string_view by = call.string(1, "key");
  if (by != "value" && by != "key") return runtime.fail("dictsort() sorts by 'key' or 'value'");
  const auto key_of = [&](const Value& entry) {
    const auto& pair = entry.sequence->items;
    return sort_key(runtime, pair[by == "key" ? 0 : 1], Value::none(), call.flag(0));
  };
  const auto& entries = dict_items(runtime, *it.dict, Flavour::kList)->items;
  return values_of(runtime, sort_by(runtime, entries, key_of, call.flag(2)));
}

Value unique(Call& call) {
  Dict* seen = call.runtime.dict();
  Sequence* result = call.runtime.sequence(Flavour::kGenerator);
  for (const Value& item : call.items()) {
    const Value key = sort_key(call.runtime, item, call[1], call.flag(0));
    if (call.runtime.find(seen, key) == nullptr) call.runtime.push(result, item);
    if (call.runtime.failed()) break;
    call.runtime.put(seen, key, Value::none());
  }
  return Value::of(result);
}

Value group_by(Call& call) {
  Runtime& runtime = call.runtime;
  const auto key_of = [&](const Value& item, bool case_sensitive) {
    return sort_key(runtime, item, call[0], case_sensitive, call[1]);
  };
  const auto compared = [&](const Value& item) { return key_of(item, call.flag(2)); };
  Sequence* groups = runtime.sequence();
  Sequence* members = nullptr;
  Value current;
  for (const auto& [key, item] : sort_by(runtime, call.items(), compared, false)) {
    if (runtime.failed()) return {};
    if (members == nullptr || !equal(runtime, key, current)) {
      // The name of a group is its first member's own, case and all.
      members = runtime.sequence();
      const Value group = runtime.pair(key_of(item, true), Value::of(members));
      group.sequence->flavour = Flavour::kGroup;
      runtime.push(groups, group);
      current = key;
    }
    runtime.push(members, item);
  }
  return Value::of(groups);
}

Value batch(Call& call) {
  Runtime& runtime = call.runtime;
  const int64_t count = call.integer(0);
  Sequence* result = runtime.sequence(Flavour::kGenerator);
  Sequence* row = nullptr;
  for (const Value& item : call.items()) {
    if (!runtime.spend()) return {};
    if (row == nullptr || static_cast<int64_t>(row->items.size()) == count) {
      row = runtime.sequence();
      runtime.push(result, Value::of(row));
    }
    runtime.push(row, item);
  }
  if (row == nullptr || !call.given(1)) return Value::of(result);
  const Int lacking = Int{count} - static_cast<Int>(row->items.size());
  if (!runtime.claim(lacking, 2 * sizeof(Value))) return {};
  for (Int i = 0; i < lacking; ++i) runtime.push(row, call[1]);
  return Value::of(result);
}

Value slice(Call& call) {
  Runtime& runtime = call.runtime;
  const auto& all = call.items();
  const int64_t slices = call.integer(0), count = static_cast<int64_t>(all.size());
  if (slices == 0) return runtime.fail("slice() into no slices");
  if (!runtime.claim(slices, sizeof(Sequence) + 2 * sizeof(Value))) return {};
  Sequence* result = runtime.sequence(Flavour::kGenerator);
  auto next = all.begin();
  for (int64_t i = 0; i < slices && runtime.spend(); ++i) {
    const bool longer = i < count % slices;
    Sequence* part = runtime.sequence();
    const auto end = next + count / slices + (longer ? 1 : 0);
    while (next != end) runtime.push(part, *next++);
    if (call.given(1) && !longer) runtime.push(part, call[1]);
    runtime.push(result, Value::of(part));
  }
  return Value::of(result);
}

Value attribute(Call& call) {
  const Value& it = call.subject;
  const std::string_view name = call.string(0);
  if (call.runtime.failed()) return {};
  if (it.is(Kind::kDict) && find_method(it, name) == nullptr) {
    return Value::undefined(call[0].text, Kind::kDict);
  }
  return get_attribute(call.runtime, it, *call[0].text);
}

constexpr Native kAllSequenceFilters[] = {
    {"attr", attribute, {"name"}, 1},
    {"batch", batch, {"linecount", "fill_with"}, 1},
    {"count", length_of},
    {"d", default_of, {"default_value", "boolean"}},
    {"default", default_of, {"default_value", "boolean"}},
    {"dictsort", sorted_dict, {"case_sensitive", "by", "reverse"}},
    {"first", first},
    {"groupby", group_by, {"attribute", "default", "case_sensitive"}, 1},
    {"items", items},
    {"join", join, {"d", "attribute"}},
    {"last", last},
    {"length", length_of},
    {"list", list},
    {"max",
     [](Call& c) { return extreme(c, Operator::kGreater); },
     {"case_sensitive", "attribute"}},
    {"min", [](Call& c) { return extreme(c, Operator::kLess); }, {"case_sensitive", "attribute"}},
    {"reverse", reversed},
    {"slice", slice, {"slices", "fill_with"}, 1},
    {"sort", sorted, {"reverse", "case_sensitive", "attribute"}},
    {"sum", sum, {"attribute", "start"}},
    {"unique", unique, {"case_sensitive", "attribute"}},
};

}  // namespace

const Table kSequenceFilters(kAllSequenceFilters);

}  // namespace aerie::jinja
