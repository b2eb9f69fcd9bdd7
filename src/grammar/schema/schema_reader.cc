#include "grammar/schema/schema_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "grammar/schema/schema_formats.h"

namespace aerie::grammar {
namespace {

bool is_enforced(std::string_view keyword) {
  static constexpr std::array kKeywords = {"type",
                                           "enum",
                                           "const",
                                           "minimum",
                                           "maximum",
                                           "exclusiveMinimum",
                                           "exclusiveMaximum",
                                           "multipleOf",
                                           "minLength",
                                           "maxLength",
                                           "pattern",
                                           "format",
                                           "items",
                                           "prefixItems",
                                           "additionalItems",
                                           "minItems",
                                           "maxItems",
                                           "uniqueItems",
                                           "contains",
                                           "minContains",
                                           "maxContains",
                                           "properties",
                                           "patternProperties",
                                           "additionalProperties",
                                           "required",
                                           "minProperties",
                                           "maxProperties",
                                           "propertyNames",
                                           "allOf",
                                           "anyOf",
                                           "oneOf",
                                           "not",
                                           "if",
                                           "then",
                                           "else",
                                           "dependencies",
                                           "dependentRequired",
                                           "dependentSchemas",
                                           "$ref",
                                           "$dynamicRef",
                                           "$recursiveRef",
                                           "unevaluatedProperties",
                                           "unevaluatedItems"};
  return std::find(kKeywords.begin(), kKeywords.end(), keyword) != kKeywords.end();
}

// That say something which cannot be enforced.
bool is_known(std::string_view keyword) {
  static constexpr std::array kKeywords = {"extends", "disallow", "divisibleBy"};
  return std::find(kKeywords.begin(), kKeywords.end(), keyword) != kKeywords.end();
}

uint8_t bits_of(const std::string& type, bool own) {
  if (type == "null") return kNullBit;
  if (type == "boolean") return kBooleanBit;
  if (type == "integer") return kIntegerBit;
  if (type == "fraction" && own) return kFractionBit;
  if (type == "number") return kIntegerBit | kFractionBit;
  if (type == "string") return kStringBit;
  if (type == "array") return kArrayBit;
  if (type == "object") return kObjectBit;
  return 0;
}

uint8_t bits_of(const Json& types, bool own) {
  if (types.is_string()) return bits_of(types.get<std::string>(), own);
  uint8_t bits = 0;
  if (!types.is_array()) return 0;
  for (const Json& type : types) {
    const uint8_t one = type.is_string() ? bits_of(type.get<std::string>(), own) : uint8_t{0};
    if (one == 0) return 0;
    bits |= one;
  }
  return bits;
}

Goal goal_at(const Json& schema, const char* keyword) {
  const Json* value = find_key(schema, keyword);
  return value == nullptr ? Goal() : Goal{value};
}

}  // namespace

Status SchemaReader::check_schema(const Json& schema) const {
  if (schema.is_object()) return {};
  return {StatusCode::kInvalidArgument,
          fmt::format("{}: a schema is an object, true or false", document_.where(schema))};
}

Status SchemaReader::check_keywords(const Json& schema) const {
  if (document_.is_own(schema)) return {};
  for (const auto& [key, value] : schema.items()) {
    if (is_enforced(key) || SchemaDocument::is_annotation(key)) continue;
    if (!document_.is_strict() && !is_known(key)) continue;
    return document_.error(StatusCode::kUnsupported, schema, key,
                           "this keyword cannot be enforced; leave it out");
  }
  return {};
}

Expected<int64_t> SchemaReader::count(const Json& schema, const char* keyword,
                                      int64_t fallback) const {
  const Json* value = find_key(schema, keyword);
  if (value == nullptr) return fallback;
  constexpr double kLargest = 1e15;
  const bool fits = value->is_number() && value->get<double>() >= 0 &&
                    value->get<double>() <= kLargest &&
                    value->get<double>() == static_cast<double>(value->get<int64_t>());
  if (fits) return value->get<int64_t>();
  return document_.error(StatusCode::kInvalidArgument, schema, keyword,
                         "an integer that is not negative is wanted");
}

Expected<std::optional<Decimal>> SchemaReader::bound(const Json& schema,
                                                     const char* keyword) const {
  const Json* value = find_key(schema, keyword);
  if (value == nullptr) return std::optional<Decimal>();
  if (!value->is_number()) {
    return document_.error(StatusCode::kInvalidArgument, schema, keyword, "a number is wanted");
  }
  const std::optional<Decimal> decimal = parse_decimal(value->dump());
  if (decimal) return decimal;
  return document_.error(StatusCode::kUnsupported, schema, keyword,
                         fmt::format("more than {} places behind the point", kDecimalPlaces));
}

Expected<const Shape*> SchemaReader::own_shape(const Json& schema) {
  const auto known = shapes_.find(&schema);
  if (known != shapes_.end()) return &known->second;
  AERIE_ASSIGN_OR_RETURN(Shape shape, read_shape(schema));
  budget_.spend(shape.bytes(), 1 + schema.size());
  AERIE_RETURN_IF_ERROR(budget_.status());
  return &shapes_.emplace(&schema, std::move(shape)).first->second;
}

Expected<Shape> SchemaReader::read_shape(const Json& schema) {
  Shape shape;
  shape.sources = {&schema};
  shape.partial = document_.is_partial(schema);
  AERIE_RETURN_IF_ERROR(read_types(schema, shape));
  AERIE_RETURN_IF_ERROR(read_numbers(schema, shape));
  AERIE_RETURN_IF_ERROR(read_strings(schema, shape));
  AERIE_RETURN_IF_ERROR(read_arrays(schema, shape));
  AERIE_RETURN_IF_ERROR(read_contains(schema, shape));
  AERIE_RETURN_IF_ERROR(read_objects(schema, shape));
  return shape;
}

Status SchemaReader::read_types(const Json& schema, Shape& shape) const {
  const Json* types = find_key(schema, "type");
  if (types == nullptr) return {};
  shape.types = bits_of(*types, document_.is_own(schema));
  if (shape.types != 0) return {};
  return document_.error(StatusCode::kInvalidArgument, schema, "type",
                         "null, boolean, integer, number, string, array or object is wanted");
}

// A bound of its own or, as draft 4 has it, whether the other one is exclusive.
Status SchemaReader::read_exclusive(const Json& schema, const char* keyword, int direction,
                                    std::optional<Decimal>& limit) const {
  const Json* value = find_key(schema, keyword);
  if (value != nullptr && value->is_boolean()) {
    if (value->get<bool>() && limit) *limit += direction;
    return {};
  }
  AERIE_ASSIGN_OR_RETURN(const std::optional<Decimal> exclusive, bound(schema, keyword));
  if (!exclusive) return {};
  const Decimal within = *exclusive + direction;
  if (!limit || direction * (within - *limit) > 0) limit = within;
  return {};
}

Status SchemaReader::read_numbers(const Json& schema, Shape& shape) const {
  NumberRange& range = shape.numbers;
  AERIE_ASSIGN_OR_RETURN(range.min, bound(schema, "minimum"));
  AERIE_ASSIGN_OR_RETURN(range.max, bound(schema, "maximum"));
  AERIE_RETURN_IF_ERROR(read_exclusive(schema, "exclusiveMinimum", 1, range.min));
  AERIE_RETURN_IF_ERROR(read_exclusive(schema, "exclusiveMaximum", -1, range.max));
  const Json* multiple = find_key(schema, "multipleOf");
  if (multiple == nullptr) return {};
  const double value = multiple->is_number() ? multiple->get<double>() : 0;
  if (value <= 0) {
    return document_.error(StatusCode::kInvalidArgument, schema, "multipleOf",
                           "a number above 0 is wanted");
  }
  AERIE_ASSIGN_OR_RETURN(const std::optional<Decimal> of, bound(schema, "multipleOf"));
  range.multiple_of = *of;
  // Multiples of integers are integers.
  if (value == std::floor(value)) shape.types &= static_cast<uint8_t>(~kFractionBit);
  return {};
}

Expected<StringSet> SchemaReader::pattern(const Json& schema, std::string_view keyword,
                                          const std::string& text) {
  StringSet& known = patterns_[text];
  if (known != nullptr) return known;
  constexpr size_t kMostPatterns = 200;
  if (patterns_.size() > kMostPatterns) {
    return document_.error(StatusCode::kResourceExhausted, schema, keyword,
                           fmt::format("more than {} patterns", kMostPatterns));
  }
  auto automaton = StringAutomaton::of_pattern(text, budget_);
  if (!automaton.ok()) {
    return document_.error(automaton.status().code(), schema, keyword,
                           automaton.status().message());
  }
  known = std::make_shared<const StringAutomaton>(std::move(*automaton));
  return known;
}

Status SchemaReader::read_strings(const Json& schema, Shape& shape) {
  AERIE_ASSIGN_OR_RETURN(shape.min_length, count(schema, "minLength", 0));
  AERIE_ASSIGN_OR_RETURN(shape.max_length, count(schema, "maxLength", kUnbounded));
  for (const char* keyword : {"pattern", "format"}) {
    const Json* value = find_key(schema, keyword);
    if (value == nullptr) continue;
    if (!value->is_string()) {
      return document_.error(StatusCode::kInvalidArgument, schema, keyword, "a string is wanted");
    }
    std::string text = value->get<std::string>();
    if (std::string_view(keyword) == "format") {
      const std::optional<std::string> known = format_pattern(text);
      if (!known && !document_.is_strict()) continue;
      if (!known) {
        return document_.error(StatusCode::kUnsupported, schema, keyword,
                               fmt::format("the format '{}' is not known", text));
      }
      text = *known;
    }
    AERIE_ASSIGN_OR_RETURN(StringSet set, pattern(schema, keyword, text));
    shape.strings.push_back(std::move(set));
  }
  return document_.is_own(schema) ? read_excluded(schema, shape) : Status();
}

Status SchemaReader::read_excluded(const Json& schema, Shape& shape) {
  const auto exclude = [&](const StringAutomaton& set) -> Status {
    AERIE_ASSIGN_OR_RETURN(
        StringAutomaton others,
        StringAutomaton::all().combined(set, StringAutomaton::Product::kFirstOnly, budget_));
    shape.strings.push_back(std::make_shared<const StringAutomaton>(std::move(others)));
    return {};
  };
  if (const Json* texts = find_key(schema, "not enum")) {
    AERIE_ASSIGN_OR_RETURN(
        const StringAutomaton set,
        StringAutomaton::of_texts(texts->get<std::vector<std::string>>(), budget_));
    AERIE_RETURN_IF_ERROR(exclude(set));
  }
  const Json* excluded = find_key(schema, "not pattern");
  if (excluded == nullptr) return {};
  if (!excluded->is_string()) {
    return document_.error(StatusCode::kInvalidArgument, schema, "pattern", "a string is wanted");
  }
  AERIE_ASSIGN_OR_RETURN(const StringSet set,
                         pattern(schema, "pattern", excluded->get<std::string>()));
  return exclude(*set);
}

Status SchemaReader::read_arrays(const Json& schema, Shape& shape) const {
  AERIE_ASSIGN_OR_RETURN(shape.min_items, count(schema, "minItems", 0));
  AERIE_ASSIGN_OR_RETURN(shape.max_items, count(schema, "maxItems", kUnbounded));
  const Json* unique = find_key(schema, "uniqueItems");
  if (unique != nullptr && unique->is_boolean() && unique->get<bool>()) {
    shape.unique_items = &schema;
  }
  const Json* items = find_key(schema, "items");
  const Json* prefix = find_key(schema, "prefixItems");
  const char* rest = "items";
  // Draft 7 has the list in "items"; many schemas that name no draft do so too.
  if (items != nullptr && items->is_array()) {
    if (prefix != nullptr) {
      return document_.error(StatusCode::kInvalidArgument, schema, "items", "a schema is wanted");
    }
    prefix = items;
    rest = "additionalItems";
  }
  if (prefix == nullptr && find_key(schema, rest) == nullptr) return {};
  ArrayPart part;
  if (prefix != nullptr && !prefix->is_array()) {
    return document_.error(StatusCode::kInvalidArgument, schema, "prefixItems",
                           "a list of schemas is wanted");
  }
  if (prefix != nullptr) {
    for (const Json& item : *prefix) part.prefix.push_back({&item});
  }
  part.rest = goal_at(schema, rest);
  part.evaluates = !document_.is_own(schema);
  shape.arrays.push_back(std::make_shared<const ArrayPart>(std::move(part)));
  return {};
}

Status SchemaReader::read_contains(const Json& schema, Shape& shape) const {
  const Json* contained = find_key(schema, "contains");
  if (contained == nullptr) return {};
  const bool own = document_.is_own(schema);
  // Draft 7 and before know no other number than one or more, and 2019-09 has it evaluate nothing.
  const bool counts = own || document_.draft() >= 2019;
  ContainsPart part{contained, 1, kUnbounded, !own && document_.draft() >= 2020};
  if (counts) {
    AERIE_ASSIGN_OR_RETURN(part.min, count(schema, "minContains", 1));
    AERIE_ASSIGN_OR_RETURN(part.max, count(schema, "maxContains", kUnbounded));
  }
  shape.contains.push_back(part);
  return {};
}

Status SchemaReader::read_objects(const Json& schema, Shape& shape) {
  AERIE_ASSIGN_OR_RETURN(shape.min_properties, count(schema, "minProperties", 0));
  AERIE_ASSIGN_OR_RETURN(shape.max_properties, count(schema, "maxProperties", kUnbounded));
  shape.property_names = goal_at(schema, "propertyNames");
  if (const Json* required = find_key(schema, "required")) {
    const bool names =
        required->is_array() && std::all_of(required->begin(), required->end(),
                                            [](const Json& name) { return name.is_string(); });
    if (!names) {
      return document_.error(StatusCode::kInvalidArgument, schema, "required",
                             "a list of names is wanted");
    }
    for (const Json& name : *required) shape.required.push_back(name.get<std::string>());
    std::vector<std::string> sorted = shape.required;
    std::sort(sorted.begin(), sorted.end());
    if (std::unique(sorted.begin(), sorted.end()) != sorted.end()) {
      return document_.error(StatusCode::kInvalidArgument, schema, "required",
                             "a name is there twice");
    }
  }
  ObjectPart part;
  for (const char* keyword : {"properties", "patternProperties"}) {
    const Json* members = find_key(schema, keyword);
    if (members == nullptr) continue;
    if (!members->is_object()) {
      return document_.error(StatusCode::kInvalidArgument, schema, keyword, "an object is wanted");
    }
    for (const auto& [name, value] : members->items()) {
      if (std::string_view(keyword) == "properties") {
        part.properties.emplace_back(name, Goal{&value});
        continue;
      }
      AERIE_ASSIGN_OR_RETURN(StringSet names, pattern(schema, keyword, name));
      part.patterns.push_back({std::move(names), {&value}});
    }
  }
  part.additional = goal_at(schema, "additionalProperties");
  part.evaluates = !document_.is_own(schema);
  const bool any = !part.properties.empty() || !part.patterns.empty() || !part.additional.empty();
  if (any) shape.objects.push_back(std::make_shared<const ObjectPart>(std::move(part)));
  return {};
}

}  // namespace aerie::grammar
