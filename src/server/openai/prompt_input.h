// Prompts that come as texts or as token ids.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/models/api_state.h"
#include "server/openai/fields/field_reader.h"

namespace aerie::server {

struct Prompts {
  std::vector<std::vector<int32_t>> ids;
  std::vector<std::string> texts;  // of those that came as text
};

// The field: a string, a list of strings, a list of ids, or a list of lists of ids, of at most
// `most` prompts, each as long as may be. An error is left in `request`.
Prompts read_prompts(FieldReader& request, const ApiState& state, const char* field, int most);

// A list of token ids of the model's vocabulary; an error is left in `request`.
std::vector<int32_t> read_ids(FieldReader& request, const Json& list, const ApiState& state,
                              const char* field);

}  // namespace aerie::server
