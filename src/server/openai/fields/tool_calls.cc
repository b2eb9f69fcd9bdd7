#include "server/openai/fields/tool_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "server/openai/fields/json_text.h"

namespace aerie::server {
namespace {

constexpr std::string_view kOpen = "<tool_call>";
constexpr std::string_view kClose = "</tool_call>";
constexpr std::string_view kPython = "<|python_tag|>";
constexpr std::string_view kSpace = " \t\r\n";

const Json* function_of(FieldReader& request, const Json& tool, const std::string& name) {
  FieldReader reader(tool, request.error(), name);
  if (reader.string("type", "") != "function") {
    reader.refuse("type", "must be \"function\": there are no other tools");
  }
  const Json* function = reader.object("function");
  if (function == nullptr) {
    reader.refuse("function", "is missing");
    return nullptr;
  }
  FieldReader inner(*function, request.error(), reader.name_of("function"));
  if (inner.string("name", "").empty()) inner.refuse("name", "is missing");
  inner.object("parameters");
  return function;
}

void read_choice(FieldReader& request, const Json& choice,
                 const std::vector<const Json*>& functions, ToolRequest& out) {
  if (choice.is_string()) {
    const std::string& name = choice.get_ref<const std::string&>();
    if (name == "none") {
      out.choice = ToolChoice::kNone;
    } else if (name == "required") {
      out.choice = ToolChoice::kRequired;
      out.forced = functions;
    } else if (name != "auto") {
      request.refuse("tool_choice", "must be none, auto, required or a function");
    }
    return;
  }
  FieldReader reader(choice, request.error(), "tool_choice");
  const Json* function = reader.object("function");
  FieldReader inner(function != nullptr ? *function : choice, request.error(),
                    "tool_choice.function");
  const std::string name = inner.string("name", "");
  if (request.failed()) return;
  out.choice = ToolChoice::kRequired;
  for (const Json* one : functions) {
    if ((*one)["name"] == name) out.forced = {one};
  }
  if (out.forced.empty()) inner.refuse("name", "is the name of no tool");
}

std::optional<ToolCall> call_of(const Json& value, const ToolNames& tools) {
  if (!value.is_object()) return std::nullopt;
  const auto name = value.find("name");
  if (name == value.end() || !name->is_string()) return std::nullopt;
  ToolCall call;
  call.name = name->get<std::string>();
  if (!tools.contains(call.name)) return std::nullopt;
  call.arguments = "{}";
  for (const char* key : {"arguments", "parameters"}) {
    const auto arguments = value.find(key);
    if (arguments == value.end()) continue;
    if (arguments->is_string()) {
      call.arguments = arguments->get<std::string>();
    } else {
      call.arguments = json_text(*arguments);
    }
    return call;
  }
  return std::nullopt;
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::optional<ToolCall> parse_call(std::string_view text, const ToolNames& tools) {
  const auto value = parse_json(trimmed(text), "call");
  return value.ok() ? call_of(*value, tools) : std::nullopt;
}

// One object, an array of them, or several with semicolons between them.
bool parse_calls(std::string_view text, const ToolNames& tools, std::vector<ToolCall>& calls) {
  text = trimmed(text);
  if (text.starts_with(kPython)) text = trimmed(text.substr(kPython.size()));
  std::vector<ToolCall> found;
  if (text.starts_with('[')) {
    const auto list = parse_json(text, "calls");
    if (!list.ok()) return false;
    for (const Json& one : *list) {
      auto call = call_of(one, tools);
      if (!call) return false;
      found.push_back(std::move(*call));
    }
  } else if (auto call = parse_call(text, tools)) {
    found.push_back(std::move(*call));
  } else {
    for (size_t from = 0; from <= text.size();) {
      size_t end = text.find(';', from);
      // A semicolon may be part of a string: then more belongs to the object. Each try reads the
      // object from its beginning.
      constexpr int kMostTries = 64;
      int tries = 0;
      for (; end != std::string_view::npos; end = text.find(';', end + 1)) {
        const std::string_view part = trimmed(text.substr(from, end - from));
        if (!part.ends_with('}')) continue;
        if (++tries > kMostTries) return false;
        if (parse_call(part, tools)) break;
      }
      auto part = parse_call(text.substr(from, end - from), tools);
      if (!part) return false;
      found.push_back(std::move(*part));
      if (end == std::string_view::npos) break;
      from = end + 1;
    }
  }
  if (found.empty()) return false;
  calls.insert(calls.end(), found.begin(), found.end());
  return true;
}

// The length of the longest end of `text` that `word` begins with.
size_t held_length(std::string_view text, std::string_view word) {
  for (size_t n = std::min(text.size(), word.size() - 1); n > 0; --n) {
    if (text.ends_with(word.substr(0, n))) return n;
  }
  return 0;
}

}  // namespace

ToolRequest read_tools(FieldReader& request) {
  ToolRequest out;
  out.parallel = request.boolean("parallel_tool_calls", true);
  const Json* tools = request.array("tools");
  const Json* choice = request.find("tool_choice");
  if (tools == nullptr || tools->empty()) {
    if (choice != nullptr && *choice != "none" && *choice != "auto") {
      request.refuse("tool_choice", "there are no tools to choose from");
    }
    return out;
  }
  std::vector<const Json*> functions;
  for (size_t i = 0; i < tools->size() && !request.failed(); ++i) {
    functions.push_back(function_of(request, (*tools)[i], fmt::format("tools[{}]", i)));
  }
  if (request.failed()) return out;
  for (const Json* function : functions) out.names.insert((*function)["name"]);
  out.tools = tools;
  out.choice = ToolChoice::kAuto;
  if (choice != nullptr) read_choice(request, *choice, functions, out);
  return out;
}

namespace {

// The first reference to something that tool_grammar() does not move; empty: none.
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

}  // namespace

Expected<GrammarSpec> tool_grammar(const std::vector<const Json*>& functions) {
  Json options = Json::array();
  Json definitions = Json::object();
  for (const Json* function : functions) {
    Json parameters = function->value("parameters", Json{{"type", "object"}});
    if (parameters.is_null()) parameters = {{"type", "object"}};
    if (const std::string lost = lost_reference(parameters); !lost.empty()) {
      return invalid_argument(
          "a tool's parameters refer to {}: only #/$defs/ and #/definitions/ can be referred to",
          lost);
    }
    // References start at the whole schema's root.
    for (const char* key : {"$defs", "definitions"}) {
      const auto it = parameters.find(key);
      if (it == parameters.end() || !it->is_object()) continue;
      for (const auto& [name, definition] : it->items()) {
        Json& kept = definitions[key][name];
        if (!kept.is_null() && kept != definition) {
          return invalid_argument("two tools define {} in different ways", name);
        }
        kept = definition;
      }
      parameters.erase(key);
    }
    options.push_back(
        {{"type", "object"},
         {"properties", {{"name", {{"const", (*function)["name"]}}}, {"arguments", parameters}}},
         {"required", {"name", "arguments"}},
         {"additionalProperties", false}});
  }
  Json schema = options.size() == 1 ? options.front() : Json{{"anyOf", options}};
  for (const auto& [key, value] : definitions.items()) schema[key] = value;
  GrammarSpec spec;
  spec.kind = GrammarKind::kJsonSchema;
  spec.text = json_text(schema);
  return spec;
}

void ToolCallParser::push(std::string_view text, std::string& out, std::vector<ToolCall>& calls) {
  held_ += text;
  if (state_ == State::kStart) {
    const std::string_view start = trimmed(held_);
    if (start.empty() || (start.size() < kPython.size() && kPython.starts_with(start))) return;
    const bool is_json = start.front() == '{' || start.front() == '[' || start.starts_with(kPython);
    state_ = is_json ? State::kJson : State::kText;
  }
  while (state_ == State::kText || state_ == State::kTagged) {
    if (state_ == State::kText) {
      // Line ends between calls are no text.
      if (after_call_) held_.erase(0, std::min(held_.find_first_not_of(kSpace), held_.size()));
      if (held_.empty()) return;
      const size_t open = held_.find(kOpen);
      if (open == std::string::npos) {
        const size_t keep = held_length(held_, kOpen);
        after_call_ = after_call_ && keep == held_.size();
        out.append(held_, 0, held_.size() - keep);
        held_.erase(0, held_.size() - keep);
        return;
      }
      if (open > 0) after_call_ = false;
      out.append(held_, 0, open);
      held_.erase(0, open + kOpen.size());
      state_ = State::kTagged;
    }
    const size_t close = held_.find(kClose);
    if (close == std::string::npos) return;
    const std::string inner = held_.substr(0, close);
    if (auto call = parse_call(inner, tools_)) {
      calls.push_back(std::move(*call));
      after_call_ = true;
    } else {
      out.append(kOpen).append(inner).append(kClose);
    }
    held_.erase(0, close + kClose.size());
    state_ = State::kText;
  }
}

void ToolCallParser::finish(std::string& out, std::vector<ToolCall>& calls) {
  bool is_call = false;
  if (state_ == State::kJson) {
    is_call = parse_calls(held_, tools_, calls);
  } else if (state_ == State::kTagged) {
    // Some models end their turn in the place of the closing tag.
    is_call = parse_calls(held_, tools_, calls);
    if (!is_call) out.append(kOpen);
  }
  if (!is_call) out.append(held_);
  held_.clear();
}

}  // namespace aerie::server
