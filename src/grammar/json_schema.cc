#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/utf8.h"
#include "grammar/front_ends.h"
#include "grammar/schema_compiler.h"

namespace aerie {

using Expr = GrammarBuilder::Expr;

Status unsupported_keyword(const std::string& pointer, const std::string& keyword,
                           const std::string& why) {
  return Status(StatusCode::kUnsupported,
                fmt::format("JSON schema, {}/{}: {}{}{} is not supported", pointer, keyword,
                            keyword, why.empty() ? "" : " ", why));
}

Status invalid_keyword(const std::string& pointer, const std::string& keyword,
                       const std::string& why) {
  return Status(StatusCode::kInvalidArgument,
                fmt::format("JSON schema, {}/{}: {} {}", pointer, keyword, keyword, why));
}

std::string pointer_token(const std::string& key) {
  std::string out;
  for (const char c : key) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

namespace {

bool is_reference_alone(const Json& schema) {
  for (const auto& [keyword, value] : schema.items()) {
    if (keyword != "$ref" && !is_annotation(keyword)) return false;
  }
  return true;
}

// The tokens of a pointer in a fragment; false if an escape is broken.
bool decode_pointer(std::string_view text, std::vector<std::string>& tokens) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '/') {
      tokens.emplace_back();
    } else if (tokens.empty()) {
      return false;
    } else if (text[i] == '~') {
      if (i + 1 >= text.size() || (text[i + 1] != '0' && text[i + 1] != '1')) return false;
      tokens.back() += text[++i] == '0' ? '~' : '/';
    } else {
      tokens.back() += text[i];
    }
  }
  return true;
}

bool decode_percent(std::string_view text, std::string& out) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'                     ? c - '0'
           : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                    : -1;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size() || digit(text[i + 1]) < 0 || digit(text[i + 2]) < 0) return false;
    out += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
    i += 2;
  }
  return utf8_valid_prefix(out) == out.size();
}

}  // namespace

Expected<const Json*> SchemaCompiler::resolve(const std::string& reference,
                                              const std::string& pointer) const {
  const auto no = [&](const std::string& why) {
    return unsupported_keyword(pointer, "$ref", "\"" + reference + "\" (" + why + ")");
  };
  if (!reference.starts_with("#")) return no("not within the schema");
  std::string path;
  std::vector<std::string> tokens;
  if (!decode_percent(std::string_view(reference).substr(1), path)) return no("a broken escape");
  if (!decode_pointer(path, tokens)) return no("not a JSON pointer");
  const Json* at = &root_;
  for (const std::string& token : tokens) {
    if (at->is_object() && at->contains(token)) {
      at = &(*at)[token];
    } else if (at->is_array() && !token.empty() && token.size() < 7 &&
               token.find_first_not_of("0123456789") == std::string::npos &&
               std::stoul(token) < at->size()) {
      at = &(*at)[std::stoul(token)];
    } else {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("JSON schema, {}/$ref: nothing is at \"{}\"", pointer, reference));
    }
    if (at->is_object() && at->contains("$id") && (*at)["$id"].is_string()) {
      return no("through a schema with an $id of its own");
    }
  }
  return at;
}

Expected<Expr> SchemaCompiler::compile(const Json& schema, const std::string& pointer) {
  if (schema.is_boolean()) return schema.get<bool>() ? json_.value() : builder_.never();
  if (!schema.is_object()) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("JSON schema, {}/: a schema is an object or a boolean", pointer));
  }
  AERIE_RETURN_IF_ERROR(builder_.status());
  std::string key = schema.dump();
  key_bytes_ += key.size();
  const auto [found, added] = made_.try_emplace(std::move(key));
  if (!added) return found->second;
  if (made_.size() > kMaxSchemas || key_bytes_ > kMaxKeyBytes || depth_ >= kMaxDepth) {
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("JSON schema, {}/: too large, or too many levels deep", pointer));
  }
  const GrammarBuilder::Rule rule = builder_.add_rule(pointer.empty() ? "/" : pointer);
  const Expr call = builder_.call(rule);
  found->second = call;
  ++depth_;
  const auto made = body({schema, pointer});
  --depth_;
  AERIE_RETURN_IF_ERROR(made.status());
  builder_.define(rule, *made);
  return call;
}

