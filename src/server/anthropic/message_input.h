// Anthropic's requests as chat completions have them.
#pragma once

#include "format/json.h"
#include "server/openai/fields/field_reader.h"

namespace aerie::server {

// A body of /v1/messages as one of /v1/chat/completions. Fields that both have keep their names, as
// do those that neither knows. An error is left in `request`.
Json chat_of_messages(FieldReader& request);

}  // namespace aerie::server
