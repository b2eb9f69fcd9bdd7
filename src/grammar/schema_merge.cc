#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "grammar/schema_compiler.h"

namespace aerie {
namespace {

const std::set<std::string> kObjectGroup = {"properties", "additionalProperties",
                                            "patternProperties"};
const std::set<std::string> kArrayGroup = {"items", "prefixItems", "additionalItems"};

bool has_any(const Json& schema, const std::set<std::string>& keywords) {
  return std::ranges::any_of(keywords, [&](const auto& it) { return schema.contains(it); });
}

// Keywords that see what the others of their group left over.
Status check_groups(const Json& a, const Json& b, const std::string& pointer) {
  if (has_any(a, kObjectGroup) && has_any(b, kObjectGroup)) {
    for (const char* keyword : {"additionalProperties", "patternProperties"}) {
      if (a.contains(keyword) || b.contains(keyword)) {
        return unsupported_keyword(pointer, keyword, "in schemas that are to match together");
      }
    }
  }
  if (has_any(a, kArrayGroup) && has_any(b, kArrayGroup)) {
    for (const char* keyword : {"prefixItems", "additionalItems"}) {
      if (a.contains(keyword) || b.contains(keyword)) {
        return unsupported_keyword(pointer, keyword, "in schemas that are to match together");
      }
    }
    const bool listed = (a.contains("items") && a["items"].is_array()) ||
                        (b.contains("items") && b["items"].is_array());
    if (listed) {
      return unsupported_keyword(pointer, "items", "in schemas that are to match together");
    }
  }
  return Status();
}

Json as_list(const Json& value) {
  return value.is_array() ? value : Json::array({value});
}

Json common_types(const Json& a, const Json& b) {
  const auto holds = [](const Json& list, const std::string& type) {
    return std::ranges::find(list, Json(type)) != list.end();
  };
  const Json left = as_list(a);
  const Json right = as_list(b);
  Json out = Json::array();
  for (const char* type : {"null", "boolean", "object", "array", "number", "integer", "string"}) {
    const bool integer = std::string(type) == "integer";
    const bool in_left = holds(left, type) || (integer && holds(left, "number"));
    const bool in_right = holds(right, type) || (integer && holds(right, "number"));
    if (in_left && in_right) out.push_back(type);
  }
  return out;
}

Json common_values(const Json& a, const Json& b) {
  Json out = Json::array();
  for (const Json& value : a) {
    if (std::ranges::find(b, value) != b.end()) out.push_back(value);
  }
  return out;
}

Status merge_keyword(Json& out, const std::string& keyword, const Json& theirs,
                     const std::string& pointer) {
  Json& mine = out[keyword];
  if (mine == theirs) return Status();
  static const std::set<std::string> least = {"minimum", "exclusiveMinimum", "minLength",
                                              "minItems", "minProperties"};
  static const std::set<std::string> most = {"maximum", "exclusiveMaximum", "maxLength", "maxItems",
                                             "maxProperties"};
  if (keyword == "required" && mine.is_array() && theirs.is_array()) {
    for (const Json& name : theirs) {
      if (std::ranges::find(mine, name) == mine.end()) mine.push_back(name);
    }
  } else if (keyword == "properties" && mine.is_object() && theirs.is_object()) {
    for (const auto& [name, schema] : theirs.items()) {
      if (!mine.contains(name)) {
        mine[name] = schema;
      } else if (mine[name] != schema) {
        mine[name] = Json{{"allOf", Json::array({mine[name], schema})}};
      }
    }
  } else if (keyword == "items") {
    mine = Json{{"allOf", Json::array({mine, theirs})}};
  } else if (keyword == "allOf" && mine.is_array() && theirs.is_array()) {
    mine.insert(mine.end(), theirs.begin(), theirs.end());
  } else if (keyword == "type") {
    mine = common_types(mine, theirs);
  } else if (keyword == "enum" && mine.is_array() && theirs.is_array()) {
    mine = common_values(mine, theirs);
  } else if (keyword == "const") {
    out["enum"] = Json::array();
  } else if (least.contains(keyword) && mine.is_number() && theirs.is_number()) {
    if (theirs > mine) mine = theirs;
  } else if (most.contains(keyword) && mine.is_number() && theirs.is_number()) {
    if (theirs < mine) mine = theirs;
  } else {
    return unsupported_keyword(pointer, keyword, "in schemas that are to match together");
  }
  return Status();
}

// The values of const and enum, or null.
Json values_of(const Json& schema) {
  if (schema.contains("const")) return Json::array({schema["const"]});
  return schema.contains("enum") && schema["enum"].is_array() ? schema["enum"] : Json();
}

bool requires_name(const Json& schema, const std::string& name) {
  if (!schema.contains("required") || !schema["required"].is_array()) return false;
  return std::ranges::find(schema["required"], Json(name)) != schema["required"].end();
}

bool only_objects(const Json& schema) {
  return schema.contains("type") && as_list(schema["type"]) == Json::array({"object"});
}

}  // namespace

bool is_annotation(const std::string& keyword) {
  // All keywords that the drafts assert with; what they do not know is an annotation.
  static const std::set<std::string> assertions = {"$ref",
                                                   "$dynamicRef",
                                                   "$recursiveRef",
                                                   "$id",
                                                   "$anchor",
                                                   "$dynamicAnchor",
                                                   "type",
                                                   "enum",
                                                   "const",
                                                   "multipleOf",
                                                   "maximum",
                                                   "exclusiveMaximum",
                                                   "minimum",
                                                   "exclusiveMinimum",
                                                   "maxLength",
                                                   "minLength",
                                                   "pattern",
                                                   "format",
                                                   "items",
                                                   "prefixItems",
                                                   "additionalItems",
                                                   "maxItems",
                                                   "minItems",
                                                   "uniqueItems",
                                                   "contains",
                                                   "maxContains",
                                                   "minContains",
                                                   "maxProperties",
                                                   "minProperties",
                                                   "required",
                                                   "properties",
                                                   "patternProperties",
                                                   "additionalProperties",
                                                   "dependencies",
                                                   "dependentRequired",
                                                   "dependentSchemas",
                                                   "propertyNames",
                                                   "if",
                                                   "then",
                                                   "else",
                                                   "allOf",
                                                   "anyOf",
                                                   "oneOf",
                                                   "not",
                                                   "unevaluatedItems",
                                                   "unevaluatedProperties"};
  return !assertions.contains(keyword);
}

bool has_type(const Json& value, const std::string& type) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_boolean();
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "number") return value.is_number();
  if (type != "integer" || !value.is_number()) return false;
  return value.is_number_integer() || std::trunc(value.get<double>()) == value.get<double>();
}

