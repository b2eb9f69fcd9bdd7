#include <algorithm>

#include "format/text.h"
#include "jinja/builtins/native.h"
#include "jinja/syntax/ast.h"
#include "jinja/values/characters.h"
#include "jinja/values/operations.h"

namespace aerie::jinja {
namespace {

Value loop_attribute(const Loop& loop, std::string_view name) {
  const size_t count = loop.items->items.size();
  const size_t left = loop.index < count ? count - loop.index : 0;
  if (name == "index") return Value::of(loop.index + 1);
  if (name == "index0") return Value::of(loop.index);
  if (name == "revindex") return Value::of(left);
  if (name == "revindex0") return Value::of(static_cast<Int>(left) - 1);
  if (name == "first") return Value::of(loop.index == 0);
  if (name == "last") return Value::of(left <= 1);
  if (name == "length") return Value::of(count);
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
Value own_attribute(Runtime& runtime, const Value& object, const Value& name) {
  const std::string_view spelled = name.view();
  if (const Native* method = find_method(object, spelled)) {
    Callable* bound = runtime.callable(Callable::What::kNative);
    bound->native = method;
    bound->self = object;
    return Value::of(bound);
  }
  if (object.is(Kind::kLoop)) return loop_attribute(*object.loop, spelled);
  if (object.is(Kind::kSequence) && object.sequence->flavour == Sequence::Flavour::kGroup) {
    if (spelled == "grouper") return object.sequence->items[0];
    if (spelled == "list") return object.sequence->items[1];
  }
  if (object.is(Kind::kCycler) && spelled == "current") {
    return object.cycler->items[object.cycler->position];
  }
  if (object.is(Kind::kCallable) && object.callable->macro != nullptr && spelled == "name") {
    return runtime.borrow(object.callable->macro->name);
  }
  if (object.is(Kind::kNamespace)) {
    const Dict::Entry* entry = runtime.find(object.dict, name);
    if (entry != nullptr) return entry->second;
  }
  return Value::absent();
}

// Python's index into `count` items; -1 if there is none.
int64_t place_of(Int index, size_t count) {
  if (index < 0) index += static_cast<Int>(count);
  return index < 0 || index >= static_cast<Int>(count) ? -1 : static_cast<int64_t>(index);
}

Value character_at(Runtime& runtime, const Value& text, Int index) {
  const auto count = static_cast<size_t>(length(runtime, text));
  const int64_t place = place_of(index, count);
  if (place < 0) return Value::absent();
  const size_t at = text.text->ascii ? static_cast<size_t>(place)
                                     : character_offset(text.view(), static_cast<size_t>(place));
  return runtime.borrow(text.view().substr(at, next_character(text.view().substr(at)).length));
}

// object[key] without looking for a method; absent if there is none.
Value own_item(Runtime& runtime, const Value& object, const Value& key) {
  if (object.is(Kind::kDict) && is_hashable(key)) {
    const Dict::Entry* entry = runtime.find(object.dict, key);
    return entry == nullptr ? Value::absent() : entry->second;
  }
  if (!key.is_integral()) return Value::absent();
  if (object.is_text()) return character_at(runtime, object, key.as_int());
  if (!object.is_indexable()) return Value::absent();
  const int64_t place = place_of(key.as_int(), object.sequence->items.size());
  return place < 0 ? Value::absent() : object.sequence->items[static_cast<size_t>(place)];
}

// The places that a slice of `count` items takes, as Python's slice.indices() gives them.
struct Places {
  int64_t start, step, count;
};

Places places_of(Runtime& runtime, const Slice& slice, size_t count) {
  const auto size = static_cast<Int>(count);
  const auto given = [](const Value& part) { return !part.is_absent() && !part.is_none(); };
  for (const Value* part : {&slice.start, &slice.stop, &slice.step}) {
    if (given(*part) && !part->is_integral()) {
      return type_error(runtime, "a slice needs integers", *part);
    }
  }
  const Int step = given(slice.step) ? std::clamp(slice.step.as_int(), -size - 1, size + 1) : 1;
  if (step == 0) return runtime.fail("a slice with a step of zero");
  const Int low = step < 0 ? -1 : 0;
  const Int high = step < 0 ? size - 1 : size;
  const auto bound = [&](const Value& part, Int otherwise) {
    if (!given(part)) return otherwise;
    const Int place = part.as_int();
    return std::clamp(place < 0 ? place + size : place, low, high);
  };
  const Int start = bound(slice.start, step < 0 ? high : low);
  const Int stop = bound(slice.stop, step < 0 ? low : high);
  const Int span = step < 0 ? start - stop : stop - start;
  const Int stride = step < 0 ? -step : step;
  const Int taken = span <= 0 ? 0 : (span + stride - 1) / stride;
  return {static_cast<int64_t>(start), static_cast<int64_t>(step), static_cast<int64_t>(taken)};
}

Value slice_text(Runtime& runtime, const Value& value, const Slice& slice) {
  const std::string_view text = value.view();
  const auto size = static_cast<size_t>(length(runtime, value));
  const Places places = places_of(runtime, slice, size);
  if (places.step == 1) {
    const auto start = static_cast<size_t>(places.start), count = static_cast<size_t>(places.count);
    if (value.text->ascii) return runtime.borrow(text.substr(start, count));
    const std::string_view rest = text.substr(character_offset(text, start));
    return runtime.borrow(rest.substr(0, character_offset(rest, count)));
  }
  if (!runtime.spend_text(2 * text.size())) return {};
  if (!runtime.claim(static_cast<Int>(size), sizeof(std::string_view))) return {};
  const std::vector<std::string_view> characters = characters_of(text);
  TextBuilder out(runtime);
  for (int64_t i = 0; i < places.count; ++i) {
    out.add(characters[static_cast<size_t>(places.start + i * places.step)]);
  }
  return out.value();
}

}  // namespace

Runtime::Failure undefined_error(Runtime& runtime, const Value& undefined) {
  if (undefined.text == nullptr) return runtime.fail("a value is undefined");
  const std::string name = printable(undefined.text->view);
  if (undefined.owner == Kind::kAbsent) return runtime.fail("'{}' is undefined", name);
  return runtime.fail("a value of type '{}' has no '{}'", type_name(undefined.owner), name);
}

Runtime::Failure type_error(Runtime& runtime, std::string_view wanted, const Value& value) {
  if (value.is_undefined()) return undefined_error(runtime, value);
  return runtime.fail("{}, not '{}'", wanted, type_name(value));
}

int64_t length(Runtime& runtime, const Value& value) {
  size_t count = 0;
  if (value.is_text() && value.text->ascii) {
    count = value.view().size();
  } else if (value.is_text()) {
    if (runtime.spend_text(2 * value.view().size())) count = count_characters(value.view());
  } else if (value.is(Kind::kSequence) && !value.is_generator()) {
    count = value.sequence->items.size();
  } else if (value.is(Kind::kDict)) {
    count = value.dict->entries.size();
  } else if (value.is(Kind::kLoop)) {
    count = value.loop->items->items.size();
  } else if (!value.is_undefined()) {
    return runtime.fail("a value of type '{}' has no length", type_name(value));
  }
  return static_cast<int64_t>(count);
}

Sequence* iterate(Runtime& runtime, const Value& value) {
  Sequence* result = value.is(Kind::kSequence) ? value.sequence : runtime.sequence();
  if (value.is_generator()) {
    size_t& taken = value.sequence->taken;
    if (taken > 0) {
      result = runtime.sequence();
      result->items.assign(value.sequence->items.begin() + static_cast<std::ptrdiff_t>(taken),
                           value.sequence->items.end());
    }
    taken = value.sequence->items.size();
  } else if (value.is(Kind::kDict)) {
    for (const auto& [key, item] : value.dict->entries) runtime.push(result, key);
    runtime.spend(result->items.size() / 4);
  } else if (value.is_text()) {
    for (std::string_view rest = value.view(); !rest.empty() && runtime.spend();) {
      const size_t size = next_character(rest).length;
      runtime.push(result, runtime.borrow(rest.substr(0, size)));
      rest.remove_prefix(size);
    }
  } else if (!value.is(Kind::kSequence) && !value.is_undefined()) {
    runtime.fail("a value of type '{}' cannot be gone through", type_name(value));
  }
  return result;
}

Value get_attribute(Runtime& runtime, const Value& object, const Text& name) {
  if (object.is_undefined()) return undefined_error(runtime, object);
  const Value key = Value::of(&name);
  Value found = own_attribute(runtime, object, key);
  if (found.is_absent()) found = own_item(runtime, object, key);
  return found.is_absent() ? Value::undefined(&name, object.kind) : found;
}

Value get_item(Runtime& runtime, const Value& object, const Value& key) {
  if (object.is_undefined()) return undefined_error(runtime, object);
  Value found = own_item(runtime, object, key);
  if (found.is_absent() && key.is_text()) found = own_attribute(runtime, object, key);
  if (!found.is_absent()) return found;
  const bool has_name = key.is_text() || key.is_integral();
  return Value::undefined(has_name ? to_text(runtime, key).text : nullptr, object.kind);
}

Value get_path(Runtime& runtime, Value item, const Value& path, const Value& otherwise) {
  if (path.is_absent() || path.is_none()) return item;
  const auto step = [&](const Value& key) {
    item = get_item(runtime, item, key);
    if (item.is_undefined() && !otherwise.is_absent() && !otherwise.is_none()) item = otherwise;
  };
  if (!path.is_text()) {
    step(path);
    return item;
  }
  std::string_view rest = path.view();
  for (bool more = true; more && !runtime.failed();) {
    const std::string_view part = take_until(rest, ".");
    const bool digits = !part.empty() && part.find_first_not_of("0123456789") == part.npos;
    const auto number = digits ? parse_int(part, 10) : std::nullopt;
    step(number ? Value::of(*number) : runtime.text(part));
    more = !rest.empty();
    if (more) rest.remove_prefix(1);
  }
  return item;
}

Value get_slice(Runtime& runtime, const Value& object, const Slice& slice) {
  if (object.is_undefined()) return undefined_error(runtime, object);
  if (object.is_text()) return slice_text(runtime, object, slice);
  if (!object.is_indexable()) {
    return runtime.fail("a value of type '{}' cannot be sliced", type_name(object));
  }
  const auto& items = object.sequence->items;
  const Places places = places_of(runtime, slice, items.size());
  Sequence* result =
      runtime.sequence(object.is_tuple() ? Sequence::Flavour::kTuple : Sequence::Flavour::kList);
  if (!runtime.spend(static_cast<uint64_t>(places.count) / 4)) return {};
  for (int64_t i = 0; i < places.count; ++i) {
    runtime.push(result, items[static_cast<size_t>(places.start + i * places.step)]);
  }
  return Value::of(result);
}

}  // namespace aerie::jinja
