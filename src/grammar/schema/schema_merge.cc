// Shapes that hold at once.
#include <algorithm>
#include <numeric>

#include "grammar/schema/schema_expand.h"

namespace aerie::grammar {
namespace {

constexpr int kMaxDepthOfProof = 3;

template <typename T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

void merge_numbers(const NumberRange& other, NumberRange& range) {
  if (other.min) range.min = range.min ? std::max(*range.min, *other.min) : *other.min;
  if (other.max) range.max = range.max ? std::min(*range.max, *other.max) : *other.max;
  range.multiple_of = std::lcm(range.multiple_of, other.multiple_of);
}

}  // namespace

void add_to(Goal& goal, const Goal& more) {
  for (const Json* schema : more) {
    if (std::find(goal.begin(), goal.end(), schema) == goal.end()) goal.push_back(schema);
  }
}

bool is_false(const Goal& goal) {
  return std::any_of(goal.begin(), goal.end(), [](const Json* schema) {
    return schema->is_boolean() && !schema->get<bool>();
  });
}

Goal ObjectPart::goal_of(const std::string& name) const {
  Goal goal;
  bool matched = false;
  for (const auto& [property, schemas] : properties) {
    if (property != name) continue;
    add_to(goal, schemas);
    matched = true;
  }
  for (const Pattern& pattern : patterns) {
    if (!pattern.names->contains(name)) continue;
    add_to(goal, pattern.goal);
    matched = true;
  }
  return matched ? goal : additional;
}

Expected<std::optional<Shape>> SchemaExpander::merge(const Shape& a, const Shape& b) {
  Shape both = a;
  append(both.sources, b.sources);
  if (a.values || b.values) {
    std::vector<Json> kept;
    for (const Json& value : a.values ? *a.values : *b.values) {
      AERIE_ASSIGN_OR_RETURN(const bool valid, validate(value, both.sources));
      const bool listed = !a.values || !b.values ||
                          std::any_of(b.values->begin(), b.values->end(),
                                      [&](const Json& other) { return json_equal(value, other); });
      if (valid && listed) kept.push_back(value);
    }
    if (kept.empty()) return std::optional<Shape>();
    both.values = std::move(kept);
    return std::optional<Shape>(std::move(both));
  }
  both.types = a.types & b.types;
  if (both.types == 0) return std::optional<Shape>();
  merge_numbers(b.numbers, both.numbers);
  both.min_length = std::max(a.min_length, b.min_length);
  both.max_length = smaller_bound(a.max_length, b.max_length);
  append(both.strings, b.strings);
  append(both.arrays, b.arrays);
  both.min_items = std::max(a.min_items, b.min_items);
  both.max_items = smaller_bound(a.max_items, b.max_items);
  if (both.unique_items == nullptr) both.unique_items = b.unique_items;
  append(both.objects, b.objects);
  for (const std::string& name : b.required) {
    const bool known =
        std::find(both.required.begin(), both.required.end(), name) != both.required.end();
    if (!known) both.required.push_back(name);
  }
  both.min_properties = std::max(a.min_properties, b.min_properties);
  both.max_properties = smaller_bound(a.max_properties, b.max_properties);
  add_to(both.property_names, b.property_names);
  return std::optional<Shape>(std::move(both));
}

Expected<StringAutomaton> SchemaExpander::strings_of(const Shape& shape) {
  if (shape.values) {
    std::vector<std::string> texts;
    for (const Json& value : *shape.values) {
      if (value.is_string()) texts.push_back(value.get<std::string>());
    }
    return StringAutomaton::of_texts(texts);
  }
  AERIE_ASSIGN_OR_RETURN(StringAutomaton all,
                         StringAutomaton::of_length(shape.min_length, shape.max_length));
  for (const StringSet& set : shape.strings) {
    AERIE_ASSIGN_OR_RETURN(all, all.combined(*set, StringAutomaton::Product::kBoth));
  }
  return all;
}

Expected<bool> SchemaExpander::is_impossible_object(const Shape& shape, int depth) {
  if (shape.max_properties != kUnbounded &&
      std::max(shape.min_properties, static_cast<int64_t>(shape.required.size())) >
          shape.max_properties) {
    return true;
  }
  for (const std::string& name : shape.required) {
    Goal goal;
    for (const ObjectPart& part : shape.objects) add_to(goal, part.goal_of(name));
    AERIE_ASSIGN_OR_RETURN(const Shapes shapes, expand(goal));
    bool possible = false;
    for (const Shape& inner : shapes) {
      AERIE_ASSIGN_OR_RETURN(const bool impossible, is_impossible(inner, depth + 1));
      possible = possible || !impossible;
    }
    if (!possible) return true;
  }
  return false;
}

Expected<bool> SchemaExpander::is_impossible(const Shape& shape, int depth) {
  if (depth > kMaxDepthOfProof) return false;
  if (shape.values) return shape.values->empty();
  if ((shape.types & (kNullBit | kBooleanBit)) != 0) return false;
  NumberRange range = shape.numbers;
  range.integer = (shape.types & kFractionBit) == 0;
  if ((shape.types & (kIntegerBit | kFractionBit)) != 0 && !is_empty(range)) return false;
  if ((shape.types & kStringBit) != 0) {
    if (!shape.has_string_limits()) return false;
    AERIE_ASSIGN_OR_RETURN(const StringAutomaton strings, strings_of(shape));
    if (!strings.empty()) return false;
  }
  const bool no_length = shape.max_items != kUnbounded && shape.min_items > shape.max_items;
  if ((shape.types & kArrayBit) != 0 && !no_length) return false;
  if ((shape.types & kObjectBit) == 0) return true;
  return is_impossible_object(shape, depth);
}

Expected<bool> SchemaExpander::are_disjoint(const Shape& a, const Shape& b) {
  AERIE_ASSIGN_OR_RETURN(const std::optional<Shape> both, merge(a, b));
  if (!both) return true;
  return is_impossible(*both);
}

}  // namespace aerie::grammar
