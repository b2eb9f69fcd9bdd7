// The functions that a request offers, and whether one has to be called.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "chat/dialect.h"
#include "server/models/api_state.h"
#include "server/openai/fields/field_reader.h"
#include "server/openai/fields/grammar_fields.h"

namespace aerie::server {

enum class ToolChoice : uint8_t {
  kNone,
  kAuto,      // the model decides
  kRequired,  // it must call one of the functions
};

struct ToolRequest {
  ToolChoice choice = ToolChoice::kNone;
  std::shared_ptr<const Json> tools = {};      // as templates want them; null: there are none
  std::shared_ptr<const Json> functions = {};  // what they are: name, parameters, strict
  std::string only = {};                       // of kRequired: the one that must be called
  bool parallel = true;                        // more than one call may be made
};

// "tools", "tool_choice" and "parallel_tool_calls" of chat completions. An error is left in
// `request`; 400 too where the model's template has no place for tools.
ToolRequest read_tools(FieldReader& request, const ApiState& state);

// `grammar`, of the content if there is one, becomes one of the whole reply: reasoning before it is
// free, and calls are held to the functions' schemas where one has to be called or a function is
// strict. Whether calls are to be looked for: content that has a form is none. Errors are left in
// `request`.
bool add_form(FieldReader& request, const ApiState& state, const ToolRequest& tools,
              chat::ReasoningStart start, std::optional<NamedGrammar>& grammar);

}  // namespace aerie::server
