#include <fmt/format.h>

#include "jinja/values/characters.h"
#include "jinja/values/operations.h"

namespace aerie::jinja {
namespace {

// Whether the sequences are of types that Python compares item by item.
bool comparable(const Sequence& a, const Sequence& b) {
  if (a.is_tuple()) return b.is_tuple();
  return a.flavour == b.flavour && !a.is_generator();
}

Expected<bool> equal_sequences(Runtime& runtime, Sequence& a, Sequence& b, int nesting) {
  if (&a == &b) return true;
  if (!comparable(a, b) || a.items.size() != b.items.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i) {
    AERIE_ASSIGN_OR_RETURN(const bool same, equal(runtime, a.items[i], b.items[i], nesting + 1));
    if (!same) return false;
  }
  return true;
}

Expected<bool> equal_dicts(Runtime& runtime, const Dict& a, const Dict& b, int nesting) {
  if (&a == &b) return true;
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    AERIE_ASSIGN_OR_RETURN(const int64_t place, runtime.find(&b, key));
    if (place < 0) return false;
    AERIE_ASSIGN_OR_RETURN(
        const bool same,
        equal(runtime, value, b.entries[static_cast<size_t>(place)].second, nesting + 1));
    if (!same) return false;
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

std::string_view sign(Operator op) {
  switch (op) {
    case Operator::kLess:
      return "<";
    case Operator::kLessEqual:
      return "<=";
    case Operator::kGreater:
      return ">";
    default:
      return ">=";
  }
}

}  // namespace

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
      return value.sequence->is_generator() || !value.sequence->items.empty();
    case Kind::kDict:
      return !value.dict->entries.empty();
    default:
      return true;
  }
}

Expected<bool> equal(Runtime& runtime, const Value& a, const Value& b, int nesting) {
  AERIE_RETURN_IF_ERROR(runtime.spend());
  if (nesting > runtime.limits().nesting) return runtime.too_nested();
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() == b.as_int();
    return a.as_double() == b.as_double();
  }
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::kText:
      AERIE_RETURN_IF_ERROR(runtime.spend_text(a.view().size()));
      return a.view() == b.view();
    case Kind::kSequence:
      return equal_sequences(runtime, *a.sequence, *b.sequence, nesting);
    case Kind::kDict:
      return equal_dicts(runtime, *a.dict, *b.dict, nesting);
    case Kind::kNamespace:
      return a.dict == b.dict;
    case Kind::kCallable:
      return a.callable == b.callable;
    case Kind::kLoop:
      return a.loop == b.loop;
    case Kind::kCycler:
      return a.cycler == b.cycler;
    default:
      return true;
  }
}

Expected<bool> ordered(Runtime& runtime, Operator op, const Value& a, const Value& b, int nesting) {
  AERIE_RETURN_IF_ERROR(runtime.spend());
  if (nesting > runtime.limits().nesting) return runtime.too_nested();
  if (a.is_undefined()) return undefined_error(a);
  if (b.is_undefined()) return undefined_error(b);
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return holds(op, a.as_int(), b.as_int());
    return holds(op, a.as_double(), b.as_double());
  }
  if (a.is_text() && b.is_text()) {
    AERIE_RETURN_IF_ERROR(runtime.spend_text(a.view().size()));
    return holds(op, a.view(), b.view());
  }
  if (a.is(Kind::kSequence) && b.is(Kind::kSequence) && comparable(*a.sequence, *b.sequence) &&
      (a.sequence->is_tuple() || a.sequence->flavour == Sequence::Flavour::kList)) {
    const auto& left = a.sequence->items;
    const auto& right = b.sequence->items;
    for (size_t i = 0; i < left.size() && i < right.size(); ++i) {
      AERIE_ASSIGN_OR_RETURN(const bool same, equal(runtime, left[i], right[i], nesting + 1));
      if (!same) return ordered(runtime, op, left[i], right[i], nesting + 1);
    }
    return holds(op, left.size(), right.size());
  }
  return fail(
      fmt::format("'{}' cannot compare '{}' with '{}'", sign(op), type_name(a), type_name(b)));
}

Expected<bool> contains(Runtime& runtime, const Value& container, const Value& item) {
  switch (container.kind) {
    case Kind::kText:
      if (!item.is_text()) {
        return fail(fmt::format("only a string can be in a string, not '{}'", type_name(item)));
      }
      AERIE_RETURN_IF_ERROR(runtime.spend_text(container.view().size()));
      return find_text(container.view(), item.view()) != std::string_view::npos;
    case Kind::kDict: {
      AERIE_ASSIGN_OR_RETURN(const int64_t place, runtime.find(container.dict, item));
      return place >= 0;
    }
    case Kind::kSequence: {
      Sequence& sequence = *container.sequence;
      for (size_t i = sequence.taken; i < sequence.items.size(); ++i) {
        if (sequence.is_generator()) sequence.taken = i + 1;
        AERIE_ASSIGN_OR_RETURN(const bool same, equal(runtime, sequence.items[i], item));
        if (same) return true;
      }
      return false;
    }
    case Kind::kUndefined:
      return false;
    default:
      return fail(fmt::format("nothing can be in a value of type '{}'", type_name(container)));
  }
}

Expected<bool> compare(Runtime& runtime, Operator op, const Value& a, const Value& b) {
  switch (op) {
    case Operator::kEqual:
      return equal(runtime, a, b);
    case Operator::kNotEqual: {
      AERIE_ASSIGN_OR_RETURN(const bool same, equal(runtime, a, b));
      return !same;
    }
    case Operator::kIn:
      return contains(runtime, b, a);
    case Operator::kNotIn: {
      AERIE_ASSIGN_OR_RETURN(const bool found, contains(runtime, b, a));
      return !found;
    }
    default:
      return ordered(runtime, op, a, b);
  }
}

Status check_hashable(const Value& value, int nesting) {
  const bool tuple = value.is(Kind::kSequence) && value.sequence->is_tuple();
  const bool list =
      value.is(Kind::kSequence) && value.sequence->flavour == Sequence::Flavour::kList;
  if (value.is(Kind::kDict) || list || nesting > 20) {
    return fail(fmt::format("a value of type '{}' cannot be a key", type_name(value)));
  }
  if (tuple) {
    for (const Value& item : value.sequence->items) {
      AERIE_RETURN_IF_ERROR(check_hashable(item, nesting + 1));
    }
  }
  return {};
}

}  // namespace aerie::jinja
