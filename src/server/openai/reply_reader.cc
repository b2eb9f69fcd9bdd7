#include "server/openai/reply_reader.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "chat/reply_grammar.h"
#include "chat/whole_reply.h"
#include "server/http/http_target.h"

namespace aerie::server {
namespace {

using Kind = chat::ReplyPart::Kind;

std::vector<chat::Tool> tools_of(const ReplyShape& shape) {
  return shape.tools == nullptr ? std::vector<chat::Tool>() : chat::tools_of(*shape.tools);
}

SpanTracker tracker_of(const chat::Dialect& dialect, chat::ReasoningStart start) {
  chat::Tags marks = chat::reasoning_marks(dialect);
  // Once the prompt has ended it there is none.
  if (start == chat::ReasoningStart::kNever && !dialect.harmony) marks = {};
  return {marks.open, marks.close, start == chat::ReasoningStart::kOpen, dialect.harmony};
}

}  // namespace

ReplyReader::ReplyReader(const ApiState& state, const ReplyShape& shape)
    : tokenizer_(state.service.tokenizer()),
      shape_(shape),
      parser_(chat::make_reply_parser(shape.is_raw ? chat::Dialect() : state.dialect, shape.start,
                                      tools_of(shape), shape.forms)),
      tracker_(tracker_of(shape.is_raw ? chat::Dialect() : state.dialect, shape.start)) {}

std::vector<chat::ReplyPart> ReplyReader::read(const std::string& text,
                                               const std::vector<EmittedToken>& tokens,
                                               bool is_last) {
  for (const EmittedToken& token : tokens) {
    if (token.id < tokenizer_.vocab_size()) tracker_.push(tokenizer_.piece(token.id));
  }
  std::vector<chat::ReplyPart> found;
  chat::push_text(*parser_, text, found);
  if (is_last) parser_->finish(found);
  std::vector<chat::ReplyPart> out;
  for (chat::ReplyPart& part : found) {
    if (part.kind == Kind::kReasoning && !shape_.show_reasoning) continue;
    if (part.kind == Kind::kCall) dropping_ = !shape_.parallel && calls_ > 0;
    const bool is_of_call = part.kind != Kind::kReasoning && part.kind != Kind::kContent;
    if (is_of_call && dropping_) continue;
    if (part.kind == Kind::kCall) ++calls_;
    const bool goes_on = !out.empty() && out.back().kind == part.kind && part.kind != Kind::kCall &&
                         part.kind != Kind::kCallEnd;
    if (goes_on) {
      out.back().text += part.text;
    } else {
      out.push_back(std::move(part));
    }
  }
  return out;
}

std::string new_call_id(const ApiState& state, std::string_view prefix) {
  constexpr size_t kShort = 9;
  if (state.dialect.short_ids) return random_hex(kShort).substr(0, kShort);
  return std::string(prefix) + random_hex(12);
}

}  // namespace aerie::server
