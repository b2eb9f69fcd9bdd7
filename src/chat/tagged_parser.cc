// Reasoning and calls between tags, in what is else content.
#include <algorithm>
#include <optional>
#include <utility>

#include "chat/call_reader.h"
#include "chat/parsers.h"

namespace aerie::chat {
namespace {

using Kind = ReplyPart::Kind;

// Models that were trained on one form and are given another one's template use these most.
Dialect with_tags(Dialect dialect) {
  if (dialect.calls.call.open.empty()) dialect.calls.call = {"<tool_call>", "</tool_call>"};
  return dialect;
}

class TaggedParser final : public ReplyParser {
 public:
  TaggedParser(const Dialect& dialect, ReasoningStart start, std::vector<Tool> tools,
               CallForms forms)
      : dialect_(forms == CallForms::kAny ? with_tags(dialect) : dialect),
        tools_(std::move(tools)),
        opening_(dialect_.calls.section.open.empty() ? dialect_.calls.call.open
                                                     : dialect_.calls.section.open),
        takes_plain_(forms == CallForms::kAny || dialect.calls.call.open.empty()),
        takes_python_(forms == CallForms::kAny),
        may_reason_(start == ReasoningStart::kMaybe) {
    if (start == ReasoningStart::kOpen) at_ = At::kReasoningBegin;
  }

  void push(std::string_view text, std::vector<ReplyPart>& parts) override {
    held_ += text;
    while (!held_.empty() && step(parts)) {
    }
  }

  // Nothing more comes, so that what is held is what it looks like.
  void finish(std::vector<ReplyPart>& parts) override {
    const bool reasons = at_ == At::kReasoningBegin || at_ == At::kReasoning;
    if (at_ == At::kCall && open_) {
      parts.push_back({Kind::kCallEnd});
    } else if (at_ != At::kBetween || !raw_.empty()) {
      add(reasons ? Kind::kReasoning : Kind::kContent, space_ + raw_ + held_, parts);
    }
    held_.clear();
  }

 private:
  enum class At : uint8_t {
    kReasoningBegin,  // white space before it is no part of it
    kReasoning,
    kReasoningEnd,  // line ends behind it are no content
    kStart,         // of the content: what its first signs are is not known yet
    kContent,
    kBetween,  // before, between and behind calls
    kCall,
  };

  // Whether there is more to do without more text.
  bool step(std::vector<ReplyPart>& parts) {
    switch (at_) {
      case At::kReasoningBegin:
        return skip(kSpace, At::kReasoning);
      case At::kReasoning:
        return reason(parts);
      case At::kReasoningEnd:
        return skip("\r\n", At::kStart);
      case At::kStart:
        return start();
      case At::kContent:
        return content(parts);
      case At::kBetween:
        return between(parts);
      case At::kCall:
        return call(parts);
    }
    return false;
  }

  bool skip(std::string_view signs, At next) {
    held_.erase(0, std::min(held_.find_first_not_of(signs), held_.size()));
    if (!held_.empty()) at_ = next;
    return !held_.empty();
  }

  void add(Kind kind, std::string text, std::vector<ReplyPart>& parts) {
    if (text.empty()) return;
    if (kind == Kind::kContent) said_ = true;
    parts.push_back({kind, std::move(text)});
  }

  // Passes on the first bytes of what is held, but for white space at their end.
  void pass_on(Kind kind, size_t size, std::vector<ReplyPart>& parts) {
    std::string text = std::exchange(space_, "") + held_.substr(0, size);
    held_.erase(0, size);
    const size_t last = text.find_last_not_of(kSpace);
    const size_t keep = last == std::string::npos ? 0 : last + 1;
    space_ = text.substr(keep);
    text.resize(keep);
    add(kind, std::move(text), parts);
  }

  // Takes it for a part of a call, for as long as that may be one.
  void take(size_t size) {
    raw_.append(held_, 0, size);
    held_.erase(0, size);
  }

  bool reason(std::vector<ReplyPart>& parts) {
    const std::string& close = dialect_.reasoning.close;
    const size_t at = held_.find(close);
    if (at == std::string::npos) {
      pass_on(Kind::kReasoning, held_.size() - held_length(held_, close), parts);
      return false;
    }
    pass_on(Kind::kReasoning, at, parts);
    space_.clear();
    held_.erase(0, close.size());
    at_ = At::kReasoningEnd;
    return true;
  }

  bool start() {
    const size_t first = held_.find_first_not_of(kSpace);
    if (first == std::string::npos) return false;
    const std::string_view text = std::string_view(held_).substr(first);
    const auto reasons = begins(text, may_reason_ ? dialect_.reasoning.open : std::string_view());
    const auto python =
        begins(text, takes_python_ && !tools_.empty() ? kPythonTag : std::string_view());
    const auto opens = begins(text, tools_.empty() ? std::string_view() : opening_);
    if (!reasons || !python || !opens) return false;
    const bool is_json =
        takes_plain_ && !tools_.empty() && !*opens && (text.front() == '{' || text.front() == '[');
    if (*reasons) {
      held_.erase(0, first + dialect_.reasoning.open.size());
      at_ = At::kReasoningBegin;
    } else if (*python || is_json) {
      take(first + (*python ? kPythonTag.size() : 0));
      open_call(make_json_calls(tools_));
      is_plain_ = true;
    } else {
      at_ = At::kContent;
    }
    may_reason_ = false;
    return true;
  }

