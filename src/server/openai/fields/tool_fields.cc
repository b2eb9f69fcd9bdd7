#include "server/openai/fields/tool_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "chat/reply_grammar.h"

namespace aerie::server {
namespace {

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
  inner.boolean("strict", false);
  return function;
}

void read_choice(FieldReader& request, const Json& choice, ToolRequest& out) {
  if (choice.is_string()) {
    const std::string& name = choice.get_ref<const std::string&>();
    if (name == "none") {
      out.choice = ToolChoice::kNone;
    } else if (name == "required") {
      out.choice = ToolChoice::kRequired;
    } else if (name != "auto") {
      request.refuse("tool_choice", "must be none, auto, required or a function");
    }
    return;
  }
  FieldReader reader(choice, request.error(), "tool_choice");
  const Json* function = reader.object("function");
  FieldReader inner(function != nullptr ? *function : choice, request.error(),
                    "tool_choice.function");
  out.only = inner.string("name", "");
  if (request.failed()) return;
  out.choice = ToolChoice::kRequired;
  const bool is_known =
      std::ranges::any_of(*out.functions, [&](const Json& one) { return one["name"] == out.only; });
  if (!is_known) inner.refuse("name", "is the name of no tool");
}

void check_template(FieldReader& request, const ApiState& state, const ToolRequest& tools) {
  if (tools.choice == ToolChoice::kNone || request.failed()) return;
  const auto& chat = state.service.chat_template();
  if (chat.ok() && chat->mentions("tools")) return;
  request.refuse("tools", "this model's chat template has no place for tools");
}

// Of the calls: where one has to be made, or a function is strict.
std::optional<NamedGrammar> tool_grammar(FieldReader& request, const ApiState& state,
                                         chat::ReasoningStart start, const ToolRequest& tools) {
  if (tools.choice == ToolChoice::kNone || request.failed()) return std::nullopt;
  std::vector<chat::CallableTool> callable;
  bool any_strict = false;
  for (const Json& function : *tools.functions) {
    if (!tools.only.empty() && function["name"] != tools.only) continue;
    const auto parameters = function.find("parameters");
    const auto strict = function.find("strict");
    callable.push_back({{function["name"], parameters == function.end() ? nullptr : &*parameters},
                        strict != function.end() && *strict == true});
    any_strict = any_strict || callable.back().strict;
  }
  const bool several = tools.parallel && tools.only.empty();
  if (tools.choice == ToolChoice::kAuto && !any_strict) return std::nullopt;
  const auto grammar =
      tools.choice == ToolChoice::kAuto
          ? chat::reply_with_optional_calls(state.dialect, start, callable, several)
          : chat::reply_with_calls(state.dialect, start, callable, several);
  if (grammar.ok()) return NamedGrammar{*grammar, "tools"};
  request.refuse("tools", grammar.status().message());
  return std::nullopt;
}

}  // namespace

ToolRequest read_tools(FieldReader& request, const ApiState& state) {
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
  Json functions = Json::array();
  for (size_t i = 0; i < tools->size() && !request.failed(); ++i) {
    const Json* function = function_of(request, (*tools)[i], fmt::format("tools[{}]", i));
    if (function != nullptr) functions.push_back(*function);
  }
  if (request.failed()) return out;
  out.tools = std::make_shared<const Json>(*tools);
  out.functions = std::make_shared<const Json>(std::move(functions));
  out.choice = ToolChoice::kAuto;
  if (choice != nullptr) read_choice(request, *choice, out);
  check_template(request, state, out);
  return out;
}

bool add_form(FieldReader& request, const ApiState& state, const ToolRequest& tools,
              chat::ReasoningStart start, std::optional<NamedGrammar>& grammar) {
  if (!grammar) {
    grammar = tool_grammar(request, state, start, tools);
    return tools.choice != ToolChoice::kNone;
  }
  if (tools.choice == ToolChoice::kRequired) {
    request.refuse("tool_choice", "constrains the output, and so does another field: give one");
  }
  grammar->spec = chat::reply_with_content(state.dialect, start, std::move(grammar->spec));
  return false;
}

}  // namespace aerie::server
