// What /v1/responses calls otherwise than chat completions do.
#pragma once

#include "format/json.h"
#include "server/openai/fields/field_reader.h"

namespace aerie::server {

// "instructions" and "input" as messages of a chat. An error is left in `request`.
Json read_response_input(FieldReader& request);

// "tools" and "tool_choice" as chat completions have them: an object with these and
// "parallel_tool_calls". An error is left in `request`.
Json response_tools(FieldReader& request);

}  // namespace aerie::server
