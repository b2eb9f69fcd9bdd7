#include "server/openai/fields/chat_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "server/http/http_target.h"

namespace aerie::server {
namespace {

constexpr std::array<std::string_view, 6> kRoles = {"system",    "developer", "user",
                                                    "assistant", "tool",      "function"};

// Parts of text, as a string: few templates know parts.
void read_parts(FieldReader& message, const Json& parts, std::string& out) {
  for (const Json& part : parts) {
    FieldReader reader(part, message.error(), message.name_of("content"));
    const std::string type = reader.string("type", "text");
    if (reader.failed()) return;
    if (type != "text" && type != "input_text" && type != "output_text" && type != "refusal") {
      return message.refuse("content", "parts must be text; this model takes no others");
    }
    if (!out.empty()) out += '\n';
    out += reader.string(type == "refusal" ? "refusal" : "text", "");
  }
}

// Templates go through the arguments of a call, which clients send as a string.
void read_calls(FieldReader& message, Json& calls) {
  for (Json& call : calls) {
    FieldReader reader(call, message.error(), message.name_of("tool_calls"));
    const Json* function = reader.object("function");
    if (function == nullptr) return reader.refuse("function", "is missing");
    FieldReader inner(*function, message.error(), reader.name_of("function"));
    if (inner.string("name", "").empty()) return inner.refuse("name", "is missing");
    const Json* arguments = inner.find("arguments");
    if (arguments == nullptr || !arguments->is_string()) continue;
    auto parsed = parse_json(arguments->get_ref<const std::string&>(), "arguments");
    if (parsed.ok() && parsed->is_object()) call["function"]["arguments"] = std::move(*parsed);
  }
}

Json read_message(FieldReader& request, const Json& message, const std::string& name) {
  FieldReader reader(message, request.error(), name);
  std::string role = reader.string("role", "");
  if (reader.failed()) return {};
  if (std::ranges::find(kRoles, role) == kRoles.end()) {
    reader.refuse("role", "must be one of {}", fmt::join(kRoles, ", "));
    return {};
  }
  Json out = message;
  // Templates ask whether there is a member, not what it is.
  for (auto member = out.begin(); member != out.end();) {
    member = member->is_null() ? out.erase(member) : std::next(member);
  }
  out["role"] = role == "developer" ? "system" : role;
  const Json* content = reader.find("content");
  const Json* calls = reader.array("tool_calls");
  if (content == nullptr) {
    if (calls == nullptr || role != "assistant") reader.refuse("content", "is missing");
    out["content"] = "";
  } else if (content->is_array()) {
    std::string text;
    read_parts(reader, *content, text);
    out["content"] = std::move(text);
  } else {
    reader.string("content", "");
  }
  if (calls != nullptr && !reader.failed()) read_calls(reader, out["tool_calls"]);
  return out;
}

}  // namespace

Json read_messages(FieldReader& request, const Json& messages, const std::string& name) {
  Json out = Json::array();
  if (!messages.is_array() || messages.empty()) {
    request.refuse(name, "must be a list of at least one message");
    return out;
  }
  for (size_t i = 0; i < messages.size() && !request.failed(); ++i) {
    out.push_back(read_message(request, messages[i], fmt::format("{}[{}]", name, i)));
  }
  return out;
}

void check_length(FieldReader& request, const ApiState& state, size_t tokens, const char* field) {
  const int most = state.max_prompt_tokens();
  if (tokens <= static_cast<size_t>(most)) return;
  request.refuse(error_of(
      400,
      fmt::format("{}: the prompt has {} tokens; the context has room for {}", field, tokens, most),
      field, "context_length_exceeded"));
}

void check_bytes(FieldReader& request, const ApiState& state, size_t bytes, const char* field) {
  // What a tokenizer drops of a text before it looks for tokens is less than this.
  constexpr size_t kSlack = 4;
  const auto most = static_cast<size_t>(state.max_prompt_tokens());
  if (bytes <= kSlack * state.longest_piece * most) return;
  request.refuse(
      error_of(400,
               fmt::format("{}: the prompt has {} bytes; the context has room for {} tokens", field,
                           bytes, most),
               field, "context_length_exceeded"));
}

std::vector<int32_t> encode_chat(FieldReader& request, const ApiState& state, ChatPrompt prompt) {
  std::vector<int32_t> ids;
  if (request.failed()) return ids;
  const Expected<ChatTemplate>& chat = state.service.chat_template();
  if (!chat.ok()) {
    request.refuse(error_of(
        400, "this model has no chat template that can be used: " + chat.status().message()));
    return ids;
  }
  const std::string secret = "\xEE\x80\x80" + random_hex(12) + ":";
  bool marked = state.control_names.mark(prompt.messages, secret);
  Json tools;
  if (prompt.tools != nullptr) {
    tools = *prompt.tools;
    marked |= state.control_names.mark(tools, secret);
  }
  ChatInput input;
  input.messages = &prompt.messages;
  input.tools = prompt.tools != nullptr ? &tools : nullptr;
  input.add_generation_prompt = prompt.add_generation_prompt;
  Json extra;
  if (prompt.extra != nullptr) {
    extra = *prompt.extra;
    marked |= state.control_names.mark(extra, secret);
    input.extra = &extra;
  }
  const auto text = chat->render(input);
  if (!text.ok()) {
    request.refuse(error_of(400, text.status().message(), "messages"));
    return ids;
  }
  check_bytes(request, state, text->size(), "messages");
  if (request.failed()) return ids;
  const Status encoded = state.control_names.encode(*text, marked ? secret : "", ids);
  if (!encoded.ok()) request.refuse(error_of(400, encoded.message(), "messages"));
  check_length(request, state, ids.size(), "messages");
  return ids;
}

}  // namespace aerie::server
