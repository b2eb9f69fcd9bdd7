// /v1/responses, of text.
#pragma once

#include "server/http/exchange.h"
#include "server/models/api_state.h"
#include "server/openai/fields/field_reader.h"
#include "server/openai/reply_task.h"

namespace aerie::server {

// What a request asks for; an error is left in `request`.
ReplyTask read_response(FieldReader& request, ApiState& state, const HttpRequest& from);

}  // namespace aerie::server
