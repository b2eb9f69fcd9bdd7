// /v1/completions
#pragma once

#include "server/http/exchange.h"
#include "server/openai/api_state.h"
#include "server/openai/fields/field_reader.h"
#include "server/openai/reply_task.h"

namespace aerie::server {

// What a request asks for; an error is left in `request`.
ReplyTask read_completion(FieldReader& request, ApiState& state, const HttpRequest& from);

// A list of token ids of the model's vocabulary; an error is left in `request`.
std::vector<int32_t> read_ids(FieldReader& request, const Json& list, const ApiState& state,
                              const char* field);

}  // namespace aerie::server
