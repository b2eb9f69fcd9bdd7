// Tools: what a request offers, and the calls in a reply.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/grammar.h"
#include "server/openai/fields/field_reader.h"

namespace aerie::server {

enum class ToolChoice : uint8_t {
  kNone,
  kAuto,      // the model decides
  kRequired,  // it must call one of the tools
};

using ToolNames = std::set<std::string, std::less<>>;

struct ToolRequest {
  ToolChoice choice = ToolChoice::kNone;
  const Json* tools = nullptr;      // as the request has them; null: none
  std::vector<const Json*> forced;  // of kRequired: the functions that may be called
  ToolNames names;                  // of all the functions
  bool parallel = true;             // more than one call may be made
};

// "tools", "tool_choice" and "parallel_tool_calls". An error is left in `request`.
ToolRequest read_tools(FieldReader& request);

// {"name": ..., "arguments": ...} for one of the functions. kInvalidArgument if their schemas
// contradict each other's definitions, or refer to anything else.
Expected<GrammarSpec> tool_grammar(const std::vector<const Json*>& functions);

struct ToolCall {
  std::string name;
  std::string arguments;  // JSON
};

// Finds calls in a reply while it arrives: <tool_call>{...}</tool_call> (Hermes, Qwen), or a reply
// that is nothing but JSON objects with name and arguments or parameters (Llama 3, and what
// tool_grammar() forces). What is no call of one of `tools` is text.
class ToolCallParser {
 public:
  explicit ToolCallParser(ToolNames tools) : tools_(std::move(tools)) {}

  // Takes new text; appends what is certain to be text.
  void push(std::string_view text, std::string& out, std::vector<ToolCall>& calls);
  // The end of the reply.
  void finish(std::string& out, std::vector<ToolCall>& calls);

 private:
  enum class State : uint8_t { kStart, kText, kTagged, kJson };

  ToolNames tools_;
  State state_ = State::kStart;
  bool after_call_ = false;  // nothing has been said since
  std::string held_;         // not decided yet
};

}  // namespace aerie::server
