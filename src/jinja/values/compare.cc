// Comparing and sorting.
#include <algorithm>

#include "jinja/values/characters.h"
#include "jinja/values/operations.h"

namespace aerie::jinja {
namespace {

bool equal_sequences(Runtime& runtime, const Value& a, const Value& b, int nesting) {
  const Sequence &left = *a.sequence, &right = *b.sequence;
  if (&left == &right) return true;
  const bool alike = a.is_tuple() ? b.is_tuple() : left.flavour == right.flavour;
  if (!alike || a.is_generator() || left.items.size() != right.items.size()) return false;
  for (size_t i = 0; i < left.items.size(); ++i) {
    if (!equal(runtime, left.items[i], right.items[i], nesting + 1)) return false;
  }
  return true;
}

bool equal_dicts(Runtime& runtime, const Dict& a, Dict& b, int nesting) {
  if (&a == &b) return true;
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Dict::Entry* other = runtime.find(&b, key);
    if (other == nullptr || !equal(runtime, value, other->second, nesting + 1)) return false;
  }
  return true;
}

template <typename T>
bool holds(Operator op, const T& a, const T& b) {
  switch (op) {
    case Operator::kLess:
      return a < b;
    case Operator::kLessEqual:
      return a <= b;
    case Operator::kGreater:
      return a > b;
    default:
      return a >= b;
  }
}

// In the order of Operator.
constexpr std::string_view kSpellings[] = {"+",  "-",  "*", "/",  "//", "%",  "**", "~",
                                           "==", "!=", "<", "<=", ">",  ">=", "in", "not in"};

}  // namespace

std::string_view spelling(Operator op) {
  return kSpellings[static_cast<size_t>(op)];
}

bool truth(const Value& value) {
  switch (value.kind) {
    case Kind::kAbsent:
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return value.boolean;
    case Kind::kInt:
      return value.integer != 0;
    case Kind::kFloat:
      return value.real != 0.0;
    case Kind::kText:
      return !value.view().empty();
    case Kind::kSequence:
      return value.is_generator() || !value.sequence->items.empty();
    case Kind::kDict:
      return !value.dict->entries.empty();
    default:
      return true;
  }
}

bool equal(Runtime& runtime, const Value& a, const Value& b, int nesting) {
  if (!runtime.may_nest(nesting)) return false;
  if (a.is_integral() && b.is_integral()) return a.as_int() == b.as_int();
  if (a.is_number() && b.is_number()) return a.as_double() == b.as_double();
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::kText:
      return runtime.spend_text(a.view().size()) && a.view() == b.view();
    case Kind::kSequence:
      return equal_sequences(runtime, a, b, nesting);
    case Kind::kDict:
      return equal_dicts(runtime, *a.dict, *b.dict, nesting);
    default:
      return is_same(a, b);
  }
}

bool ordered(Runtime& runtime, Operator op, const Value& a, const Value& b, int nesting) {
  if (!runtime.may_nest(nesting)) return false;
  if (a.is_undefined()) return undefined_error(runtime, a);
  if (b.is_undefined()) return undefined_error(runtime, b);
  if (a.is_integral() && b.is_integral()) return holds(op, a.as_int(), b.as_int());
  if (a.is_number() && b.is_number()) return holds(op, a.as_double(), b.as_double());
  if (a.is_text() && b.is_text()) {
    return runtime.spend_text(a.view().size()) && holds(op, a.view(), b.view());
  }
  if ((a.is_tuple() && b.is_tuple()) || (a.is_list() && b.is_list())) {
    const auto& left = a.sequence->items;
    const auto& right = b.sequence->items;
    for (size_t i = 0; i < left.size() && i < right.size() && !runtime.failed(); ++i) {
      if (equal(runtime, left[i], right[i], nesting + 1)) continue;
      return ordered(runtime, op, left[i], right[i], nesting + 1);
    }
    return holds(op, left.size(), right.size());
  }
  return runtime.fail("'{}' cannot compare '{}' with '{}'", spelling(op), type_name(a),
                      type_name(b));
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  switch (container.kind) {
    case Kind::kText:
      if (!item.is_text()) {
        return runtime.fail("only a string can be in a string, not '{}'", type_name(item));
      }
      return runtime.spend_text(container.view().size()) &&
             contains_text(container.view(), item.view());
    case Kind::kDict:
      return runtime.find(container.dict, item) != nullptr;
    case Kind::kSequence: {
      Sequence& sequence = *container.sequence;
      for (size_t i = sequence.taken; i < sequence.items.size() && !runtime.failed(); ++i) {
        if (container.is_generator()) sequence.taken = i + 1;
        if (equal(runtime, sequence.items[i], item)) return true;
      }
      return false;
    }
    case Kind::kUndefined:
      return false;
    default:
      return runtime.fail("nothing can be in a value of type '{}'", type_name(container));
  }
}

bool compare(Runtime& runtime, Operator op, const Value& a, const Value& b) {
  switch (op) {
    case Operator::kEqual:
      return equal(runtime, a, b);
    case Operator::kNotEqual:
      return !equal(runtime, a, b);
    case Operator::kIn:
      return contains(runtime, b, a);
    case Operator::kNotIn:
      return !contains(runtime, b, a);
    default:
      return ordered(runtime, op, a, b);
  }
}

bool is_same(const Value& a, const Value& b) {
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::kBool:
      return a.boolean == b.boolean;
    case Kind::kInt:
      return a.integer == b.integer;
    case Kind::kFloat:
      return a.real == b.real;
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    default:  // What pointers point to: all members of the union lie in the same place.
      return a.text == b.text;
  }
}

bool is_hashable(const Value& value, int nesting) {
  if (value.is(Kind::kDict) || value.is_list() || nesting > 20) return false;
  if (!value.is_tuple()) return true;
  const auto& items = value.sequence->items;
  return std::ranges::all_of(items,
                             [&](const Value& item) { return is_hashable(item, nesting + 1); });
}

// Not std::stable_sort: a comparison may fail, and what a hostile order (NaN) does to that is not
// defined.
void stable_sort(Runtime& runtime, std::vector<SortItem>& items, bool reverse) {
  const size_t count = items.size();
  std::vector<SortItem> merged(count);
  for (size_t width = 1; width < count && !runtime.failed(); width *= 2) {
    for (size_t start = 0; start < count; start += 2 * width) {
      const size_t middle = std::min(start + width, count);
      const size_t end = std::min(start + 2 * width, count);
      size_t left = start, right = middle;
      for (size_t out = start; out < end; ++out) {
        bool takes_right = left == middle;
        if (left < middle && right < end) {
          const Value &a = items[left].key, &b = items[right].key;
          takes_right = reverse ? ordered(runtime, Operator::kLess, a, b)
                                : ordered(runtime, Operator::kLess, b, a);
        }
        merged[out] = std::move(items[takes_right ? right++ : left++]);
      }
    }
    items.swap(merged);
  }
}

}  // namespace aerie::jinja
