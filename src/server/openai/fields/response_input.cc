#include "server/openai/fields/response_input.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "server/openai/fields/chat_prompt.h"
#include "server/openai/fields/json_text.h"

namespace aerie::server {
namespace {

// The texts of a list of parts, or a text.
std::string text_of_parts(FieldReader& item, std::string_view key) {
  const Json* value = item.find(key);
  if (value == nullptr || value->is_string()) return item.string(key, "");
  std::string out;
  if (!value->is_array()) {
    item.refuse(key, "must be a string or a list of parts");
    return out;
  }
  for (const Json& part : *value) {
    FieldReader reader(part, item.error(), item.name_of(key));
    if (!out.empty()) out += '\n';
    out += reader.string("text", "");
  }
  return out;
}

// Items to messages: reasoning, a message and calls that follow one another are one message of the
// assistant.
class Messages {
 public:
  explicit Messages(FieldReader& request) : request_(request) {}

  void add(const Json& item, const std::string& name) {
    FieldReader reader(item, request_.error(), name);
    const std::string type = reader.string("type", "message");
    if (request_.failed()) return;
    if (type == "message") {
      add_message(item, reader);
    } else if (type == "reasoning") {
      std::string text = text_of_parts(reader, "content");
      if (text.empty()) text = text_of_parts(reader, "summary");
      if (!text.empty()) assistant()["reasoning_content"] = std::move(text);
    } else if (type == "function_call") {
      const std::string id = reader.string("call_id", "");
      const std::string function = reader.string("name", "");
      if (id.empty()) reader.refuse("call_id", "is missing");
      if (function.empty()) reader.refuse("name", "is missing");
      Json call = {
          {"id", id},
          {"type", "function"},
          {"function", {{"name", function}, {"arguments", reader.string("arguments", "{}")}}}};
      assistant()["tool_calls"].push_back(std::move(call));
    } else if (type == "function_call_output") {
      const std::string id = reader.string("call_id", "");
      if (id.empty()) reader.refuse("call_id", "is missing");
      out_.push_back(
          {{"role", "tool"}, {"tool_call_id", id}, {"content", text_of_parts(reader, "output")}});
    } else {
      reader.refuse("type",
                    "must be message, reasoning, function_call or function_call_output: there are "
                    "no other items here");
    }
  }

  Json take() { return std::move(out_); }

 private:
  // The message of the assistant that goes on.
  Json& assistant() {
    const bool goes_on = !out_.empty() && out_.back()["role"] == "assistant";
    if (!goes_on) out_.push_back({{"role", "assistant"}, {"content", ""}});
    return out_.back();
  }

  void add_message(const Json& item, FieldReader& reader) {
    Json message = item;
    for (const char* key : {"type", "id", "status"}) message.erase(key);
    // Calls are items of their own here.
    for (const char* key : {"tool_calls", "reasoning_content"}) message.erase(key);
    if (!message.contains("role")) reader.refuse("role", "is missing");
    if (!message.contains("content")) reader.refuse("content", "is missing");
    if (reader.failed()) return;
    const bool joins = reader.string("role", "") == "assistant" && !out_.empty() &&
                       out_.back()["role"] == "assistant" && out_.back()["content"] == "" &&
                       !out_.back().contains("tool_calls");
    if (joins) {
      out_.back()["content"] = std::move(message["content"]);
    } else {
      out_.push_back(std::move(message));
    }
  }

  FieldReader& request_;
  Json out_ = Json::array();
};

}  // namespace

Json read_response_input(FieldReader& request) {
  Json messages = Json::array();
  const std::string instructions = request.string("instructions", "");
  if (!instructions.empty()) messages.push_back({{"role", "system"}, {"content", instructions}});
  const Json* input = request.find("input");
  if (input == nullptr) {
    request.refuse("input", "is missing");
    return messages;
  }
  if (input->is_string()) {
    messages.push_back({{"role", "user"}, {"content", *input}});
    return messages;
  }
  if (!input->is_array()) {
    request.refuse("input", "must be a string or a list of items");
    return messages;
  }
  Messages items(request);
  for (size_t i = 0; i < input->size() && !request.failed(); ++i) {
    items.add((*input)[i], fmt::format("input[{}]", i));
  }
  if (request.failed()) return messages;
  for (Json& message : read_messages(request, items.take(), "input")) {
    messages.push_back(std::move(message));
  }
  return messages;
}

Json response_tools(FieldReader& request) {
  Json out = Json::object();
  const Json* tools = request.array("tools");
  if (tools != nullptr) {
    out["tools"] = Json::array();
    for (size_t i = 0; i < tools->size() && !request.failed(); ++i) {
      const Json& tool = (*tools)[i];
      FieldReader reader(tool, request.error(), fmt::format("tools[{}]", i));
      if (reader.string("type", "") != "function") {
        reader.refuse("type", "must be \"function\": there are no other tools");
        break;
      }
      Json function = tool;
      function.erase("type");
      out["tools"].push_back({{"type", "function"}, {"function", std::move(function)}});
    }
  }
  const Json* choice = request.find("tool_choice");
  if (choice != nullptr && choice->is_object()) {
    out["tool_choice"] = {{"type", "function"}, {"function", *choice}};
  } else if (choice != nullptr) {
    out["tool_choice"] = *choice;
  }
  out["parallel_tool_calls"] = request.boolean("parallel_tool_calls", true);
  return out;
}

}  // namespace aerie::server
