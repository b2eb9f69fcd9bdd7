#include "server/anthropic/message_input.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/openai/fields/json_text.h"

namespace aerie::server {
namespace {

// A text, or a list of blocks of text.
std::string text_of_blocks(FieldReader& reader, std::string_view key) {
  const Json* value = reader.find(key);
  if (value == nullptr || value->is_string()) return reader.string(key, "");
  std::string out;
  if (!value->is_array()) {
    reader.refuse(key, "must be a string or a list of blocks");
    return out;
  }
  for (size_t i = 0; i < value->size() && !reader.failed(); ++i) {
    FieldReader block((*value)[i], reader.error(), fmt::format("{}[{}]", reader.name_of(key), i));
    if (block.string("type", "") != "text") {
      block.refuse("type", "must be \"text\": this model takes no other blocks here");
    }
    if (!out.empty()) out += '\n';
    out += block.string("text", "");
  }
  return out;
}

// The blocks of one message as messages of a chat.
class BlockReader {
 public:
  BlockReader(FieldReader& message, bool is_assistant, Json& out)
      : message_(message), is_assistant_(is_assistant), out_(out) {}

  void read(const Json& blocks) {
    for (size_t i = 0; i < blocks.size() && !message_.failed(); ++i) {
      FieldReader block(blocks[i], message_.error(),
                        fmt::format("{}[{}]", message_.name_of("content"), i));
      const std::string type = block.string("type", "");
      if (type == "text") {
        if (!text_.empty()) text_ += '\n';
        text_ += block.string("text", "");
      } else if (type == "thinking" && is_assistant_) {
        thinking_ += block.string("thinking", "");
      } else if (type == "redacted_thinking" && is_assistant_) {
        continue;  // what nobody here can read
      } else if (type == "tool_use" && is_assistant_) {
        add_call(block);
      } else if (type == "tool_result" && !is_assistant_) {
        add_result(block);
      } else {
        block.refuse("type", "is \"{}\", which this model takes not from here", type);
      }
    }
    finish();
  }

 private:
  void add_call(FieldReader& block) {
    const std::string name = block.string("name", "");
    if (name.empty()) block.refuse("name", "is missing");
    const Json* input = block.object("input");
    calls_.push_back(
        {{"id", block.string("id", "")},
         {"type", "function"},
         {"function",
          {{"name", name}, {"arguments", input != nullptr ? *input : Json::object()}}}});
  }
  // Results come before what the user says beside them.
  void add_result(FieldReader& block) {
    std::string text = text_of_blocks(block, "content");
    if (block.boolean("is_error", false)) text = "Error: " + text;
    out_.push_back({{"role", "tool"},
                    {"tool_call_id", block.string("tool_use_id", "")},
                    {"content", std::move(text)}});
    had_result_ = true;
  }
  void finish() {
    if (text_.empty() && had_result_ && !is_assistant_) return;
    Json message = {{"role", is_assistant_ ? "assistant" : "user"}, {"content", std::move(text_)}};
    if (!thinking_.empty()) message["reasoning_content"] = std::move(thinking_);
    if (!calls_.empty()) message["tool_calls"] = std::move(calls_);
    out_.push_back(std::move(message));
  }

  FieldReader& message_;
  const bool is_assistant_;
  Json& out_;
  std::string text_;
  std::string thinking_;
  Json calls_ = Json::array();
  bool had_result_ = false;
};

Json messages_of(FieldReader& request) {
  Json out = Json::array();
  const std::string system = text_of_blocks(request, "system");
  if (!system.empty()) out.push_back({{"role", "system"}, {"content", system}});
  const Json* messages = request.array("messages");
  if (messages == nullptr || messages->empty()) {
    request.refuse("messages", "must be a list of at least one message");
    return out;
  }
  for (size_t i = 0; i < messages->size() && !request.failed(); ++i) {
    FieldReader message((*messages)[i], request.error(), fmt::format("messages[{}]", i));
    const std::string role = message.string("role", "");
    if (role != "user" && role != "assistant") {
      message.refuse("role", "must be user or assistant");
      return out;
    }
    const Json* content = message.find("content");
    if (content != nullptr && content->is_array()) {
      BlockReader(message, role == "assistant", out).read(*content);
    } else {
      if (content == nullptr) message.refuse("content", "is missing");
      out.push_back({{"role", role}, {"content", message.string("content", "")}});
    }
  }
  if (!request.failed() && out.back()["role"] == "assistant") {
    request.refuse("messages",
                   "must end with the user's: a reply that goes on from the assistant's words is "
                   "not supported");
  }
  return out;
}

void add_tools(FieldReader& request, Json& out) {
  const Json* tools = request.array("tools");
  if (tools != nullptr) {
    out["tools"] = Json::array();
    for (size_t i = 0; i < tools->size() && !request.failed(); ++i) {
      FieldReader tool((*tools)[i], request.error(), fmt::format("tools[{}]", i));
      if (tool.string("type", "custom") != "custom") {
        tool.refuse("type", "must be \"custom\": there are no other tools here");
      }
      Json function = {{"name", tool.string("name", "")},
                       {"description", tool.string("description", "")}};
      const Json* schema = tool.object("input_schema");
      function["parameters"] = schema != nullptr ? *schema : Json{{"type", "object"}};
      if (tool.boolean("strict", false)) function["strict"] = true;
      out["tools"].push_back({{"type", "function"}, {"function", std::move(function)}});
    }
  }
  const Json* choice = request.object("tool_choice");
  if (choice == nullptr) return;
  FieldReader reader(*choice, request.error(), "tool_choice");
  const std::string type = reader.string("type", "");
  if (type == "tool") {
    out["tool_choice"] = {{"type", "function"},
                          {"function", {{"name", reader.string("name", "")}}}};
  } else if (type == "auto" || type == "none") {
    out["tool_choice"] = type;
  } else if (type == "any") {
    out["tool_choice"] = "required";
  } else {
    reader.refuse("type", "must be auto, any, tool or none");
  }
  out["parallel_tool_calls"] = !reader.boolean("disable_parallel_tool_use", false);
}

void add_thinking(FieldReader& request, Json& out) {
  const Json* thinking = request.object("thinking");
  if (thinking == nullptr) return;
  FieldReader reader(*thinking, request.error(), "thinking");
  const std::string type = reader.string("type", "");
  if (type == "disabled") {
    out["reasoning_effort"] = "none";
  } else if (type == "enabled") {
    out["reasoning_effort"] = "medium";
    out["max_reasoning_tokens"] =
        reader.integer("budget_tokens", 1024, 1, std::numeric_limits<int>::max());
  } else if (type != "adaptive") {
    reader.refuse("type", "must be enabled, disabled or adaptive");
  }
}

}  // namespace

Json chat_of_messages(FieldReader& request) {
  if (request.failed()) return {};
  Json out = request.json();
  for (const char* key : {"system", "stop_sequences", "tools", "tool_choice", "thinking",
                          "metadata", "service_tier"}) {
    out.erase(key);
  }
  if (!request.has("max_tokens")) request.refuse("max_tokens", "is missing");
  out["messages"] = messages_of(request);
  add_tools(request, out);
  add_thinking(request, out);
  if (const Json* stops = request.array("stop_sequences")) out["stop"] = *stops;
  return out;
}

}  // namespace aerie::server
