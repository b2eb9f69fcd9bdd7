#include "server/openai/response_items.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "server/http/http_target.h"
#include "server/openai/reply_reader.h"

namespace aerie::server {

Json ResponseItems::part() const {
  if (kind_ == Kind::kReasoning) return {{"type", "reasoning_text"}, {"text", text_}};
  return {{"type", "output_text"}, {"text", text_}, {"annotations", Json::array()}};
}

Json ResponseItems::about_part(Json more) const {
  Json out = {{"item_id", item_["id"]}, {"output_index", items_.size()}};
  if (kind_ != Kind::kCall) out["content_index"] = 0;
  out.update(more);
  return out;
}

void ResponseItems::open(Kind kind, const std::string& name, const Say& say) {
  is_open_ = true;
  kind_ = kind;
  text_.clear();
  switch (kind) {
    case Kind::kReasoning:
      item_ = {{"type", "reasoning"},
               {"id", "rs_" + random_hex(12)},
               {"status", "in_progress"},
               {"summary", Json::array()},
               {"content", Json::array()}};
      break;
    case Kind::kContent:
      item_ = {{"type", "message"},
               {"id", "msg_" + random_hex(12)},
               {"status", "in_progress"},
               {"role", "assistant"},
               {"content", Json::array()}};
      break;
    default:
      item_ = {{"type", "function_call"},
               {"id", "fc_" + random_hex(12)},
               {"call_id", new_call_id(state_, "call_")},
               {"name", name},
               {"arguments", ""},
               {"status", "in_progress"}};
  }
  say("response.output_item.added", {{"output_index", items_.size()}, {"item", item_}});
  if (kind != Kind::kCall) say("response.content_part.added", about_part({{"part", part()}}));
}

void ResponseItems::close(const char* status, const Say& say) {
  if (!std::exchange(is_open_, false)) return;
  item_["status"] = status;
  if (kind_ == Kind::kCall) {
    item_["arguments"] = text_;
    say("response.function_call_arguments.done",
        about_part({{"name", item_["name"]}, {"arguments", text_}}));
  } else {
    item_["content"] = Json::array({part()});
    if (kind_ == Kind::kReasoning) {
      say("response.reasoning_text.done", about_part({{"text", text_}}));
    } else {
      say("response.output_text.done", about_part({{"text", text_}, {"logprobs", Json::array()}}));
    }
    say("response.content_part.done", about_part({{"part", part()}}));
  }
  say("response.output_item.done", {{"output_index", items_.size()}, {"item", item_}});
  items_.push_back(std::move(item_));
}

void ResponseItems::add(const chat::ReplyPart& part, const Json& extra, const Say& say) {
  if (part.kind == Kind::kCallEnd) return close("completed", say);
  const Kind kind = part.kind == Kind::kArguments ? Kind::kCall : part.kind;
  const bool goes_on = is_open_ && kind_ == kind && part.kind != Kind::kCall;
  if (!goes_on) {
    close("completed", say);
    open(kind, part.text, say);
  }
  if (part.kind == Kind::kCall) return;
  text_ += part.text;
  Json delta = {{"delta", part.text}};
  if (kind == Kind::kContent) delta["logprobs"] = Json::array();
  delta.update(extra);
  const char* type = kind == Kind::kReasoning ? "response.reasoning_text.delta"
                     : kind == Kind::kContent ? "response.output_text.delta"
                                              : "response.function_call_arguments.delta";
  say(type, about_part(std::move(delta)));
}

void ResponseItems::open_message(const Say& say) {
  if (!is_open_) open(Kind::kContent, "", say);
}

void ResponseItems::finish(const char* status, const Say& say) {
  if (!any()) open_message(say);
  close(status, say);
}

}  // namespace aerie::server
