#include "server/openai/fields/chat_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
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
  // Some servers call it so.
  if (out.contains("reasoning") && !out.contains("reasoning_content")) {
    out["reasoning_content"] = out["reasoning"];
  }
  if (role == "assistant") {
    reader.string("reasoning_content", "");
    reader.string("reasoning", "");
  }
  return out;
}

// The variables that templates have for it, where the request does not set them itself.
void add_effort(const ChatTemplate& chat, const std::string& effort, Json& extra) {
  if (effort.empty()) return;
  const bool off = effort == "none";
  const auto add = [&](const char* name, const Json& value) {
    if (chat.mentions(name) && !extra.contains(name)) extra[name] = value;
  };
  add("enable_thinking", !off);
  add("thinking", !off);
  // Templates know three levels.
  const bool is_low = off || effort == "minimal";
  add("reasoning_effort", is_low ? "low" : effort == "xhigh" ? "high" : effort);
}

// Ids of calls as Mistral's templates insist on them.
std::string short_id(const std::string& id) {
  constexpr size_t kLength = 9;
  std::string out;
  for (const char c : id) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) out += c;
  }
  if (out.size() < kLength) out.insert(0, kLength - out.size(), '0');
  return out.substr(out.size() - kLength);
}

// What other servers' clients call things otherwise than this model's template does.
void fit_to_template(const chat::Dialect& dialect, Json& messages) {
  for (Json& message : messages) {
    if (dialect.harmony && message.contains("reasoning_content")) {
      // Its template takes one of the two beside calls.
      const bool has_both = message.contains("tool_calls") && message["content"] != "";
      if (!has_both) message["thinking"] = message["reasoning_content"];
    }
    if (!dialect.short_ids) continue;
    if (message.contains("tool_call_id") && message["tool_call_id"].is_string()) {
      message["tool_call_id"] = short_id(message["tool_call_id"]);
    }
    if (!message.contains("tool_calls")) continue;
    for (Json& call : message["tool_calls"]) {
      if (call.contains("id") && call["id"].is_string()) call["id"] = short_id(call["id"]);
    }
  }
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

std::vector<int32_t> encode_text(FieldReader& request, const ApiState& state, std::string_view text,
                                 const EncodeOptions& options, const char* field) {
  std::vector<int32_t> ids;
  check_bytes(request, state, text.size(), field);
  if (request.failed()) return ids;
  const Status encoded = state.service.tokenizer().encode(text, options, ids);
  if (!encoded.ok()) request.refuse(error_of(encoded, field));
  return ids;
}

EncodedChat encode_chat(FieldReader& request, const ApiState& state, ChatPrompt prompt) {
  EncodedChat out;
  if (request.failed()) return out;
  const Expected<ChatTemplate>& chat = state.service.chat_template();
  if (!chat.ok()) {
    request.refuse(error_of(
        400, "this model has no chat template that can be used: " + chat.status().message()));
    return out;
  }
  fit_to_template(state.dialect, prompt.messages);
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
  Json extra = prompt.extra != nullptr ? *prompt.extra : Json::object();
  if (extra.is_object()) add_effort(*chat, prompt.reasoning_effort, extra);
  marked |= state.control_names.mark(extra, secret);
  input.extra = &extra;
  const auto text = chat->render(input);
  if (!text.ok()) {
    request.refuse(error_of(400, text.status().message(), "messages"));
    return out;
  }
  check_bytes(request, state, text->size(), "messages");
  if (request.failed()) return out;
  const Status encoded = state.control_names.encode(*text, marked ? secret : "", out.ids);
  if (!encoded.ok()) request.refuse(error_of(400, encoded.message(), "messages"));
  check_length(request, state, out.ids.size(), "messages");
  if (prompt.add_generation_prompt) out.start = chat::reasoning_start(state.dialect, *text);
  return out;
}

}  // namespace aerie::server
