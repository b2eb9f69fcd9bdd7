// What the requests for text have in common.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/http/exchange.h"
#include "server/models/api_state.h"
#include "server/openai/fields/field_reader.h"
#include "server/openai/fields/grammar_fields.h"
#include "server/openai/reply_task.h"

namespace aerie::server {

struct GenerationSettings {
  Request request;  // all but the prompt and the grammar
  std::optional<NamedGrammar> grammar;
  std::string model;  // as it was asked for, or the first of the names
  int n = 1;
  bool stream = false;
  bool include_usage = false;
  bool return_token_ids = false;
  bool has_prediction = false;
};

// Names of fields that differ, and defaults.
struct SettingsForm {
  std::vector<const char*> max_tokens = {"max_completion_tokens", "max_tokens"};  // the first wins
  int default_max_tokens = 0;
};

// Reads all but prompts, tools, logprobs and constraints. An error is left in `request`; 404 for a
// model that is not served.
GenerationSettings read_settings(FieldReader& request, const ApiState& state,
                                 const HttpRequest& from, const SettingsForm& form);

// The task of one reply to a prompt.
ReplyTask one_reply(GenerationSettings settings, std::unique_ptr<ReplyFormat> format);

// "prompt_logprobs" (0 to 20), which is not for streams; whether it is there. An error is left in
// `request`.
bool read_prompt_logprobs(FieldReader& request, GenerationSettings& settings);
// 400 where they would be too many for one answer.
void check_prompt_logprobs(FieldReader& request, const GenerationSettings& settings, size_t tokens);

// The model alone.
std::string read_model(FieldReader& request, const ApiState& state);

}  // namespace aerie::server
