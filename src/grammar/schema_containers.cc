// Arrays and objects of JSON schemas.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "grammar/schema_compiler.h"
#include "grammar/text_cursor.h"

namespace aerie {
namespace {

using Expr = GrammarBuilder::Expr;
constexpr size_t kMaxName = 500;  // bytes

Expected<int> count_of(const SchemaAt& at, const char* keyword, int fallback) {
  if (!at.schema.contains(keyword)) return fallback;
  const Json& value = at.schema[keyword];
  if (!has_type(value, "integer") || value.get<double>() < 0) {
    return invalid_keyword(at.pointer, keyword, "is not a whole number of 0 or more");
  }
  return static_cast<int>(std::min(value.get<double>(), 1e9));
}

struct Member {
  std::string name;
  Expr value = 0;
  bool required = false;
};

// Names by their characters.
struct NameNode {
  std::map<char32_t, NameNode> next;
  bool is_name = false;
};

// The rest of every string that is no name, up to the closing quote.
Expr names_beside(const NameNode& node, GrammarBuilder& builder, JsonGrammar& json, Expr any) {
  std::vector<CodePointRange> edges;
  std::vector<Expr> branches;
  for (const auto& [c, next] : node.next) {
    edges.push_back({c, c});
    branches.push_back(
        builder.sequence({json.plain_character({{c, c}}), names_beside(next, builder, json, any)}));
  }
  branches.push_back(builder.sequence({json.plain_character(complement(normalized(edges))), any}));
  if (!node.is_name) branches.push_back(builder.literal("\""));
  return builder.shared("", builder.any_of(std::move(branches)));
}

Status refuse(const SchemaAt& at, std::initializer_list<const char*> keywords) {
  for (const char* keyword : keywords) {
    if (at.schema.contains(keyword)) return unsupported_keyword(at.pointer, keyword, "");
  }
  return Status();
}

}  // namespace

Expected<Expr> SchemaCompiler::array(const SchemaAt& at) {
  AERIE_RETURN_IF_ERROR(refuse(at, {"contains", "unevaluatedItems"}));
  AERIE_ASSIGN_OR_RETURN(const int least, count_of(at, "minItems", 0));
  AERIE_ASSIGN_OR_RETURN(const int most, count_of(at, "maxItems", GrammarBuilder::kUnbounded));
  const bool bounded = most != GrammarBuilder::kUnbounded;
  if (at.schema.contains("uniqueItems") && at.schema["uniqueItems"] != Json(false) &&
      !(bounded && most <= 1)) {
    return unsupported_keyword(at.pointer, "uniqueItems", "");
  }
  const Json everything(true);
  std::string first_key = "prefixItems";
  const Json* rest = at.schema.contains("items") ? &at.schema["items"] : &everything;
  std::string rest_key = "items";
  if (rest->is_array()) {  // draft 7
    first_key = "items";
    rest_key = "additionalItems";
    rest = at.schema.contains(rest_key) ? &at.schema[rest_key] : &everything;
  }
  if (bounded && most < least) return builder_.never();
  std::vector<Expr> first;
  if (at.schema.contains(first_key)) {
    const Json& list = at.schema[first_key];
    if (!list.is_array()) return invalid_keyword(at.pointer, first_key, "is not an array");
    for (size_t i = 0; i < list.size() && (!bounded || i < static_cast<size_t>(most)); ++i) {
      AERIE_ASSIGN_OR_RETURN(const Expr item,
                             compile(list[i], fmt::format("{}/{}/{}", at.pointer, first_key, i)));
      first.push_back(item);
    }
  }
  AERIE_ASSIGN_OR_RETURN(const Expr item, compile(*rest, at.pointer + "/" + rest_key));
  const int count = static_cast<int>(first.size());
  const int more_most = bounded ? most - count : GrammarBuilder::kUnbounded;
  if (count == 0) {
    if (more_most == 0) return json_.make_array(builder_.empty());
    const Expr more = builder_.repeat(builder_.sequence({json_.comma(), item}),
                                      std::max(0, least - 1), bounded ? most - 1 : more_most);
    const Expr items = builder_.sequence({item, more});
    return json_.make_array(least == 0 ? builder_.optional(items) : items);
  }
  Expr tail = builder_.repeat(builder_.sequence({json_.comma(), item}), std::max(0, least - count),
                              more_most);
  for (int i = count - 1; i >= 0; --i) {
    tail = builder_.sequence(
        {i > 0 ? json_.comma() : builder_.empty(), first[static_cast<size_t>(i)], tail});
    tail = builder_.shared("", i >= least ? builder_.optional(tail) : tail);
  }
  return json_.make_array(tail);
}

Expr SchemaCompiler::other_names(const std::vector<std::string>& names) {
  if (names.empty()) return json_.string();
  NameNode root;
  for (const std::string& name : names) {
    NameNode* node = &root;
    TextCursor in{name};
    while (!in.done()) node = &node->next[take_character(in)];
    node->is_name = true;
  }
  const Expr any =
      builder_.shared("", builder_.sequence({builder_.repeat(json_.plain_character({{0, 0x10FFFF}}),
                                                             0, GrammarBuilder::kUnbounded),
                                             builder_.literal("\"")}));
  return builder_.sequence({builder_.literal("\""), names_beside(root, builder_, json_, any)});
}

// Members in the order of the schema, then additional ones. Of additional members with the same
// name readers keep the last, whose value matched the same schema.
Expected<Expr> SchemaCompiler::object(const SchemaAt& at) {
  AERIE_RETURN_IF_ERROR(
      refuse(at, {"patternProperties", "propertyNames", "dependencies", "dependentRequired",
                  "dependentSchemas", "unevaluatedProperties", "minProperties", "maxProperties"}));
  const Json everything(true);
  const Json& others =
      at.schema.contains("additionalProperties") ? at.schema["additionalProperties"] : everything;
  AERIE_ASSIGN_OR_RETURN(const Expr other, compile(others, at.pointer + "/additionalProperties"));
  std::vector<Member> members;
  std::set<std::string> required;
  if (at.schema.contains("required")) {
    const Json& names = at.schema["required"];
    if (!names.is_array()) return invalid_keyword(at.pointer, "required", "is not an array");
    for (const Json& name : names) {
      if (!name.is_string()) return invalid_keyword(at.pointer, "required", "holds no string");
      required.insert(name.get<std::string>());
    }
  }
  if (at.schema.contains("properties")) {
    const Json& properties = at.schema["properties"];
    if (!properties.is_object()) {
      return invalid_keyword(at.pointer, "properties", "is not an object");
    }
    for (const auto& [name, schema] : properties.items()) {
      AERIE_ASSIGN_OR_RETURN(const Expr value,
                             compile(schema, at.pointer + "/properties/" + pointer_token(name)));
      members.push_back({name, value, required.erase(name) > 0});
    }
  }
  for (const std::string& name : required) members.push_back({name, other, true});
  std::vector<std::string> names;
  for (const Member& member : members) {
    if (member.name.size() > kMaxName) {
      return Status(StatusCode::kResourceExhausted,
                    fmt::format("JSON schema, {}/properties: a name of more than {} bytes",
                                at.pointer, kMaxName));
    }
    names.push_back(member.name);
  }
  // What may follow, if nothing has been written and if something has.
  Expr empty_so_far = builder_.empty();
  Expr after_some = builder_.empty();
  if (others != Json(false)) {
    const Expr more = builder_.sequence({other_names(names), json_.colon(), other});
    after_some =
        builder_.repeat(builder_.sequence({json_.comma(), more}), 0, GrammarBuilder::kUnbounded);
    after_some = builder_.shared("", after_some);
    empty_so_far = builder_.optional(builder_.sequence({more, after_some}));
  }
  for (size_t i = members.size(); i-- > 0;) {
    const Member& member = members[i];
    const Expr text =
        builder_.sequence({json_.plain_string(member.name), json_.colon(), member.value});
    const Expr first = builder_.sequence({text, after_some});
    const Expr next = builder_.sequence({json_.comma(), text, after_some});
    empty_so_far =
        builder_.shared("", member.required ? first : builder_.any_of({first, empty_so_far}));
    after_some = builder_.shared("", member.required ? next : builder_.any_of({next, after_some}));
  }
  return json_.make_object(empty_so_far);
}

}  // namespace aerie
