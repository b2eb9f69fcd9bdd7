#include "server/openai/fields/chat_request.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "server/openai/fields/chat_prompt.h"

namespace aerie::server {

void complete_chat(FieldReader& request, const ApiState& state, ChatParts parts,
                   ChatRequest& chat) {
  if (request.failed()) return;
  ChatPrompt prompt;
  prompt.messages = std::move(parts.messages);
  if (parts.tools.choice != ToolChoice::kNone) prompt.tools = parts.tools.tools.get();
  prompt.extra = request.object("chat_template_kwargs");
  prompt.reasoning_effort = parts.reasoning.effort;
  prompt.add_generation_prompt = parts.add_generation_prompt;
  EncodedChat encoded = encode_chat(request, state, std::move(prompt));
  chat.settings.request.prompt = std::move(encoded.ids);
  const bool with_calls =
      add_form(request, state, parts.tools, encoded.start, chat.settings.grammar);
  if (request.failed()) return;
  apply_dialect(state, parts.reasoning, encoded.start, with_calls, chat.settings.request);
  chat.shape.start = encoded.start;
  chat.shape.parallel = parts.tools.parallel;
  chat.shape.show_reasoning = parts.reasoning.show;
  if (with_calls) chat.shape.tools = parts.tools.functions;
  if (with_calls && chat.settings.grammar) chat.shape.forms = chat::CallForms::kOwn;
}

ChatRequest read_chat_request(FieldReader& request, const ApiState& state,
                              const HttpRequest& from) {
  ChatRequest out;
  out.settings = read_settings(request, state, from, {});
  ChatParts parts;
  parts.tools = read_tools(request, state);
  parts.reasoning = read_reasoning(request);
  out.settings.grammar = read_grammar(request);
  if (request.failed()) return out;
  const Json* messages = request.find("messages");
  parts.messages = read_messages(request, messages != nullptr ? *messages : Json(), "messages");
  parts.add_generation_prompt = request.boolean("add_generation_prompt", true);
  complete_chat(request, state, std::move(parts), out);
  return out;
}

}  // namespace aerie::server
