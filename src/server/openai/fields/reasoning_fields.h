// How much a model may think before it answers.
#pragma once

#include <optional>
#include <string>

#include "chat/dialect.h"
#include "engine/service.h"
#include "server/models/api_state.h"
#include "server/openai/fields/field_reader.h"

namespace aerie::server {

struct ReasoningSettings {
  std::string effort = {};        // none, minimal, low, medium, high, xhigh; empty: not said
  std::optional<int> max_tokens;  // of reasoning
  bool show = true;               // it is part of the answer
};

// "reasoning_effort", "max_reasoning_tokens" and "include_reasoning". An error is left in
// `request`.
ReasoningSettings read_reasoning(FieldReader& request);

// "none" to "xhigh", else 400.
std::string read_effort(FieldReader& request, std::string_view key);

// What the model's form of replies asks of the request: tokens that its text has to show, and a
// bound for its reasoning. `effort` "none" bounds it to nothing where the template cannot leave it
// out.
void apply_dialect(const ApiState& state, const ReasoningSettings& settings,
                   chat::ReasoningStart start, bool with_calls, Request& request);

}  // namespace aerie::server
