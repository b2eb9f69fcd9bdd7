// Ollama's requests as chat completions have them.
#pragma once

#include <string>

#include "format/json.h"
#include "server/openai/fields/field_reader.h"

namespace aerie::server {

// "model" without the tag that every name has there.
std::string ollama_name(FieldReader& request);

// A body of /api/chat, or of /api/generate without "raw", as one of /v1/chat/completions. An error
// is left in `request`.
Json chat_of_ollama(FieldReader& request, bool is_generate);

// A body of /api/generate with "raw" as one of /v1/completions. An error is left in `request`.
Json completion_of_ollama(FieldReader& request);

}  // namespace aerie::server
