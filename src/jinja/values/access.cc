#include <fmt/format.h>

#include <algorithm>

#include "format/text.h"
#include "jinja/builtins/native.h"
#include "jinja/syntax/ast.h"
#include "jinja/values/characters.h"
#include "jinja/values/operations.h"

namespace aerie::jinja {
namespace {

Value integer(size_t value) {
  return Value::of(static_cast<Int>(value));
}

Value loop_attribute(const Loop& loop, std::string_view name) {
  const size_t count = loop.items->items.size();
  const size_t left = loop.index < count ? count - loop.index : 0;
  if (name == "index") return integer(loop.index + 1);
  if (name == "index0") return integer(loop.index);
  if (name == "revindex") return integer(left);
  if (name == "revindex0") return Value::of(static_cast<Int>(left) - 1);
  if (name == "first") return Value::of(loop.index == 0);
  if (name == "last") return Value::of(left <= 1);
  if (name == "length") return integer(count);
  if (name == "depth") return Value::of(Int{loop.depth} + 1);
  if (name == "depth0") return Value::of(Int{loop.depth});
  // The body may have shortened the list.
  if (name == "previtem" && loop.index > 0 && loop.index <= count) {
    return loop.items->items[loop.index - 1];
  }
  if (name == "nextitem" && left > 1) return loop.items->items[loop.index + 1];
  return Value::absent();
}

// What Python's getattr finds; absent if nothing.
Value own_attribute(Runtime& runtime, const Value& object, std::string_view name) {
  if (const Native* method = find_method(object, name)) {
    Callable* bound = runtime.callable(Callable::What::kNative);
    bound->native = method;
    bound->self = object;
    return Value::of(bound);
  }
  switch (object.kind) {
    case Kind::kLoop:
      return loop_attribute(*object.loop, name);
    case Kind::kSequence:
      if (object.sequence->flavour == Sequence::Flavour::kGroup) {
        if (name == "grouper") return object.sequence->items[0];
        if (name == "list") return object.sequence->items[1];
      }
      return Value::absent();
    case Kind::kCycler:
      return name == "current" ? object.cycler->items[object.cycler->position] : Value::absent();
    case Kind::kCallable:
      if (object.callable->what == Callable::What::kMacro && name == "name") {
        return runtime.borrow(object.callable->macro->name);
      }
      return Value::absent();
    default:
      return Value::absent();
  }
}

// Python's index into `count` items; -1 if there is none.
int64_t place_of(Int index, size_t count) {
  if (index < 0) index += static_cast<Int>(count);
  return index < 0 || index >= static_cast<Int>(count) ? -1 : static_cast<int64_t>(index);
}

Expected<Value> character_at(Runtime& runtime, const Text& text, Int index) {
  if (text.ascii) {
    const int64_t place = place_of(index, text.view.size());
    if (place < 0) return Value::absent();
    return runtime.borrow(text.view.substr(static_cast<size_t>(place), 1));
  }
  AERIE_RETURN_IF_ERROR(runtime.spend_text(2 * text.view.size()));
  const int64_t place = place_of(index, count_characters(text.view));
  if (place < 0) return Value::absent();
  const size_t at = character_offset(text.view, static_cast<size_t>(place));
  return runtime.borrow(text.view.substr(at, next_character(text.view.substr(at)).length));
}

// object[key] without looking for a method; absent if there is none.
Expected<Value> own_item(Runtime& runtime, const Value& object, const Value& key) {
  switch (object.kind) {
    case Kind::kDict: {
      if (!check_hashable(key).ok()) return Value::absent();
      AERIE_ASSIGN_OR_RETURN(const int64_t place, runtime.find(object.dict, key));
      if (place < 0) return Value::absent();
      return object.dict->entries[static_cast<size_t>(place)].second;
    }
    case Kind::kSequence: {
      const Sequence& sequence = *object.sequence;
      if (!sequence.is_indexable() || !key.is_integral()) return Value::absent();
      const int64_t place = place_of(key.as_int(), sequence.items.size());
      if (place < 0) return Value::absent();
      return sequence.items[static_cast<size_t>(place)];
    }
    case Kind::kText:
      if (!key.is_integral()) return Value::absent();
      return character_at(runtime, *object.text, key.as_int());
    default:
      return Value::absent();
  }
}

Expected<Value> namespace_attribute(Runtime& runtime, const Value& object, const Value& name) {
  AERIE_ASSIGN_OR_RETURN(const int64_t place, runtime.find(object.dict, name));
  if (place < 0) return Value::absent();
  return object.dict->entries[static_cast<size_t>(place)].second;
}

// The places that a slice of `count` items takes, as Python's slice.indices() gives them.
struct Places {
  int64_t start, step, count;
};

Expected<Places> places_of(const Slice& slice, size_t count) {
  const auto size = static_cast<Int>(count);
  const Value* const parts[] = {&slice.start, &slice.stop, &slice.step};
  Int numbers[3] = {};
  bool given[3] = {};
  for (int i = 0; i < 3; ++i) {
    if (parts[i]->is_absent() || parts[i]->is_none()) continue;
    if (parts[i]->is_undefined()) return undefined_error(*parts[i]);
    if (!parts[i]->is_integral()) {
      return fail(fmt::format("a slice needs integers, not '{}'", type_name(*parts[i])));
    }
    given[i] = true;
    numbers[i] = parts[i]->as_int();
  }
  const Int step = given[2] ? std::clamp<Int>(numbers[2], -size - 1, size + 1) : 1;
  if (step == 0) return fail("a slice with a step of zero");
  const Int low = step < 0 ? -1 : 0;
  const Int high = step < 0 ? size - 1 : size;
  const auto bound = [&](int i, Int otherwise) {
    if (!given[i]) return otherwise;
    return std::clamp<Int>(numbers[i] < 0 ? numbers[i] + size : numbers[i], low, high);
  };
  const Int start = bound(0, step < 0 ? high : low);
  const Int stop = bound(1, step < 0 ? low : high);
  const Int span = step < 0 ? start - stop : stop - start;
  const Int stride = step < 0 ? -step : step;
  const Int taken = span <= 0 ? 0 : (span + stride - 1) / stride;
  return Places{static_cast<int64_t>(start), static_cast<int64_t>(step),
                static_cast<int64_t>(taken)};
}

Expected<Value> slice_text(Runtime& runtime, const Text& text, const Slice& slice) {
  if (!text.ascii) AERIE_RETURN_IF_ERROR(runtime.spend_text(2 * text.view.size()));
  const size_t size = text.ascii ? text.view.size() : count_characters(text.view);
  AERIE_ASSIGN_OR_RETURN(const Places places, places_of(slice, size));
  if (places.step == 1) {
    const auto start = static_cast<size_t>(places.start), count = static_cast<size_t>(places.count);
    if (text.ascii) return runtime.borrow(text.view.substr(start, count));
    const size_t from = character_offset(text.view, start);
    const std::string_view rest = text.view.substr(from);
    return runtime.borrow(rest.substr(0, character_offset(rest, count)));
  }
  AERIE_RETURN_IF_ERROR(runtime.spend_text(2 * text.view.size()));
  AERIE_RETURN_IF_ERROR(runtime.claim(static_cast<Int>(size), sizeof(size_t)));
  std::vector<size_t> offsets;
  offsets.reserve(size);
  for (size_t at = 0; at < text.view.size();) {
    offsets.push_back(at);
    at += next_character(text.view.substr(at)).length;
  }
  TextBuilder out(runtime);
  for (int64_t i = 0; i < places.count; ++i) {
    const size_t at = offsets[static_cast<size_t>(places.start + i * places.step)];
    out.add(text.view.substr(at, next_character(text.view.substr(at)).length));
  }
  return out.value();
}

}  // namespace

Status undefined_error(const Value& undefined) {
  if (undefined.text == nullptr) return fail("a value is undefined");
  const std::string name = printable(undefined.text->view);
  if (undefined.owner == Kind::kAbsent) return fail(fmt::format("'{}' is undefined", name));
  return fail(fmt::format("a value of type '{}' has no '{}'", type_name(undefined.owner), name));
}

Expected<int64_t> length(Runtime& runtime, const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
      return int64_t{0};
    case Kind::kText:
      if (value.text->ascii) return static_cast<int64_t>(value.view().size());
      AERIE_RETURN_IF_ERROR(runtime.spend_text(2 * value.view().size()));
      return static_cast<int64_t>(count_characters(value.view()));
    case Kind::kSequence:
      if (value.sequence->is_generator()) break;
      return static_cast<int64_t>(value.sequence->items.size());
    case Kind::kDict:
      return static_cast<int64_t>(value.dict->entries.size());
    case Kind::kLoop:
      return static_cast<int64_t>(value.loop->items->items.size());
    default:
      break;
  }
  return fail(fmt::format("a value of type '{}' has no length", type_name(value)));
}

