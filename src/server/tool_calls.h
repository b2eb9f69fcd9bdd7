// Tools: what a request offers, and the calls in a reply.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/grammar.h"
#include "server/field_reader.h"

namespace aerie::server {

enum class ToolChoice : uint8_t {
  kNone,
  kAuto,      // the model decides
  kRequired,  // it must call one of the tools
};

struct ToolRequest {
  ToolChoice choice = ToolChoice::kNone;
  const Json* tools = nullptr;      // as the request has them; null: none
  std::vector<const Json*> forced;  // of kRequired: the functions that may be called
  bool parallel = true;             // more than one call may be made
};

// "tools", "tool_choice" and "parallel_tool_calls". An error is left in `request`.
ToolRequest read_tools(FieldReader& request);

// {"name": ..., "arguments": ...} for one of the functions. kInvalidArgument if their schemas
// contradict each other's definitions.
Expected<GrammarSpec> tool_grammar(const std::vector<const Json*>& functions);

struct ToolCall {
  std::string name;
  std::string arguments;  // JSON
};

// Finds calls in a reply while it arrives: <tool_call>{...}</tool_call> (Hermes, Qwen), or a reply
// that is nothing but JSON objects with name and arguments or parameters (Llama 3, and what
// tool_grammar() forces). What is no call is text.
class ToolCallParser {
 public:
  // Takes new text; appends what is certain to be text.
  void push(std::string_view text, std::string& out, std::vector<ToolCall>& calls);
  // The end of the reply.
  void finish(std::string& out, std::vector<ToolCall>& calls);

 private:
  enum class State : uint8_t { kStart, kText, kTagged, kJson };

  State state_ = State::kStart;
  bool after_call_ = false;  // nothing has been said since
  std::string held_;         // not decided yet
};

}  // namespace aerie::server
