#include "server/openai/prompt_input.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "server/openai/fields/chat_prompt.h"

namespace aerie::server {
namespace {

void add_text(FieldReader& request, const ApiState& state, const std::string& text,
              const char* field, Prompts& out) {
  // A prompt is all of the client's own making: it may hold a chat that was rendered elsewhere.
  const EncodeOptions options = {request.boolean("add_special_tokens", true),
                                 request.boolean("parse_special", true)};
  std::vector<int32_t> ids = encode_text(request, state, text, options, field);
  if (request.failed()) return;
  out.ids.push_back(std::move(ids));
  out.texts.push_back(text);
}

void add_ids(FieldReader& request, const ApiState& state, const Json& list, const char* field,
             Prompts& out) {
  std::vector<int32_t> ids = read_ids(request, list, state, field);
  out.ids.push_back(std::move(ids));
  out.texts.emplace_back();
}

}  // namespace

Prompts read_prompts(FieldReader& request, const ApiState& state, const char* field, int most) {
  Prompts out;
  const Json* prompt = request.find(field);
  if (prompt == nullptr) {
    request.refuse(field, "is missing");
    return out;
  }
  if (prompt->is_string()) {
    add_text(request, state, prompt->get_ref<const std::string&>(), field, out);
  } else if (prompt->is_array() && !prompt->empty()) {
    if (prompt->front().is_number()) {
      add_ids(request, state, *prompt, field, out);
    } else if (prompt->size() > static_cast<size_t>(most)) {
      request.refuse(field, "may be at most {} prompts", most);
    } else {
      for (const Json& one : *prompt) {
        if (request.failed()) break;
        if (one.is_string()) {
          add_text(request, state, one.get_ref<const std::string&>(), field, out);
        } else if (one.is_array()) {
          add_ids(request, state, one, field, out);
        } else {
          request.refuse(field, "must be text or token ids");
        }
      }
    }
  } else {
    request.refuse(field, "must be a string, a list of strings, or token ids");
  }
  for (const auto& ids : out.ids) {
    if (ids.empty()) request.refuse(field, "must not be empty");
    check_length(request, state, ids.size(), field);
  }
  return out;
}

std::vector<int32_t> read_ids(FieldReader& request, const Json& list, const ApiState& state,
                              const char* field) {
  std::vector<int32_t> ids;
  const int vocab = state.service.tokenizer().vocab_size();
  ids.reserve(list.size());
  for (const Json& one : list) {
    const bool fits = one.is_number_integer() && one >= 0 && one < vocab;
    if (!fits) {
      request.refuse(field, "token ids must be integers from 0 to {}", vocab - 1);
      return {};
    }
    ids.push_back(one.get<int32_t>());
  }
  return ids;
}

}  // namespace aerie::server