Expected<std::vector<std::string>> types_of(const SchemaAt& at) {
  static const std::vector<std::string> all = {"object", "array",   "string",
                                               "number", "boolean", "null"};
  if (!at.schema.contains("type")) return all;
  std::vector<std::string> types;
  for (const Json& type : as_list(at.schema["type"])) {
    const bool known =
        type.is_string() &&
        (type == "integer" || std::ranges::find(all, type.get<std::string>()) != all.end());
    if (!known) return invalid_keyword(at.pointer, "type", "is no type's name");
    types.push_back(type.get<std::string>());
  }
  if (std::ranges::find(types, "number") != types.end()) std::erase(types, "integer");
  return types;
}

Expected<Json> merge_schemas(const Json& a, const Json& b, const std::string& pointer) {
  if (a.is_boolean()) return a.get<bool>() ? b : a;
  if (b.is_boolean()) return b.get<bool>() ? a : b;
  if (!a.is_object() || !b.is_object()) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("JSON schema, {}/: a schema is an object or a boolean", pointer));
  }
  AERIE_RETURN_IF_ERROR(check_groups(a, b, pointer));
  Json out = a;
  for (const auto& [keyword, value] : b.items()) {
    if (is_annotation(keyword)) continue;
    if (!out.contains(keyword)) {
      out[keyword] = value;
    } else {
      AERIE_RETURN_IF_ERROR(merge_keyword(out, keyword, value, pointer));
    }
  }
  return out;
}

bool are_disjoint(const Json& a, const Json& b) {
  if (a == Json(false) || b == Json(false)) return true;
  if (!a.is_object() || !b.is_object()) return false;
  const Json left = values_of(a);
  const Json right = values_of(b);
  if (!left.is_null() && !right.is_null()) return common_values(left, right).empty();
  const auto fits = [](const Json& values, const Json& schema) {
    const Json types = as_list(schema["type"]);
    return std::ranges::any_of(values, [&](const Json& value) {
      return std::ranges::any_of(types, [&](const Json& type) {
        return type.is_string() && has_type(value, type.get<std::string>());
      });
    });
  };
  if (a.contains("type") && b.contains("type") && common_types(a["type"], b["type"]).empty()) {
    return true;
  }
  if (!left.is_null() && b.contains("type") && !fits(left, b)) return true;
  if (!right.is_null() && a.contains("type") && !fits(right, a)) return true;
  if (!only_objects(a) || !only_objects(b)) return false;
  if (!a.contains("properties") || !b.contains("properties")) return false;
  for (const auto& [name, schema] : a["properties"].items()) {
    if (!b["properties"].contains(name)) continue;
    const bool asked = requires_name(a, name) && requires_name(b, name);
    if (asked && are_disjoint(schema, b["properties"][name])) return true;
  }
  return false;
}

}  // namespace aerie
