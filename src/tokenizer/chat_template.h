// Messages to the prompt that a chat model was trained on.
#pragma once

#include <ctime>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "aerie/chat_message.h"
#include "base/status.h"
#include "jinja/limits.h"
#include "jinja/template.h"

namespace aerie {

// The names of the tokens that many templates write themselves: bos_token, eos_token. Where one is
// absent, its variable is undefined and prints as nothing.
struct ChatTokens {
  std::optional<std::string> bos;
  std::optional<std::string> eos;
};

// What a template may speak of. The pointers are not owned and may be null.
struct ChatInput {
  // An array of messages: role, content (a string or an array of parts), and whatever else the
  // template knows, such as tool_calls. Null: no messages.
  const nlohmann::ordered_json* messages = nullptr;
  // An array of tool definitions; null: the variable is None, as with Hugging Face.
  const nlohmann::ordered_json* tools = nullptr;
  bool add_generation_prompt = true;
  ChatTokens tokens;  // where absent, those that the template was parsed with
  // An object of further variables, such as enable_thinking, documents or date_string. They take
  // the place of the above where they have the same name.
  const nlohmann::ordered_json* extra = nullptr;
  std::optional<std::tm> now;  // what strftime_now() shows; the local time if absent
};

// A model's chat template: the Jinja text of tokenizer.chat_template, rendered as Hugging Face
// renders it. Immutable, cheap to copy, safe to share between threads.
class ChatTemplate {
 public:
  // kInvalidData for what is no Jinja; kUnsupported for a tag, filter or test that is not known,
  // naming it; kResourceExhausted for what is beyond the limits. Messages say where.
  static Expected<ChatTemplate> parse(std::string_view source, ChatTokens tokens = {},
                                      const jinja::Limits& limits = {});

  // The prompt's text; control tokens appear by name, so encode it with parse_special and without
  // add_special: a template writes its BOS itself. With `add_generation_prompt` it ends where the
  // assistant's reply begins. As with Hugging Face and llama.cpp, a control token's name inside a
  // message becomes that token too: a caller that does not trust a message removes such names from
  // it. kInvalidArgument where the template refuses the messages or fails with them;
  // kResourceExhausted, naming the limit, where it asks for too much.
  Expected<std::string> render(const ChatInput& input) const;
  Expected<std::string> render(std::span<const ChatMessage> messages,
                               bool add_generation_prompt) const;

  // Whether the template speaks of a variable, such as "tools" or "enable_thinking".
  bool mentions(std::string_view variable) const { return template_.mentions(variable); }
  const std::string& source() const { return *source_; }

 private:
  ChatTemplate(std::string_view source, jinja::Template parsed, ChatTokens tokens)
      : source_(std::make_shared<const std::string>(source)),
        template_(std::move(parsed)),
        tokens_(std::move(tokens)) {}

  std::shared_ptr<const std::string> source_;
  jinja::Template template_;
  ChatTokens tokens_;
};

}  // namespace aerie
