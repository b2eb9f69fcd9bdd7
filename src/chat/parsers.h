// The parsers behind make_reply_parser().
#pragma once

#include <memory>
#include <vector>

#include "chat/reply_parser.h"

namespace aerie::chat {

std::unique_ptr<ReplyParser> make_tagged_parser(const Dialect& dialect, ReasoningStart start,
                                                std::vector<Tool> tools, CallForms forms);
std::unique_ptr<ReplyParser> make_harmony_parser(std::vector<Tool> tools);

}  // namespace aerie::chat
