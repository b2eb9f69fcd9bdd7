// POST /v1/messages: Anthropic's form of chats.
#pragma once

#include "server/http/exchange.h"
#include "server/models/api_state.h"
#include "server/openai/fields/field_reader.h"
#include "server/openai/reply_task.h"

namespace aerie::server {

// An error is left in `request`.
ReplyTask read_anthropic_message(FieldReader& request, ApiState& state, const HttpRequest& from);

// POST /v1/messages/count_tokens: how many the prompt of such a request has. Errors likewise.
Json count_message_tokens(FieldReader& request, ApiState& state, const HttpRequest& from);

}  // namespace aerie::server