Expected<Expr> SchemaCompiler::body(const SchemaAt& at) {
  for (const char* keyword : {"not", "then", "else", "$dynamicRef", "$recursiveRef"}) {
    const bool idle = (keyword[0] == 't' || keyword[0] == 'e') && !at.schema.contains("if");
    if (at.schema.contains(keyword) && !idle) return unsupported_keyword(at.pointer, keyword, "");
  }
  if (at.schema.contains("$id") && &at.schema != &root_) {
    return unsupported_keyword(at.pointer, "$id", "within a schema");
  }
  if (at.schema.contains("$ref") && is_reference_alone(at.schema)) {
    const Json& reference = at.schema["$ref"];
    if (!reference.is_string()) return invalid_keyword(at.pointer, "$ref", "is not a string");
    AERIE_ASSIGN_OR_RETURN(const Json* const target,
                           resolve(reference.get<std::string>(), at.pointer));
    return compile(*target, reference.get<std::string>().substr(1));
  }
  if (at.schema.contains("$ref") || at.schema.contains("allOf")) {
    AERIE_ASSIGN_OR_RETURN(const Json merged, without_references(at.schema, at.pointer, 0));
    return compile(merged, at.pointer);
  }
  for (const char* keyword : {"anyOf", "oneOf"}) {
    if (at.schema.contains(keyword)) return branches(at.schema, keyword, at.pointer);
  }
  return plain(at);
}

Expected<Json> SchemaCompiler::without_references(const Json& schema, const std::string& pointer,
                                                  int depth) const {
  if (depth > 32) {
    return unsupported_keyword(pointer, schema.contains("allOf") ? "allOf" : "$ref",
                               "that leads back to itself, or this deep,");
  }
  if (!schema.is_object()) return schema;
  Json out = Json::object();
  for (const auto& [keyword, value] : schema.items()) {
    const bool root_only = keyword == "$id" && &schema == &root_;
    if (keyword != "$ref" && keyword != "allOf" && !is_annotation(keyword) && !root_only) {
      out[keyword] = value;
    }
  }
  std::vector<Json> parts;
  if (schema.contains("$ref")) {
    if (!schema["$ref"].is_string()) return invalid_keyword(pointer, "$ref", "is not a string");
    AERIE_ASSIGN_OR_RETURN(const Json* const target,
                           resolve(schema["$ref"].get<std::string>(), pointer));
    AERIE_ASSIGN_OR_RETURN(Json part, without_references(*target, pointer + "/$ref", depth + 1));
    parts.push_back(std::move(part));
  }
  if (schema.contains("allOf")) {
    const Json& list = schema["allOf"];
    if (!list.is_array()) return invalid_keyword(pointer, "allOf", "is not an array");
    for (size_t i = 0; i < list.size(); ++i) {
      const std::string where = fmt::format("{}/allOf/{}", pointer, i);
      AERIE_ASSIGN_OR_RETURN(Json part, without_references(list[i], where, depth + 1));
      parts.push_back(std::move(part));
    }
  }
  for (const Json& part : parts) {
    AERIE_ASSIGN_OR_RETURN(out, merge_schemas(out, part, pointer));
  }
  return out;
}

Expected<Expr> SchemaCompiler::branches(const Json& schema, const std::string& keyword,
                                        const std::string& pointer) {
  const Json& list = schema[keyword];
  if (!list.is_array() || list.empty()) {
    return invalid_keyword(pointer, keyword, "is not an array of schemas");
  }
  Json rest = Json::object();
  for (const auto& [other, value] : schema.items()) {
    if (other != keyword && other != "$id" && !is_annotation(other)) rest[other] = value;
  }
  std::vector<Json> merged;
  std::vector<Expr> out;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string where = fmt::format("{}/{}/{}", pointer, keyword, i);
    if (rest.empty() && keyword == "anyOf") {
      AERIE_ASSIGN_OR_RETURN(const Expr branch, compile(list[i], where));
      out.push_back(branch);
      continue;
    }
    AERIE_ASSIGN_OR_RETURN(const Json branch, without_references(list[i], where, 0));
    AERIE_ASSIGN_OR_RETURN(Json both, merge_schemas(rest, branch, where));
    AERIE_ASSIGN_OR_RETURN(const Expr made, compile(both, where));
    out.push_back(made);
    merged.push_back(std::move(both));
  }
  for (size_t i = 0; keyword == "oneOf" && i < merged.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (are_disjoint(merged[i], merged[j])) continue;
      return unsupported_keyword(pointer, keyword,
                                 fmt::format("whose branches {} and {} may both match", j, i));
    }
  }
  return builder_.any_of(std::move(out));
}