  bool content(std::vector<ReplyPart>& parts) {
    const bool looks = !tools_.empty() && !opening_.empty();
    const size_t at = looks ? held_.find(opening_) : std::string::npos;
    if (at == std::string::npos) {
      pass_on(Kind::kContent, held_.size() - (looks ? held_length(held_, opening_) : 0), parts);
      return false;
    }
    pass_on(Kind::kContent, at, parts);
    if (said_) add(Kind::kContent, std::exchange(space_, ""), parts);
    raw_ = std::exchange(space_, "");
    is_plain_ = false;
    after_call_ = false;
    at_ = At::kBetween;
    if (!dialect_.calls.section.open.empty()) take(opening_.size());
    return true;
  }

  // Tags and, where calls have none, what separates them. Anything else is content again.
  bool between(std::vector<ReplyPart>& parts) {
    const size_t first = held_.find_first_not_of(kSpace);
    if (first == std::string::npos) return false;
    const std::string_view text = std::string_view(held_).substr(first);
    const CallSyntax& calls = dialect_.calls;
    const std::string_view opening = is_plain_ ? "{" : std::string_view(calls.call.open);
    const auto opens = begins(text, opening);
    if (opens && *opens) {
      take(first + (is_plain_ ? 0 : opening.size()));
      open_call(is_plain_ ? make_json_calls(tools_) : make_reader());
      return true;
    }
    bool undecided = !opens;
    std::vector<std::string_view> closings{calls.call.close, calls.section.close};
    if (is_plain_) closings = {";", ","};
    if (calls.has_fence) closings.emplace_back("```");
    for (const std::string_view tag : closings) {
      const auto is_here = begins(text, tag);
      undecided = undecided || !is_here;
      if (!is_here || !*is_here) continue;
      take(first + tag.size());
      if (after_call_) raw_.clear();
      return true;
    }
    if (undecided) return false;
    if (after_call_) held_.erase(0, first);
    give_up(parts);
    return true;
  }

  // What was taken for a call is content.
  void give_up(std::vector<ReplyPart>& parts) {
    add(Kind::kContent, std::exchange(raw_, ""), parts);
    at_ = At::kContent;
  }

  std::unique_ptr<CallReader> make_reader() const {
    switch (dialect_.calls.body) {
      case CallBody::kNamed:
        return make_named_call(dialect_.calls, tools_);
      case CallBody::kParameters:
        return make_parameters_call(tools_);
      case CallBody::kKeyValues:
        return make_key_values_call(dialect_.calls, tools_);
      default:
        return make_json_calls(tools_);
    }
  }

  void open_call(std::unique_ptr<CallReader> reader) {
    reader_ = std::move(reader);
    open_ = false;
    after_call_ = false;
    at_ = At::kCall;
  }

  bool call(std::vector<ReplyPart>& parts) {
    std::string_view rest = held_;
    const size_t before = parts.size();
    const CallReader::State state = reader_->read(rest, parts);
    take(held_.size() - rest.size());
    if (parts.size() > before) {
      open_ = parts.back().kind != Kind::kCallEnd;
      after_call_ = true;
    }
    if (after_call_) raw_.clear();
    if (state == CallReader::State::kMore) return false;
    if (state == CallReader::State::kDone) {
      at_ = At::kBetween;
      return true;
    }
    // As far as it was passed on it stays a call.
    if (std::exchange(open_, false)) parts.push_back({Kind::kCallEnd});
    give_up(parts);
    return true;
  }

  const Dialect dialect_;
  const std::vector<Tool> tools_;
  const std::string opening_;  // of what may be calls
  const bool takes_plain_;     // calls without tags
  const bool takes_python_;    // kPythonTag before them
  At at_ = At::kStart;
  bool may_reason_;
  bool said_ = false;        // content was passed on
  std::string held_;         // not decided yet
  std::string space_;        // white space that belongs to what follows it, if anything does
  std::string raw_;          // taken for a part of a call, which may turn out to be none
  bool is_plain_ = false;    // calls without tags
  bool open_ = false;        // a call was passed on, but not its end
  bool after_call_ = false;  // one was
  std::unique_ptr<CallReader> reader_;
};

}  // namespace

std::unique_ptr<ReplyParser> make_tagged_parser(const Dialect& dialect, ReasoningStart start,
                                                std::vector<Tool> tools, CallForms forms) {
  return std::make_unique<TaggedParser>(dialect, start, std::move(tools), forms);
}

std::unique_ptr<ReplyParser> make_reply_parser(const Dialect& dialect, ReasoningStart start,
                                               std::vector<Tool> tools, CallForms forms) {
  if (dialect.harmony) return make_harmony_parser(std::move(tools));
  return make_tagged_parser(dialect, start, std::move(tools), forms);
}

}  // namespace aerie::chat
