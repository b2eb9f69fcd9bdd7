// What a reply consists of, for the formats that tell reasoning, content and calls apart.
#pragma once

#include <memory>
#include <vector>

#include "chat/dialect.h"
#include "chat/reply_parser.h"
#include "grammar/span_limit.h"
#include "server/models/api_state.h"
#include "server/openai/reply_task.h"

namespace aerie::server {

// Of a request.
struct ReplyShape {
  chat::ReasoningStart start = chat::ReasoningStart::kNever;
  std::shared_ptr<const Json> tools = {};  // functions ({"name", "parameters", ...}); null: calls
                                           // are not looked for
  chat::CallForms forms = chat::CallForms::kAny;
  bool parallel = true;  // more than one call counts
  bool show_reasoning = true;
  bool is_raw = false;  // the prompt was no chat, so that the reply is just text
};

// One reply, while it arrives or as a whole: the parts are the same.
class ReplyReader {
 public:
  // The state must outlive it.
  ReplyReader(const ApiState& state, const ReplyShape& shape);

  // `is_last`: nothing follows.
  std::vector<chat::ReplyPart> read(const std::string& text,
                                    const std::vector<EmittedToken>& tokens, bool is_last);
  int reasoning_tokens() const { return tracker_.tokens(); }
  int calls() const { return calls_; }

 private:
  const Tokenizer& tokenizer_;
  ReplyShape shape_;
  std::unique_ptr<chat::ReplyParser> parser_;
  SpanTracker tracker_;
  int calls_ = 0;
  bool dropping_ = false;  // a call that is one too many
};

// An id for a call, as the model's template takes it.
std::string new_call_id(const ApiState& state, std::string_view prefix);

}  // namespace aerie::server
