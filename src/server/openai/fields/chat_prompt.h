// Messages of a request to a prompt.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "server/models/api_state.h"
#include "server/openai/fields/field_reader.h"

namespace aerie::server {

// "messages" as templates want them: roles that are known, contents as strings. An error is left in
// `request`, naming the message.
Json read_messages(FieldReader& request, const Json& messages, const std::string& name);

struct ChatPrompt {
  Json messages;
  const Json* tools = nullptr;        // null: none
  const Json* extra = nullptr;        // chat_template_kwargs; null: none
  std::string reasoning_effort = {};  // for the template's variables; empty: not said
  bool add_generation_prompt = true;
};

struct EncodedChat {
  std::vector<int32_t> ids;
  chat::ReasoningStart start = chat::ReasoningStart::kNever;  // of the reply
};

// What the chat template makes of it. Errors are left in `request`.
EncodedChat encode_chat(FieldReader& request, const ApiState& state, ChatPrompt prompt);

// The ids of a text, the field `field`; its length in tokens is not checked. Errors are left in
// `request`.
std::vector<int32_t> encode_text(FieldReader& request, const ApiState& state, std::string_view text,
                                 const EncodeOptions& options, const char* field);

// 400 for a text that is too long whatever tokens it has: before it is looked for them.
void check_bytes(FieldReader& request, const ApiState& state, size_t bytes, const char* field);
// 400 for a prompt with more tokens than are allowed.
void check_length(FieldReader& request, const ApiState& state, size_t tokens, const char* field);

}  // namespace aerie::server