Expected<Expr> SchemaCompiler::plain(const SchemaAt& at) {
  if (at.schema.contains("const") || at.schema.contains("enum")) return listed(at);
  AERIE_ASSIGN_OR_RETURN(const std::vector<std::string> types, types_of(at));
  std::vector<Expr> out;
  for (const std::string& type : types) {
    AERIE_ASSIGN_OR_RETURN(const Expr one, of_type(at, type));
    out.push_back(one);
  }
  return builder_.any_of(std::move(out));
}

Expected<Expr> SchemaCompiler::of_type(const SchemaAt& at, const std::string& type) {
  if (type == "null") return json_.null();
  if (type == "boolean") return json_.boolean();
  if (type == "string") return string(at);
  if (type == "array") return array(at);
  if (type == "object") return object(at);
  return number(at, type == "integer");
}

// The values of const and enum that have a fitting type.
Expected<Expr> SchemaCompiler::listed(const SchemaAt& at) {
  for (const auto& [keyword, value] : at.schema.items()) {
    const bool fine = keyword == "const" || keyword == "enum" || keyword == "type" ||
                      keyword == "$id" || is_annotation(keyword);
    if (!fine) return unsupported_keyword(at.pointer, keyword, "beside const or enum");
  }
  AERIE_ASSIGN_OR_RETURN(const std::vector<std::string> types, types_of(at));
  const bool both = at.schema.contains("const") && at.schema.contains("enum");
  const Json values =
      at.schema.contains("const") ? Json::array({at.schema["const"]}) : at.schema["enum"];
  if (!values.is_array()) return invalid_keyword(at.pointer, "enum", "is not an array");
  std::vector<Expr> out;
  for (const Json& value : values) {
    const bool fits =
        std::ranges::any_of(types, [&](const std::string& type) { return has_type(value, type); });
    const Json& listed = both ? at.schema["enum"] : values;
    if (fits && std::ranges::find(listed, value) != listed.end()) out.push_back(constant(value));
  }
  return builder_.any_of(std::move(out));
}

Expr SchemaCompiler::constant(const Json& value) {
  if (value.is_string()) return json_.plain_string(value.get<std::string>());
  if (!value.is_structured()) return builder_.literal(value.dump());
  std::vector<Expr> items;
  for (const auto& [name, item] : value.items()) {
    if (!items.empty()) items.push_back(json_.comma());
    if (value.is_object()) {
      items.push_back(json_.plain_string(name));
      items.push_back(json_.colon());
    }
    items.push_back(constant(item));
  }
  const Expr all = builder_.sequence(std::move(items));
  return value.is_object() ? json_.make_object(all) : json_.make_array(all);
}

Expected<GrammarBuilder::Rule> build_json_schema(std::string_view text, GrammarBuilder& builder) {
  const auto schema = parse_json(text, "JSON schema");
  if (!schema.ok()) {
    const bool large = schema.status().code() == StatusCode::kResourceExhausted;
    return large ? schema.status()
                 : Status(StatusCode::kInvalidArgument, schema.status().message());
  }
  if (schema->is_object() && schema->contains("$schema")) {
    static const std::set<std::string> known = {"https://json-schema.org/draft/2020-12/schema",
                                                "https://json-schema.org/draft/2020-12/schema#",
                                                "http://json-schema.org/draft-07/schema",
                                                "http://json-schema.org/draft-07/schema#"};
    const Json& draft = (*schema)["$schema"];
    if (!draft.is_string() || !known.contains(draft.get<std::string>())) {
      return unsupported_keyword("", "$schema", draft.dump());
    }
  }
  SchemaCompiler compiler(*schema, builder);
  AERIE_ASSIGN_OR_RETURN(const Expr body, compiler.compile(*schema, ""));
  const GrammarBuilder::Rule root = builder.add_rule("schema");
  builder.define(root, body);
  return root;
}

}  // namespace aerie
