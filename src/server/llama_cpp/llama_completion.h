// llama.cpp's own API: POST /completion and GET /props, for clients of its server.
#pragma once

#include "server/http/exchange.h"
#include "server/models/api_state.h"
#include "server/openai/fields/field_reader.h"
#include "server/openai/reply_task.h"

namespace aerie::server {

// An error is left in `request`.
ReplyTask read_llama_completion(FieldReader& request, ApiState& state, const HttpRequest& from);

Json llama_props(const ApiState& state);

}  // namespace aerie::server
