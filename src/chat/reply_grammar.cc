#include "chat/reply_grammar.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/errors.h"
#include "chat/call_reader.h"
#include "chat/harmony.h"

namespace aerie::chat {
namespace {

using Specs = std::vector<GrammarSpec>;

GrammarSpec of_parts(GrammarKind kind, Specs parts) {
  GrammarSpec spec;
  spec.kind = kind;
  spec.parts = std::move(parts);
  return spec;
}
GrammarSpec sequence(Specs parts) {
  return of_parts(GrammarKind::kSequence, std::move(parts));
}
GrammarSpec one_of(Specs parts) {
  return of_parts(GrammarKind::kAlternatives, std::move(parts));
}
GrammarSpec repeated(Specs parts) {
  return of_parts(GrammarKind::kRepeat, std::move(parts));
}
GrammarSpec with_text(GrammarKind kind, std::string_view text) {
  GrammarSpec spec;
  spec.kind = kind;
  spec.text = text;
  return spec;
}
GrammarSpec text(std::string_view text) {
  return with_text(GrammarKind::kText, text);
}
GrammarSpec marker(std::string_view name) {
  return with_text(GrammarKind::kMarker, name);
}
GrammarSpec optional(GrammarSpec part) {
  return one_of({text(""), std::move(part)});
}
GrammarSpec until(std::vector<std::string> stops) {
  GrammarSpec spec;
  spec.kind = GrammarKind::kFreeText;
  spec.choices = std::move(stops);
  return spec;
}
// What a request's schemas may come to, all together: they are written out for each call.
class Room {
 public:
  Status take(size_t bytes) {
    constexpr size_t kMostBytes = size_t{4} << 20;
    bytes_ += bytes;
    if (bytes_ <= kMostBytes) return {};
    return resource_exhausted("the schemas of all functions come to more than {} MiB",
                              kMostBytes >> 20);
  }
  Status take_argument() {
    constexpr int kMostArguments = 1000;
    if (++arguments_ <= kMostArguments) return {};
    return resource_exhausted("the functions have more than {} arguments", kMostArguments);
  }

