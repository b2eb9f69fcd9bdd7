// A request for a reply to messages, before it is decided how the reply is said.
#pragma once

#include <nlohmann/json.hpp>

#include "server/http/exchange.h"
#include "server/models/api_state.h"
#include "server/openai/fields/field_reader.h"
#include "server/openai/fields/generation_settings.h"
#include "server/openai/fields/reasoning_fields.h"
#include "server/openai/fields/tool_fields.h"
#include "server/openai/reply_reader.h"

namespace aerie::server {

struct ChatRequest {
  GenerationSettings settings;  // with the prompt, and the grammar of the whole reply
  ReplyShape shape;
};

// All of chat completions' fields but those about how the answer is given. An error is left in
// `request`.
ChatRequest read_chat_request(FieldReader& request, const ApiState& state, const HttpRequest& from);

// What a chat asks for by other names than chat completions': messages as these have them, tools,
// reasoning and the form of the content, which becomes one of the reply.
struct ChatParts {
  Json messages;
  ToolRequest tools;
  ReasoningSettings reasoning;
  bool add_generation_prompt = true;
};

// Puts them into `chat`, whose settings were read.
void complete_chat(FieldReader& request, const ApiState& state, ChatParts parts, ChatRequest& chat);

}  // namespace aerie::server