Expected<Sequence*> iterate(Runtime& runtime, const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
      return runtime.sequence();
    case Kind::kSequence: {
      Sequence* sequence = value.sequence;
      if (!sequence->is_generator() || sequence->taken == 0) {
        if (!sequence->is_generator()) return sequence;
        sequence->taken = sequence->items.size();
        return sequence;
      }
      Sequence* rest = runtime.sequence();
      for (; sequence->taken < sequence->items.size(); ++sequence->taken) {
        runtime.push(rest, sequence->items[sequence->taken]);
      }
      return rest;
    }
    case Kind::kDict: {
      Sequence* keys = runtime.sequence();
      for (const auto& [key, item] : value.dict->entries) runtime.push(keys, key);
      AERIE_RETURN_IF_ERROR(runtime.spend(keys->items.size() / 4));
      return keys;
    }
    case Kind::kText: {
      Sequence* characters = runtime.sequence();
      for (std::string_view rest = value.view(); !rest.empty();) {
        const size_t size = next_character(rest).length;
        runtime.push(characters, runtime.borrow(rest.substr(0, size)));
        AERIE_RETURN_IF_ERROR(runtime.spend());
        rest.remove_prefix(size);
      }
      return characters;
    }
    default:
      return fail(fmt::format("a value of type '{}' cannot be gone through", type_name(value)));
  }
}

