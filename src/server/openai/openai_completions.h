// /v1/completions
#pragma once

#include <memory>

#include "server/api_state.h"
#include "server/field_reader.h"
#include "server/reply_task.h"

namespace aerie::server {

// What a request asks for; an error is left in `request`.
ReplyTask read_completion(FieldReader& request, ApiState& state, const HttpRequest& from);

// A list of token ids of the model's vocabulary; an error is left in `request`.
std::vector<int32_t> read_ids(FieldReader& request, const Json& list, const ApiState& state,
                              const char* field);

}  // namespace aerie::server