 private:
  size_t bytes_ = 0;
  int arguments_ = 0;
};

Expected<GrammarSpec> schema_of(const Json& schema, Room& room) {
  std::string text = schema.dump();
  AERIE_RETURN_IF_ERROR(room.take(text.size()));
  return with_text(GrammarKind::kJsonSchema, text);
}

// A message that is not the last, and the beginning of the next.
GrammarSpec harmony_message(std::string_view channel) {
  return sequence({marker(harmony::kChannel), text(channel), marker(harmony::kMessage), until({}),
                   marker(harmony::kEnd), marker(harmony::kStart), text("assistant")});
}

// What may come before the content.
GrammarSpec reasoning_before(const Dialect& dialect, ReasoningStart start) {
  if (dialect.harmony) return repeated({harmony_message(harmony::kAnalysis)});
  if (start == ReasoningStart::kNever || dialect.reasoning.close.empty()) return text("");
  const Tags& tags = dialect.reasoning;
  const GrammarSpec rest = sequence(
      {until({tags.close}), marker(tags.close), one_of({text(""), text("\n"), text("\n\n")})});
  if (start == ReasoningStart::kOpen) return rest;
  return optional(sequence({marker(tags.open), rest}));
}

Json parameters_of(const Tool& tool) {
  const bool has_any = tool.parameters != nullptr && tool.parameters->is_object();
  return has_any ? *tool.parameters : Json{{"type", "object"}};
}

// The first reference to something that object_of_call() does not move; empty: none.
std::string lost_reference(const Json& schema) {
  if (schema.is_object()) {
    const auto it = schema.find("$ref");
    if (it != schema.end() && it->is_string()) {
      const auto& ref = it->get_ref<const std::string&>();
      if (!ref.starts_with("#/$defs/") && !ref.starts_with("#/definitions/")) return ref;
    }
  }
  if (!schema.is_structured()) return "";
  for (const Json& inner : schema) {
    if (std::string lost = lost_reference(inner); !lost.empty()) return lost;
  }
  return "";
}

// {"name": ..., "arguments": ...}, a document of its own: what the parameters define moves to its
// root, where references start.
Expected<GrammarSpec> object_of_call(const Tool& tool, const std::string& arguments, Room& room) {
  Json parameters = parameters_of(tool);
  if (const std::string lost = lost_reference(parameters); !lost.empty()) {
    return invalid_argument(
        "the parameters of '{}' refer to {}: only #/$defs/ and #/definitions/ can be referred to",
        tool.name, lost);
  }
  Json schema = {{"type", "object"}, {"properties", {{"name", {{"const", tool.name}}}}}};
  for (const char* key : {"$defs", "definitions"}) {
    const auto it = parameters.find(key);
    if (it == parameters.end()) continue;
    schema[key] = std::move(*it);
    parameters.erase(key);
  }
  schema["properties"][arguments] = std::move(parameters);
  schema["required"] = {"name", arguments};
  schema["additionalProperties"] = false;
  return schema_of(schema, room);
}

// Keywords that say something of a text which stands there as it is.
std::string text_rule(const Json& schema) {
  for (const char* key : {"pattern", "format", "minLength", "maxLength", "anyOf", "allOf", "oneOf",
                          "not", "$ref", "if"}) {
    if (schema.contains(key)) return key;
  }
  return "";
}

// What stands around the name and the value of an argument.
struct ArgumentTags {
  std::string before_name;
  std::string before_value;
  std::string space;  // before the closing tag
  std::string close;
  std::string behind;
};

bool has_reference(const Json& schema) {
  if (schema.is_object() && schema.contains("$ref")) return true;
  return schema.is_structured() && std::any_of(schema.begin(), schema.end(),
                                               [](const Json& one) { return has_reference(one); });
}

// The texts that an argument may be; none: any.
std::vector<std::string> listed_texts(const Json& property) {
  std::vector<std::string> out;
  const auto only = property.find("const");
  if (only != property.end() && only->is_string()) out.push_back(*only);
  const auto listed = property.find("enum");
  if (listed == property.end() || !listed->is_array()) return out;
  for (const Json& value : *listed) {
    if (value.is_string()) out.push_back(value);
  }
  return out;
}

// An argument that is written as JSON, with what its schema refers to.
Expected<GrammarSpec> json_argument(const Json& parameters, const Json& property, Room& room) {
  if (!property.is_object() || !has_reference(property)) return schema_of(property, room);
  Json schema = property;
  for (const char* key : {"$defs", "definitions"}) {
    if (parameters.contains(key)) schema[key] = parameters[key];
  }
  return schema_of(schema, room);
}

// The value of an argument, up to and with its closing tag.
Expected<GrammarSpec> tagged_value(const CallableTool& one, const Json& parameters,
                                   const std::string& name, const Json& property,
                                   const ArgumentTags& tags, Room& room) {
  const GrammarSpec end = text(tags.space + tags.close + tags.behind);
  if (!is_text(property)) {
    AERIE_ASSIGN_OR_RETURN(GrammarSpec value, json_argument(parameters, property, room));
    return sequence({std::move(value), end});
  }
  if (const std::string rule = text_rule(property); one.strict && !rule.empty()) {
    return not_supported(
        "the argument '{}' of '{}' has {}, which cannot be enforced in the form in which this "
        "model "
        "writes texts",
        name, one.tool.name, rule);
  }
  GrammarSpec choice;
  choice.kind = GrammarKind::kChoice;
  choice.choices = listed_texts(property);
  for (const std::string& value : choice.choices) AERIE_RETURN_IF_ERROR(room.take(value.size()));
  // The space before the tag is the model's.
  if (choice.choices.empty())
    return sequence({until({tags.close}), text(tags.close + tags.behind)});
  return sequence({std::move(choice), end});
}

Expected<GrammarSpec> tagged_arguments(const CallableTool& one, const ArgumentTags& tags,
                                       Room& room) {
  const Json parameters = parameters_of(one.tool);
  const auto properties = parameters.find("properties");
  Specs parts;
  if (properties == parameters.end() || !properties->is_object()) return sequence({});
  std::set<std::string> required;
  if (const auto it = parameters.find("required"); it != parameters.end() && it->is_array()) {
    for (const Json& name : *it) {
      if (name.is_string()) required.insert(name);
    }
  }
  for (const auto& [name, property] : properties->items()) {
    AERIE_RETURN_IF_ERROR(room.take_argument());
    AERIE_ASSIGN_OR_RETURN(GrammarSpec value,
                           tagged_value(one, parameters, name, property, tags, room));
    GrammarSpec part =
        sequence({text(tags.before_name + name + tags.before_value), std::move(value)});
    parts.push_back(required.contains(name) ? std::move(part) : optional(std::move(part)));
  }
  return sequence(std::move(parts));
}

// What stands between the tags of a call.
Expected<GrammarSpec> call_of(const Dialect& dialect, const CallableTool& one, Room& room) {
  const CallSyntax& calls = dialect.calls;
  const Tool& tool = one.tool;
  if (dialect.harmony) {
    AERIE_ASSIGN_OR_RETURN(GrammarSpec arguments, schema_of(parameters_of(tool), room));
    const std::string recipient = " to=functions." + tool.name;
    const GrammarSpec channel = sequence({marker(harmony::kChannel), text(harmony::kCommentary)});
    return sequence(
        {one_of({sequence({text(recipient), channel}), sequence({channel, text(recipient)})}),
         text(" "), optional(marker(harmony::kConstrain)), text("json"), marker(harmony::kMessage),
         std::move(arguments)});
  }
  switch (calls.body) {
    case CallBody::kNamed: {
      AERIE_ASSIGN_OR_RETURN(GrammarSpec arguments, schema_of(parameters_of(tool), room));
      if (!calls.has_fence) {
        return sequence({text(tool.name), marker(calls.separator), std::move(arguments)});
      }
      return sequence({text("function"), marker(calls.separator), text(tool.name + "\n```json\n"),
                       std::move(arguments), text("\n```")});
    }
    case CallBody::kParameters: {
      AERIE_ASSIGN_OR_RETURN(
          GrammarSpec arguments,
          tagged_arguments(one, {"<parameter=", ">\n", "\n", "</parameter>", "\n"}, room));
      return sequence(
          {text("<function=" + tool.name + ">\n"), std::move(arguments), text("</function>")});
    }
    case CallBody::kKeyValues: {
      AERIE_ASSIGN_OR_RETURN(
          GrammarSpec arguments,
          tagged_arguments(one, {"<arg_key>", "</arg_key>\n<arg_value>", "", "</arg_value>", "\n"},
                           room));
      return sequence({text(tool.name + "\n"), std::move(arguments)});
    }
    case CallBody::kJson:
    case CallBody::kJsonList:
      return object_of_call(tool, calls.arguments, room);
    case CallBody::kNone:
      break;
  }
  return object_of_call(tool, "arguments", room);
}

// One call with its tags.
GrammarSpec tagged(const CallSyntax& calls, GrammarSpec call) {
  if (calls.call.open.empty()) return call;
  const bool has_space = calls.body == CallBody::kJson || calls.body == CallBody::kParameters;
  const GrammarSpec space = text(has_space ? calls.space : "");
  Specs parts{marker(calls.call.open), space, std::move(call)};
  if (!calls.call.close.empty()) {
    parts.push_back(space);
    parts.push_back(marker(calls.call.close));
  }
  return sequence(std::move(parts));
}

// One call, or one and more.
GrammarSpec all_calls(const CallSyntax& calls, const GrammarSpec& call, bool several) {
  if (calls.body == CallBody::kJsonList) {
    Specs list{marker(calls.call.open), text("["), call};
    if (several) list.push_back(repeated({text(", "), call}));
    list.push_back(text("]"));
    return sequence(std::move(list));
  }
  const GrammarSpec one = tagged(calls, call);
  Specs parts{one};
  if (several) {
    const std::string between = calls.call.open.empty() ? "; " : calls.space;
    parts.push_back(repeated({text(between), one}));
  }
  if (!calls.section.open.empty()) {
    parts.insert(parts.begin(), marker(calls.section.open));
    parts.push_back(marker(calls.section.close));
  }
  return sequence(std::move(parts));
}

Expected<GrammarSpec> any_call(const Dialect& dialect, const std::vector<CallableTool>& tools) {
  Specs calls;
  Room room;
  for (const CallableTool& one : tools) {
    AERIE_ASSIGN_OR_RETURN(GrammarSpec call, call_of(dialect, one, room));
    calls.push_back(std::move(call));
  }
  return one_of(std::move(calls));
}

}  // namespace

GrammarSpec reply_with_content(const Dialect& dialect, ReasoningStart start, GrammarSpec content) {
  if (!dialect.harmony) {
    if (start == ReasoningStart::kNever) return content;
    return sequence({reasoning_before(dialect, start), std::move(content)});
  }
  return sequence({reasoning_before(dialect, start), marker(harmony::kChannel),
                   text(harmony::kFinal),
                   optional(sequence({text(" "), marker(harmony::kConstrain), text("json")})),
                   marker(harmony::kMessage), std::move(content)});
}

Expected<GrammarSpec> reply_with_calls(const Dialect& dialect, ReasoningStart start,
                                       const std::vector<CallableTool>& tools, bool several) {
  AERIE_ASSIGN_OR_RETURN(GrammarSpec call, any_call(dialect, tools));
  // Of harmony a call ends the reply: <|call|> is an end token.
  if (!dialect.harmony) call = all_calls(dialect.calls, call, several);
  return sequence({reasoning_before(dialect, start), std::move(call)});
}

Expected<GrammarSpec> reply_with_optional_calls(const Dialect& dialect, ReasoningStart start,
                                                const std::vector<CallableTool>& tools,
                                                bool several) {
  AERIE_ASSIGN_OR_RETURN(GrammarSpec call, any_call(dialect, tools));
  if (dialect.harmony) {
    const GrammarSpec final_message = sequence(
        {marker(harmony::kChannel), text(harmony::kFinal), marker(harmony::kMessage), until({})});
    return sequence({repeated({one_of({harmony_message(harmony::kAnalysis),
                                       harmony_message(harmony::kCommentary)})}),
                     one_of({std::move(call), final_message})});
  }
  const CallSyntax& calls = dialect.calls;
  GrammarSpec said = until({});
  GrammarSpec called = all_calls(calls, call, several);
  const std::string& opening = calls.section.open.empty() ? calls.call.open : calls.section.open;
  if (opening.empty()) {
    // What begins like a call is one.
    said = one_of({text(""), with_text(GrammarKind::kRegex, R"((\s*[^\s{\[][\s\S]*)?\s*)")});
    return sequence({reasoning_before(dialect, start), one_of({said, std::move(called)})});
  }
  said = until({opening});
  return sequence(
      {reasoning_before(dialect, start), said, optional(sequence({std::move(called), said}))});
}

Tags reasoning_marks(const Dialect& dialect) {
  if (dialect.harmony)
    return {std::string(harmony::kChannel).append(harmony::kAnalysis).append(harmony::kMessage),
            std::string(harmony::kEnd)};
  return dialect.reasoning;
}

}  // namespace aerie::chat
