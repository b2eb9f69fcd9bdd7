// Filters of sequences and dicts.
#include <fmt/format.h>

#include <algorithm>

#include "jinja/builtins/native.h"
#include "jinja/builtins/text_operations.h"
#include "jinja/values/operations.h"
#include "jinja/values/sort.h"

namespace aerie::jinja {
namespace {

Value missing(Runtime& runtime, const char* name) {
  return Value::undefined(runtime.borrow(name).text);
}

Expected<Value> length_filter(Runtime& runtime, const Value& subject, const Bound&) {
  AERIE_ASSIGN_OR_RETURN(const int64_t size, length(runtime, subject));
  return Value::of(Int{size});
}

Expected<Value> default_filter(Runtime& runtime, const Value& subject, const Bound& arguments) {
  const bool replaced = subject.is_undefined() || (arguments.flag(1, false) && !truth(subject));
  if (!replaced) return subject;
  return arguments.has(0) ? arguments[0] : runtime.borrow("");
}

Expected<Value> first(Runtime& runtime, const Value& subject, const Bound&) {
  AERIE_ASSIGN_OR_RETURN(const Sequence* items, iterate(runtime, subject));
  return items->items.empty() ? missing(runtime, "first item of an empty sequence")
                              : items->items.front();
}

Expected<Value> last(Runtime& runtime, const Value& subject, const Bound&) {
  if (subject.is(Kind::kSequence) && subject.sequence->is_generator()) {
    return fail("the last item of a generator; use the filter list first");
  }
  AERIE_ASSIGN_OR_RETURN(const Sequence* items, iterate(runtime, subject));
  return items->items.empty() ? missing(runtime, "last item of an empty sequence")
                              : items->items.back();
}

Expected<Value> copied(Runtime& runtime, const Value& subject, Sequence::Flavour flavour) {
  AERIE_ASSIGN_OR_RETURN(const Sequence* items, iterate(runtime, subject));
  Sequence* result = runtime.sequence(flavour);
  AERIE_RETURN_IF_ERROR(runtime.spend(items->items.size() / 4));
  for (const Value& item : items->items) runtime.push(result, item);
  return Value::of(result);
}

Expected<Value> list(Runtime& runtime, const Value& subject, const Bound&) {
  return copied(runtime, subject, Sequence::Flavour::kList);
}

Expected<Value> reverse(Runtime& runtime, const Value& subject, const Bound&) {
  if (subject.is_text())
    return get_slice(runtime, subject, {Value::none(), Value::none(), Value::of(Int{-1})});
  const bool generator = subject.is(Kind::kSequence) && subject.sequence->is_generator();
  AERIE_ASSIGN_OR_RETURN(const Value result, copied(runtime, subject,
                                                    generator ? Sequence::Flavour::kList
                                                              : Sequence::Flavour::kGenerator));
  auto& items = result.sequence->items;
  std::reverse(items.begin(), items.end());
  return result;
}

Expected<Value> items(Runtime& runtime, const Value& subject, const Bound&) {
  Sequence* result = runtime.sequence(Sequence::Flavour::kGenerator);
  if (subject.is_undefined()) return Value::of(result);
  if (!subject.is(Kind::kDict)) {
    return fail(fmt::format("items() needs a dict, not '{}'", type_name(subject)));
  }
  for (const auto& [key, value] : subject.dict->entries) {
    runtime.push(result, runtime.pair(key, value));
    AERIE_RETURN_IF_ERROR(runtime.spend());
  }
  return Value::of(result);
}

Expected<Value> join(Runtime& runtime, const Value& subject, const Bound& arguments) {
  AERIE_ASSIGN_OR_RETURN(Sequence * items, iterate(runtime, subject));
  if (arguments.has(1) && !arguments[1].is_none()) {
    Sequence* attributes = runtime.sequence();
    for (const Value& item : items->items) {
      AERIE_ASSIGN_OR_RETURN(const Value value, get_path(runtime, item, arguments[1]));
      runtime.push(attributes, value);
      AERIE_RETURN_IF_ERROR(runtime.spend());
    }
    items = attributes;
  }
  if (!arguments.has(0)) return join_texts(runtime, "", *items);
  AERIE_ASSIGN_OR_RETURN(const Value separator, to_text(runtime, arguments[0]));
  return join_texts(runtime, separator.view(), *items);
}

Expected<Value> sum(Runtime& runtime, const Value& subject, const Bound& arguments) {
  AERIE_ASSIGN_OR_RETURN(const Sequence* items, iterate(runtime, subject));
  Value total = arguments.has(1) ? arguments[1] : Value::of(Int{0});
  if (total.is_text()) return fail("sum() does not add strings; use join()");
  for (const Value& item : items->items) {
    AERIE_ASSIGN_OR_RETURN(const Value value, get_path(runtime, item, arguments[0]));
    AERIE_ASSIGN_OR_RETURN(total, arithmetic(runtime, Operator::kAdd, total, value));
    AERIE_RETURN_IF_ERROR(runtime.spend());
  }
  return total;
}

// What items are compared by: an attribute or themselves, without case unless it matters.
Expected<Value> sort_key(Runtime& runtime, const Value& item, const Value& path,
                         bool case_sensitive) {
  AERIE_RETURN_IF_ERROR(runtime.spend());
  AERIE_ASSIGN_OR_RETURN(const Value key, get_path(runtime, item, path));
  if (case_sensitive) return key;
  return without_case(runtime, key);
}

Expected<Value> extreme(Runtime& runtime, const Value& subject, const Bound& arguments,
                        Operator op) {
  AERIE_ASSIGN_OR_RETURN(const Sequence* items, iterate(runtime, subject));
  if (items->items.empty()) return missing(runtime, "least or greatest item of an empty sequence");
  Value best = items->items[0], best_key;
  for (size_t i = 0; i < items->items.size(); ++i) {
    const Value& item = items->items[i];
    AERIE_ASSIGN_OR_RETURN(const Value key,
                           sort_key(runtime, item, arguments[1], arguments.flag(0, false)));
    bool better = i == 0;
    if (i > 0) {
      AERIE_ASSIGN_OR_RETURN(better, ordered(runtime, op, key, best_key));
    }
    if (better) {
      best = item;
      best_key = key;
    }
  }
  return best;
}

Expected<Value> min(Runtime& runtime, const Value& subject, const Bound& arguments) {
  return extreme(runtime, subject, arguments, Operator::kLess);
}

Expected<Value> max(Runtime& runtime, const Value& subject, const Bound& arguments) {
  return extreme(runtime, subject, arguments, Operator::kGreater);
}

Value values_of(Runtime& runtime, const std::vector<SortItem>& items) {
  Sequence* result = runtime.sequence();
  for (const SortItem& item : items) runtime.push(result, item.value);
  return Value::of(result);
}

// The attributes of sort(attribute="a,b").
std::vector<Value> split_paths(Runtime& runtime, const Value& paths) {
  if (!paths.is_text()) return {paths};
  std::vector<Value> parts;
  std::string_view rest = paths.view();
  for (;;) {
    const size_t comma = rest.find(',');
    parts.push_back(runtime.borrow(rest.substr(0, comma)));
    if (comma == rest.npos) return parts;
    rest.remove_prefix(comma + 1);
  }
}

Expected<Value> sort(Runtime& runtime, const Value& subject, const Bound& arguments) {
  AERIE_ASSIGN_OR_RETURN(const Sequence* items, iterate(runtime, subject));
  const std::vector<Value> paths = split_paths(runtime, arguments[2]);
  AERIE_RETURN_IF_ERROR(runtime.claim(static_cast<Int>(items->items.size()),
                                      2 * sizeof(SortItem) + paths.size() * sizeof(Value)));
  std::vector<SortItem> order;
  for (const Value& item : items->items) {
    SortItem& entry = order.emplace_back();
    entry.value = item;
    for (const Value& path : paths) {
      AERIE_ASSIGN_OR_RETURN(const Value key,
                             sort_key(runtime, item, path, arguments.flag(1, false)));
      entry.keys.push_back(key);
    }
  }
  AERIE_RETURN_IF_ERROR(stable_sort(runtime, order, arguments.flag(0, false)));
  return values_of(runtime, order);
}

Expected<Value> dict_sort(Runtime& runtime, const Value& subject, const Bound& arguments) {
  if (subject.is_undefined()) return undefined_error(subject);
  if (!subject.is(Kind::kDict)) {
    return fail(fmt::format("dictsort() needs a dict, not '{}'", type_name(subject)));
  }
  bool by_value = false;
  if (arguments.has(1)) {
    AERIE_ASSIGN_OR_RETURN(const Text* by, text_argument(arguments, 1));
    by_value = by->view == "value";
    if (!by_value && by->view != "key") return fail("dictsort() sorts by 'key' or 'value'");
  }
  AERIE_RETURN_IF_ERROR(
      runtime.claim(static_cast<Int>(subject.dict->entries.size()), 3 * sizeof(SortItem)));
  std::vector<SortItem> order;
  for (const auto& [key, value] : subject.dict->entries) {
    AERIE_ASSIGN_OR_RETURN(
        const Value compared,
        sort_key(runtime, by_value ? value : key, Value::absent(), arguments.flag(0, false)));
    order.push_back({{compared}, runtime.pair(key, value)});
  }
  AERIE_RETURN_IF_ERROR(stable_sort(runtime, order, arguments.flag(2, false)));
  return values_of(runtime, order);
}

Expected<Value> unique(Runtime& runtime, const Value& subject, const Bound& arguments) {
  AERIE_ASSIGN_OR_RETURN(const Sequence* items, iterate(runtime, subject));
  Dict* seen = runtime.dict();
  Sequence* result = runtime.sequence(Sequence::Flavour::kGenerator);
  for (const Value& item : items->items) {
    AERIE_ASSIGN_OR_RETURN(const Value key,
                           sort_key(runtime, item, arguments[1], arguments.flag(0, false)));
    AERIE_ASSIGN_OR_RETURN(const int64_t place, runtime.find(seen, key));
    if (place >= 0) continue;
    AERIE_RETURN_IF_ERROR(runtime.put(seen, key, Value::none()));
    runtime.push(result, item);
  }
  return Value::of(result);
}

Expected<Value> group_by(Runtime& runtime, const Value& subject, const Bound& arguments) {
  AERIE_ASSIGN_OR_RETURN(const Sequence* items, iterate(runtime, subject));
  const auto key_of = [&](const Value& item, bool with_case) -> Expected<Value> {
    AERIE_ASSIGN_OR_RETURN(const Value key, get_path(runtime, item, arguments[0], arguments[1]));
    if (with_case) return key;
    return without_case(runtime, key);
  };
  const bool case_sensitive = arguments.flag(2, false);
  AERIE_RETURN_IF_ERROR(runtime.claim(static_cast<Int>(items->items.size()), 3 * sizeof(SortItem)));
  std::vector<SortItem> order;
  for (const Value& item : items->items) {
    AERIE_ASSIGN_OR_RETURN(const Value key, key_of(item, case_sensitive));
    order.push_back({{key}, item});
    AERIE_RETURN_IF_ERROR(runtime.spend());
  }
  AERIE_RETURN_IF_ERROR(stable_sort(runtime, order, false));
  Sequence* groups = runtime.sequence();
  Sequence* members = nullptr;
  Value current;
  for (const auto& [keys, item] : order) {
    bool same = members != nullptr;
    if (same) {
      AERIE_ASSIGN_OR_RETURN(same, equal(runtime, keys[0], current));
    }
    if (!same) {
      // The name of a group is its first member's own, case and all.
      AERIE_ASSIGN_OR_RETURN(const Value name, key_of(item, true));
      members = runtime.sequence();
      const Value group = runtime.pair(name, Value::of(members));
      group.sequence->flavour = Sequence::Flavour::kGroup;
      runtime.push(groups, group);
      current = keys[0];
    }
    runtime.push(members, item);
  }
  AERIE_RETURN_IF_ERROR(runtime.spend());
  return Value::of(groups);
}

Expected<Value> batch(Runtime& runtime, const Value& subject, const Bound& arguments) {
  AERIE_ASSIGN_OR_RETURN(const Sequence* items, iterate(runtime, subject));
  AERIE_ASSIGN_OR_RETURN(const int64_t count, int_argument(arguments, 0, 0));
  const bool fills = arguments.has(1) && !arguments[1].is_none();
  Sequence* result = runtime.sequence(Sequence::Flavour::kGenerator);
  Sequence* row = nullptr;
  for (const Value& item : items->items) {
    if (row == nullptr || static_cast<int64_t>(row->items.size()) == count) {
      row = runtime.sequence();
      runtime.push(result, Value::of(row));
    }
    runtime.push(row, item);
    AERIE_RETURN_IF_ERROR(runtime.spend());
  }
  if (row == nullptr || !fills) return Value::of(result);
  const int64_t lacking = count - static_cast<int64_t>(row->items.size());
  AERIE_RETURN_IF_ERROR(runtime.claim(lacking, 2 * sizeof(Value)));
  for (int64_t i = 0; i < lacking; ++i) runtime.push(row, arguments[1]);
  return Value::of(result);
}

Expected<Value> slice(Runtime& runtime, const Value& subject, const Bound& arguments) {
  AERIE_ASSIGN_OR_RETURN(const Sequence* items, iterate(runtime, subject));
  AERIE_ASSIGN_OR_RETURN(const int64_t slices, int_argument(arguments, 0, 0));
  if (slices == 0) return fail("slice() into no slices");
  AERIE_RETURN_IF_ERROR(runtime.claim(slices, sizeof(Sequence) + 2 * sizeof(Value)));
  const bool fills = arguments.has(1) && !arguments[1].is_none();
  Sequence* result = runtime.sequence(Sequence::Flavour::kGenerator);
  size_t next = 0;
  for (int64_t i = 0; i < slices; ++i) {
    const auto count = static_cast<int64_t>(items->items.size());
    const bool longer = i < count % slices;
    Sequence* part = runtime.sequence();
    for (int64_t k = 0; k < count / slices + (longer ? 1 : 0); ++k) {
      runtime.push(part, items->items[next++]);
    }
    if (fills && !longer) runtime.push(part, arguments[1]);
    runtime.push(result, Value::of(part));
    AERIE_RETURN_IF_ERROR(runtime.spend());
  }
  return Value::of(result);
}

Expected<Value> attribute(Runtime& runtime, const Value& subject, const Bound& arguments) {
  AERIE_ASSIGN_OR_RETURN(const Text* name, text_argument(arguments, 0));
  if (subject.is(Kind::kDict) && find_method(subject, name->view) == nullptr) {
    return Value::undefined(name, Kind::kDict);
  }
  return get_attribute(runtime, subject, *name);
}

constexpr Native kFilters[] = {
    {"attr", attribute, {"name"}, 1},
    {"batch", batch, {"linecount", "fill_with"}, 1},
    {"count", length_filter},
    {"d", default_filter, {"default_value", "boolean"}},
    {"default", default_filter, {"default_value", "boolean"}},
    {"dictsort", dict_sort, {"case_sensitive", "by", "reverse"}},
    {"first", first},
    {"groupby", group_by, {"attribute", "default", "case_sensitive"}, 1},
    {"items", items},
    {"join", join, {"d", "attribute"}},
    {"last", last},
    {"length", length_filter},
    {"list", list},
    {"max", max, {"case_sensitive", "attribute"}},
    {"min", min, {"case_sensitive", "attribute"}},
    {"reverse", reverse},
    {"slice", slice, {"slices", "fill_with"}, 1},
    {"sort", sort, {"reverse", "case_sensitive", "attribute"}},
    {"sum", sum, {"attribute", "start"}},
    {"unique", unique, {"case_sensitive", "attribute"}},
};

}  // namespace

std::span<const Native> sequence_filters() {
  return kFilters;
}

}  // namespace aerie::jinja
