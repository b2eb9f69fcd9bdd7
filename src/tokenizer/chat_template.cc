#include "tokenizer/chat_template.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/errors.h"

namespace aerie {

using nlohmann::ordered_json;

Expected<ChatTemplate> ChatTemplate::parse(std::string_view source, ChatTokens tokens,
                                           const jinja::Limits& limits) {
  auto parsed = jinja::Template::parse(source, limits);
  if (!parsed.ok()) return parsed.status().with_context("chat template");
  return ChatTemplate(source, std::move(parsed).value(), std::move(tokens));
}

Expected<std::string> ChatTemplate::render(const ChatInput& input) const {
  const ordered_json none, no_messages = ordered_json::array();
  const ordered_json add_generation_prompt = input.add_generation_prompt;
  const auto token = [](const std::optional<std::string>& own,
                        const std::optional<std::string>& otherwise) {
    return own ? ordered_json(*own) : otherwise ? ordered_json(*otherwise) : ordered_json();
  };
  const ordered_json bos = token(input.tokens.bos, tokens_.bos);
  const ordered_json eos = token(input.tokens.eos, tokens_.eos);

  // A later one takes the place of an earlier one.
  std::vector<jinja::Variable> variables = {
      {"messages", input.messages != nullptr ? input.messages : &no_messages},
      {"tools", input.tools != nullptr ? input.tools : &none},
      {"documents", &none},
      {"add_generation_prompt", &add_generation_prompt},
  };
  if (bos.is_string()) variables.push_back({"bos_token", &bos});
  if (eos.is_string()) variables.push_back({"eos_token", &eos});
  if (input.extra != nullptr) {
    if (!input.extra->is_object()) {
      return invalid_argument("the further variables of a chat template have to be a JSON object");
    }
    for (const auto& [name, value] : input.extra->get_ref<const ordered_json::object_t&>()) {
      variables.push_back({name, &value});
    }
  }
  return in_context(template_.render(variables, input.now), "chat template");
}

Expected<std::string> ChatTemplate::render(std::span<const ChatMessage> messages,
                                           bool add_generation_prompt) const {
  ordered_json list = ordered_json::array();
  for (const ChatMessage& message : messages) {
    list.push_back({{"role", message.role}, {"content", message.content}});
  }
  ChatInput input;
  input.messages = &list;
  input.add_generation_prompt = add_generation_prompt;
  return render(input);
}

}  // namespace aerie
