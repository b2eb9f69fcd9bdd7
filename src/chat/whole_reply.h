// A reply that has ended, in its parts.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "aerie/chat_message.h"
#include "chat/dialect.h"
#include "chat/reply_parser.h"

namespace aerie::chat {

// Functions as OpenAI's programs have them, {"name", "parameters", ...}, which must be an array and
// outlive what is returned. Those without a name are left out.
std::vector<Tool> tools_of(const Json& functions);

// Hands a text of any length to the parser.
void push_text(ReplyParser& parser, std::string_view text, std::vector<ReplyPart>& parts);

ChatReply whole_reply(std::span<const ReplyPart> parts);

// `text`: with the control tokens of shown_tokens().
ChatReply read_reply(const Dialect& dialect, ReasoningStart start, std::vector<Tool> tools,
                     std::string_view text);

}  // namespace aerie::chat
