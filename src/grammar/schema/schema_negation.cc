#include "grammar/schema/schema_negation.h"

#include <algorithm>
#include <array>

namespace aerie::grammar {
namespace {

constexpr int kMaxDepth = 24;
constexpr size_t kMaxIntervals = 64;
constexpr size_t kMaxPairs = 16;

Json of_type(const char* type, const char* keyword, Json value) {
  return Json{{"type", type}, {keyword, std::move(value)}};
}

Json any_of(std::vector<Json> ways) {
  if (ways.empty()) return false;
  if (ways.size() == 1) return std::move(ways[0]);
  return Json{{"anyOf", std::move(ways)}};
}

bool is_false(const Json& schema) {
  return schema.is_boolean() && !schema.get<bool>();
}

}  // namespace

const Json* SchemaNegation::keep(Json schema, const Json& origin, bool partial) {
  return &document_.add(std::move(schema), origin, partial);
}

Json SchemaNegation::reference(const Json& schema) const {
  if (schema.is_boolean()) return schema;
  return Json{{"$ref", document_.reference(schema)}};
}

Json SchemaNegation::silent_reference(const Json& schema) const {
  Json reference = this->reference(schema);
  if (reference.is_object()) reference["silent"] = true;
  return reference;
}

const Json* SchemaNegation::either(const std::vector<const Json*>& schemas, const Json& origin) {
  Json ways = Json::array();
  for (const Json* schema : schemas) ways.push_back(reference(*schema));
  return keep({{"anyOf", std::move(ways)}}, origin, false);
}

Expected<const Json*> SchemaNegation::negated(const Json& schema) {
  const auto known = known_.find(&schema);
  if (known != known_.end()) return known->second;
  partial_ = false;
  AERIE_ASSIGN_OR_RETURN(Json negation, this->negation(schema));
  const bool nothing = is_false(negation) && partial_;
  const Json* result = nothing ? nullptr : keep(std::move(negation), schema, partial_);
  known_.emplace(&schema, result);
  return result;
}

Expected<Json> SchemaNegation::negation(const Json& schema) {
  if (schema.is_boolean()) return Json(!schema.get<bool>());
  if (depth_ == kMaxDepth || !schema.is_object()) {
    partial_ = true;
    return Json(false);
  }
  ++depth_;
  auto ways = this->ways(schema);
  --depth_;
  if (!ways.ok()) return ways.status();
  return any_of(std::move(*ways));
}

Expected<SchemaNegation::Ways> SchemaNegation::ways(const Json& schema) {
  Ways ways;
  AERIE_ASSIGN_OR_RETURN(const std::vector<const Json*> targets, document_.references(schema));
  for (const Json* target : targets) {
    AERIE_ASSIGN_OR_RETURN(Json way, negation(*target));
    if (!is_false(way)) ways.push_back(std::move(way));
    if (document_.refers_alone(schema)) return ways;
  }
  AERIE_RETURN_IF_ERROR(add_types(schema, ways));
  if (const Json* values = find_key(schema, "enum")) {
    if (values->is_array()) add_values(*values, ways);
  }
  if (const Json* value = find_key(schema, "const")) add_values(Json::array({*value}), ways);
  add_limits(schema, ways);
  AERIE_RETURN_IF_ERROR(add_members(schema, ways));
  AERIE_RETURN_IF_ERROR(add_combined(schema, ways));
  return ways;
}

Status SchemaNegation::add_types(const Json& schema, Ways& ways) {
  const Json* types = find_key(schema, "type");
  if (types == nullptr) return {};
  const Json listed = types->is_array() ? *types : Json::array({*types});
  const auto has = [&](const char* type) {
    return std::find(listed.begin(), listed.end(), type) != listed.end();
  };
  Json others = Json::array();
  for (const char* type : {"null", "boolean", "string", "array", "object"}) {
    if (!has(type)) others.push_back(type);
  }
  if (!has("number")) others.push_back(has("integer") ? "fraction" : "number");
  if (!others.empty()) ways.push_back({{"type", std::move(others)}});
  return {};
}

// All but these.
void SchemaNegation::add_values(const Json& values, Ways& ways) {
  Json others = Json::array();
  Json texts = Json::array();
  std::array<bool, 2> listed = {false, false};
  bool null = false;
  std::array<size_t, 2> longest = {0, 0};  // of arrays and objects
  std::array<bool, 2> any = {false, false};
  for (const Json& value : values) {
    if (value.is_string()) texts.push_back(value);
    if (value.is_boolean()) listed[value.get<bool>() ? 1 : 0] = true;
    null |= value.is_null();
    if (!value.is_structured()) continue;
    const size_t kind = value.is_array() ? 0 : 1;
    any[kind] = true;
    longest[kind] = std::max(longest[kind], value.size());
  }
  if (!null) others.push_back("null");
  if (!listed[0] && !listed[1]) others.push_back("boolean");
  if (listed[0] != listed[1]) ways.push_back({{"enum", Json::array({listed[0]})}});
  if (texts.empty()) {
    others.push_back("string");
  } else {
    ways.push_back(of_type("string", "not enum", std::move(texts)));
  }
  if (!any[0]) others.push_back("array");
  if (!any[1]) others.push_back("object");
  // Longer ones differ; among the others no automaton looks for a difference.
  if (any[0]) ways.push_back(of_type("array", "minItems", longest[0] + 1));
  partial_ |= any[0] || any[1];
  if (!others.empty()) ways.push_back({{"type", std::move(others)}});
  add_numbers(values, ways);
}

void SchemaNegation::add_numbers(const Json& values, Ways& ways) {
  std::vector<Json> numbers;
  for (const Json& value : values) {
    if (value.is_number()) numbers.push_back(value);
  }
  if (numbers.size() > kMaxIntervals) {
    partial_ = true;
    return;
  }
  std::sort(numbers.begin(), numbers.end());
  for (size_t i = 0; i <= numbers.size(); ++i) {
    Json interval = {{"type", "number"}};
    if (i > 0) interval["exclusiveMinimum"] = numbers[i - 1];
    if (i < numbers.size()) interval["exclusiveMaximum"] = numbers[i];
    ways.push_back(std::move(interval));
  }
}

void SchemaNegation::add_limits(const Json& schema, Ways& ways) {
  struct Limit {
    const char* keyword;
    const char* type;
    const char* opposite;
    int step;  // what has to be added to the value, for counts
  };
  static constexpr Limit kCounts[] = {{"minLength", "string", "maxLength", -1},
                                      {"maxLength", "string", "minLength", 1},
                                      {"minItems", "array", "maxItems", -1},
                                      {"maxItems", "array", "minItems", 1},
                                      {"minProperties", "object", "maxProperties", -1},
                                      {"maxProperties", "object", "minProperties", 1}};
  for (const Limit& limit : kCounts) {
    const Json* value = find_key(schema, limit.keyword);
    if (value == nullptr || !value->is_number() || value->get<double>() + limit.step < 0) continue;
    ways.push_back(of_type(limit.type, limit.opposite, value->get<int64_t>() + limit.step));
  }
  static constexpr Limit kBounds[] = {{"minimum", "number", "exclusiveMaximum", 0},
                                      {"maximum", "number", "exclusiveMinimum", 0},
                                      {"exclusiveMinimum", "number", "maximum", 0},
                                      {"exclusiveMaximum", "number", "minimum", 0}};
  for (const Limit& limit : kBounds) {
    const Json* value = find_key(schema, limit.keyword);
    if (value == nullptr) continue;
    // Draft 4's: the bound beside it is one that is not reached.
    if (value->is_boolean() && value->get<bool>()) {
      const bool least = std::string_view(limit.keyword) == "exclusiveMinimum";
      if (const Json* bound = find_key(schema, least ? "minimum" : "maximum")) {
        ways.push_back(of_type("number", limit.opposite, *bound));
      }
    }
    if (value->is_number()) ways.push_back(of_type("number", limit.opposite, *value));
  }
  if (const Json* pattern = find_key(schema, "pattern")) {
    ways.push_back(of_type("string", "not pattern", *pattern));
  }
  if (const Json* value = find_key(schema, "multipleOf")) {
    const bool whole =
        value->is_number() && value->get<double>() == static_cast<double>(value->get<int64_t>());
    if (whole) ways.push_back({{"type", "fraction"}});
    partial_ |= !whole || value->get<double>() != 1;
  }
  // Readers differ in whether a format says anything.
  partial_ |= find_key(schema, "format") != nullptr;
}

Status SchemaNegation::add_members(const Json& schema, Ways& ways) {
  if (const Json* required = find_key(schema, "required");
      required != nullptr && required->is_array()) {
    for (const Json& name : *required) {
      if (!name.is_string()) continue;
      ways.push_back(of_type("object", "properties", {{name.get<std::string>(), false}}));
    }
  }
  if (const Json* properties = find_key(schema, "properties");
      properties != nullptr && properties->is_object()) {
    for (const auto& [name, value] : properties->items()) {
      AERIE_ASSIGN_OR_RETURN(Json other, negation(value));
      if (is_false(other)) continue;
      Json way = of_type("object", "properties", {{name, std::move(other)}});
      way["required"] = Json::array({name});
      ways.push_back(std::move(way));
    }
  }
  const Json* items = find_key(schema, "items");
  const Json* prefix = find_key(schema, "prefixItems");
  if (items != nullptr && prefix == nullptr && !items->is_array()) {
    // One that is not valid, and be it the first.
    AERIE_ASSIGN_OR_RETURN(Json other, negation(*items));
    if (!is_false(other)) {
      Json way = of_type("array", "prefixItems", Json::array({std::move(other)}));
      way["minItems"] = 1;
      ways.push_back(std::move(way));
    }
    partial_ |= !(items->is_boolean() && items->get<bool>());
  }
  AERIE_RETURN_IF_ERROR(add_prefix(items != nullptr && items->is_array() ? items : prefix, ways));
  for (const char* keyword :
       {"additionalItems", "uniqueItems", "patternProperties", "additionalProperties",
        "propertyNames", "unevaluatedProperties", "unevaluatedItems", "dependencies",
        "dependentRequired", "dependentSchemas"}) {
    partial_ |= find_key(schema, keyword) != nullptr;
  }
  partial_ |= items != nullptr && prefix != nullptr;
  add_contains(schema, ways);
  return {};
}

// One of the listed items is there and not valid.
Status SchemaNegation::add_prefix(const Json* list, Ways& ways) {
  if (list == nullptr || !list->is_array()) return {};
  Json before = Json::array();
  for (const Json& item : *list) {
    AERIE_ASSIGN_OR_RETURN(Json other, negation(item));
    Json items = before;
    items.push_back(other);
    before.push_back(true);
    if (is_false(other)) continue;
    Json way = of_type("array", "prefixItems", std::move(items));
    way["minItems"] = before.size();
    ways.push_back(std::move(way));
  }
  return {};
}

// Too few that it holds for, or too many.
void SchemaNegation::add_contains(const Json& schema, Ways& ways) {
  const Json* contained = find_key(schema, "contains");
  if (contained == nullptr) return;
  const auto number = [&](const char* keyword, int64_t fallback) {
    const Json* value = find_key(schema, keyword);
    const bool counts = document_.is_own(schema) || document_.draft() >= 2019;
    return counts && value != nullptr && value->is_number() ? value->get<int64_t>() : fallback;
  };
  const int64_t least = number("minContains", 1);
  const int64_t most = number("maxContains", -1);
  Json way = of_type("array", "contains", reference(*contained));
  if (most >= 0) {
    way["minContains"] = most + 1;
    ways.push_back(way);
  }
  if (least > 0) {
    way["minContains"] = 0;
    way["maxContains"] = least - 1;
    ways.push_back(std::move(way));
  }
}

Status SchemaNegation::add_none(const Json& list, Ways& ways) {
  std::vector<Json> all;
  for (const Json& part : list) {
    AERIE_ASSIGN_OR_RETURN(Json other, negation(part));
    if (is_false(other)) return {};
    all.push_back(std::move(other));
  }
  ways.push_back({{"allOf", std::move(all)}});
  return {};
}

Status SchemaNegation::add_combined(const Json& schema, Ways& ways) {
  const auto list = [&](const char* keyword) {
    const Json* value = find_key(schema, keyword);
    return value != nullptr && value->is_array() ? value : nullptr;
  };
  if (const Json* all = list("allOf")) {
    for (const Json& part : *all) {
      AERIE_ASSIGN_OR_RETURN(Json other, negation(part));
      if (!is_false(other)) ways.push_back(std::move(other));
    }
  }
  if (const Json* any = list("anyOf")) AERIE_RETURN_IF_ERROR(add_none(*any, ways));
  if (const Json* one = list("oneOf")) AERIE_RETURN_IF_ERROR(add_one_of(*one, ways));
  if (const Json* other = find_key(schema, "not")) ways.push_back(silent_reference(*other));
  return add_conditional(schema, ways);
}

// None of them, or two.
Status SchemaNegation::add_one_of(const Json& list, Ways& ways) {
  AERIE_RETURN_IF_ERROR(add_none(list, ways));
  size_t pairs = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (++pairs > kMaxPairs) {
        partial_ = true;
        return {};
      }
      ways.push_back(
          {{"allOf", Json::array({silent_reference(list[j]), silent_reference(list[i])})}});
    }
  }
  return {};
}

