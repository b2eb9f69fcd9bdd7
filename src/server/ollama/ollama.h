// Ollama's API, for clients that know no other: /api/chat, /api/generate, /api/tags, /api/show.
#pragma once

#include <ctime>

#include "server/http/exchange.h"
#include "server/models/api_state.h"
#include "server/models/model_host.h"
#include "server/openai/fields/field_reader.h"
#include "server/openai/reply_task.h"

namespace aerie::server {

// Errors are left in `request`.
ReplyTask read_ollama_chat(FieldReader& request, ApiState& state, const HttpRequest& from);
ReplyTask read_ollama_generate(FieldReader& request, ApiState& state, const HttpRequest& from);

// The models as /api/tags lists them.
Json ollama_models(const ModelHost& host, std::time_t started);
// What /api/show says of the model that `request` names. An error is left in it.
Json ollama_model(FieldReader& request, ApiState& state, const HttpRequest& from);

}  // namespace aerie::server
