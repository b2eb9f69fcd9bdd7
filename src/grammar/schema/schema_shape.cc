#include "grammar/schema/schema_shape.h"

#include <fmt/format.h>

#include <algorithm>

namespace aerie::grammar {
namespace {

// What is there already is not said twice.
template <typename T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  const auto known = static_cast<std::ptrdiff_t>(to.size());
  for (const T& one : from) {
    const auto end = to.begin() + known;
    if (std::find(to.begin(), end, one) == end) to.push_back(one);
  }
}

void merge_numbers(const NumberRange& other, NumberRange& range) {
  if (other.min) range.min = range.min ? std::max(*range.min, *other.min) : *other.min;
  if (other.max) range.max = range.max ? std::min(*range.max, *other.max) : *other.max;
  range.multiple_of = common_multiple(range.multiple_of, other.multiple_of);
}

int64_t smaller_bound(int64_t a, int64_t b) {
  if (a == kUnbounded || b == kUnbounded) return a == kUnbounded ? b : a;
  return a < b ? a : b;
}

}  // namespace

void add_to(Goal& goal, const Goal& more) {
  for (const Json* schema : more) {
    if (std::find(goal.begin(), goal.end(), schema) == goal.end()) goal.push_back(schema);
  }
}

std::vector<const Json*> united_sources(const Shape& a, const Shape& b) {
  std::vector<const Json*> both = a.sources;
  append(both, b.sources);
  return both;
}

size_t Shape::bytes() const {
  size_t total = sizeof(Shape) + (sources.size() + property_names.size()) * sizeof(void*) +
                 (strings.size() + arrays.size() + objects.size()) * sizeof(StringSet) +
                 contains.size() * sizeof(ContainsPart) + required.size() * sizeof(std::string);
  for (const std::string& name : required) total += name.size();
  if (values) total += values->size() * sizeof(Json);
  return total;
}

bool is_false(const Goal& goal) {
  return std::any_of(goal.begin(), goal.end(), [](const Json* schema) {
    return schema->is_boolean() && !schema->get<bool>();
  });
}

bool ObjectPart::describes(const std::string& name) const {
  const auto named = [&](const auto& property) { return property.first == name; };
  const auto matches = [&](const Pattern& pattern) { return pattern.names->contains(name); };
  return !additional.empty() || std::any_of(properties.begin(), properties.end(), named) ||
         std::any_of(patterns.begin(), patterns.end(), matches);
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

std::optional<Shape> intersection(const Shape& a, const Shape& b) {
  Shape both = a;
  both.sources = united_sources(a, b);
  both.partial = a.partial || b.partial;
  both.types = a.types & b.types;
  if (both.types == 0) return std::nullopt;
  merge_numbers(b.numbers, both.numbers);
  both.min_length = std::max(a.min_length, b.min_length);
  both.max_length = smaller_bound(a.max_length, b.max_length);
  append(both.strings, b.strings);
  append(both.arrays, b.arrays);
  append(both.contains, b.contains);
  both.min_items = std::max(a.min_items, b.min_items);
  both.max_items = smaller_bound(a.max_items, b.max_items);
  if (both.unique_items == nullptr) both.unique_items = b.unique_items;
  append(both.objects, b.objects);
  append(both.required, b.required);
  both.min_properties = std::max(a.min_properties, b.min_properties);
  both.max_properties = smaller_bound(a.max_properties, b.max_properties);
  add_to(both.property_names, b.property_names);
  return both;
}

Expected<StringAutomaton> strings_of(const Shape& shape, Budget& budget) {
  if (shape.values) {
    std::vector<std::string> texts;
    for (const Json& value : *shape.values) {
      if (value.is_string()) texts.push_back(value.get<std::string>());
    }
    return StringAutomaton::of_texts(texts, budget);
  }
  AERIE_ASSIGN_OR_RETURN(StringAutomaton all,
                         StringAutomaton::of_length(shape.min_length, shape.max_length, budget));
  for (const StringSet& set : shape.strings) {
    AERIE_ASSIGN_OR_RETURN(all, all.combined(*set, StringAutomaton::Product::kBoth, budget));
  }
  return all;
}

Status shape_error(const SchemaDocument& document, StatusCode code, const Shape& shape,
                   std::string_view keyword, std::string_view what) {
  for (const Json* schema : shape.sources) {
    if (find_key(*schema, keyword) != nullptr) return document.error(code, *schema, keyword, what);
  }
  return {code, fmt::format("{}: {}", keyword, what)};
}

}  // namespace aerie::grammar