Status SchemaNegation::add_conditional(const Json& schema, Ways& ways) {
  const Json* condition = find_key(schema, "if");
  if (condition == nullptr) return {};
  if (const Json* then = find_key(schema, "then")) {
    AERIE_ASSIGN_OR_RETURN(Json other, negation(*then));
    if (!is_false(other))
      ways.push_back({{"allOf", Json::array({silent_reference(*condition), std::move(other)})}});
  }
  if (const Json* otherwise = find_key(schema, "else")) {
    AERIE_ASSIGN_OR_RETURN(Json not_met, negation(*condition));
    AERIE_ASSIGN_OR_RETURN(Json other, negation(*otherwise));
    if (!is_false(other) && !is_false(not_met)) {
      ways.push_back({{"allOf", Json::array({std::move(not_met), std::move(other)})}});
    }
  }
  return {};
}

Expected<const Json*> SchemaNegation::conditional(const Json& schema) {
  const Json* condition = find_key(schema, "if");
  const Json* then = find_key(schema, "then");
  const Json* otherwise = find_key(schema, "else");
  partial_ = false;
  AERIE_ASSIGN_OR_RETURN(Json not_met, negation(*condition));
  const Json met = reference(*condition);
  Json first = Json::array({met});
  if (then != nullptr) first.push_back(reference(*then));
  Json second = Json::array({not_met});
  // What both demand is right whether the condition is met or not, but one of them does not count.
  const bool unknown = is_false(not_met) && partial_;
  if (unknown) second = Json::array();
  if (unknown && then != nullptr) second.push_back(silent_reference(*then));
  if (otherwise != nullptr)
    second.push_back(unknown ? silent_reference(*otherwise) : reference(*otherwise));
  Json ways = Json::array({Json{{"allOf", std::move(first)}}});
  if (!second.empty()) ways.push_back({{"allOf", std::move(second)}});
  return keep({{"anyOf", std::move(ways)}}, schema, partial_);
}

Expected<std::vector<const Json*>> SchemaNegation::dependencies(const Json& schema) {
  std::vector<const Json*> all;
  for (const char* keyword : {"dependencies", "dependentRequired", "dependentSchemas"}) {
    const Json* dependencies = find_key(schema, keyword);
    if (dependencies == nullptr) continue;
    if (!dependencies->is_object()) {
      return document_.error(StatusCode::kInvalidArgument, schema, keyword, "an object is wanted");
    }
    for (const auto& [name, what] : dependencies->items()) {
      Json present = {{"required", Json::array({name})}};
      if (what.is_array()) {
        for (const Json& other : what) {
          if (other != name) present["required"].push_back(other);
        }
      } else {
        present = {{"allOf", Json::array({std::move(present), reference(what)})}};
      }
      const Json absent = {{"properties", {{name, false}}}};
      all.push_back(keep({{"anyOf", Json::array({absent, std::move(present)})}}, schema, false));
    }
  }
  return all;
}

}  // namespace aerie::grammar
