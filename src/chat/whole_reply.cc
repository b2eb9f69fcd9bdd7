#include "chat/whole_reply.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace aerie::chat {

std::vector<Tool> tools_of(const Json& functions) {
  std::vector<Tool> out;
  for (const Json& function : functions) {
    const auto name = function.find("name");
    if (name == function.end() || !name->is_string()) continue;
    const auto parameters = function.find("parameters");
    out.push_back({*name, parameters == function.end() ? nullptr : &*parameters});
  }
  return out;
}

// It is parsed as one that arrives is: what is held stays short.
void push_text(ReplyParser& parser, std::string_view text, std::vector<ReplyPart>& parts) {
  constexpr size_t kSlice = 4096;
  for (; !text.empty(); text.remove_prefix(std::min(kSlice, text.size()))) {
    parser.push(text.substr(0, kSlice), parts);
  }
}

ChatReply whole_reply(std::span<const ReplyPart> parts) {
  using Kind = ReplyPart::Kind;
  ChatReply reply;
  for (const ReplyPart& part : parts) {
    if (part.kind == Kind::kReasoning) reply.reasoning += part.text;
    if (part.kind == Kind::kContent) reply.content += part.text;
    if (part.kind == Kind::kCall) reply.calls.push_back({part.text, ""});
    if (part.kind == Kind::kArguments) reply.calls.back().arguments += part.text;
  }
  return reply;
}

ChatReply read_reply(const Dialect& dialect, ReasoningStart start, std::vector<Tool> tools,
                     std::string_view text) {
  const auto parser = make_reply_parser(dialect, start, std::move(tools));
  std::vector<ReplyPart> parts;
  push_text(*parser, text, parts);
  parser->finish(parts);
  return whole_reply(parts);
}

}  // namespace aerie::chat