Expected<Value> get_attribute(Runtime& runtime, const Value& object, const Text& name) {
  if (object.is_undefined()) return undefined_error(object);
  Value found = own_attribute(runtime, object, name.view);
  if (!found.is_absent()) return found;
  const Value key = Value::of(&name);
  if (object.is(Kind::kNamespace)) {
    AERIE_ASSIGN_OR_RETURN(found, namespace_attribute(runtime, object, key));
  } else {
    AERIE_ASSIGN_OR_RETURN(found, own_item(runtime, object, key));
  }
  return found.is_absent() ? Value::undefined(&name, object.kind) : found;
}

Expected<Value> get_item(Runtime& runtime, const Value& object, const Value& key) {
  if (object.is_undefined()) return undefined_error(object);
  AERIE_ASSIGN_OR_RETURN(Value found, own_item(runtime, object, key));
  if (!found.is_absent()) return found;
  if (key.is_text()) {
    found = own_attribute(runtime, object, key.view());
    if (found.is_absent() && object.is(Kind::kNamespace)) {
      AERIE_ASSIGN_OR_RETURN(found, namespace_attribute(runtime, object, key));
    }
    if (!found.is_absent()) return found;
    return Value::undefined(key.text, object.kind);
  }
  if (!key.is_integral()) return Value::undefined(nullptr, object.kind);
  return Value::undefined(runtime.text(int_text(key.as_int())).text, object.kind);
}

Expected<Value> get_slice(Runtime& runtime, const Value& object, const Slice& slice) {
  if (object.is_undefined()) return undefined_error(object);
  if (object.is_text()) return slice_text(runtime, *object.text, slice);
  if (!object.is(Kind::kSequence) || !object.sequence->is_indexable()) {
    return fail(fmt::format("a value of type '{}' cannot be sliced", type_name(object)));
  }
  const auto& items = object.sequence->items;
  AERIE_ASSIGN_OR_RETURN(const Places places, places_of(slice, items.size()));
  Sequence* result = runtime.sequence(object.sequence->is_tuple() ? Sequence::Flavour::kTuple
                                                                  : Sequence::Flavour::kList);
  AERIE_RETURN_IF_ERROR(runtime.spend(static_cast<uint64_t>(places.count) / 4));
  for (int64_t i = 0; i < places.count; ++i) {
    runtime.push(result, items[static_cast<size_t>(places.start + i * places.step)]);
  }
  AERIE_RETURN_IF_ERROR(runtime.spend());
  return Value::of(result);
}

}  // namespace aerie::jinja
