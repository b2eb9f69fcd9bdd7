// Calls whose arguments stand one by one between tags: <parameter=a>...</parameter> (Qwen3-Coder,
// Seed-OSS) and <arg_key>a</arg_key><arg_value>...</arg_value> (GLM).
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "chat/call_reader.h"

namespace aerie::chat {
namespace {

using Kind = ReplyPart::Kind;

// The line ends that templates put around a value are not part of it.
std::string_view without_line_ends(std::string_view text) {
  if (text.starts_with('\n')) text.remove_prefix(1);
  if (text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

// What both forms have in common: a name, then arguments, each of which is passed on when it is
// complete.
class TaggedCall : public CallReader {
 public:
  explicit TaggedCall(const std::vector<Tool>& tools) : tools_(tools) {}

 protected:
  bool begin_call(std::string_view name, std::vector<ReplyPart>& parts) {
    tool_ = find_tool(tools_, name);
    if (tool_ != nullptr) parts.push_back({Kind::kCall, tool_->name});
    return tool_ != nullptr;
  }
  void add_argument(std::string_view key, std::string_view text, std::vector<ReplyPart>& parts) {
    std::string piece = count_++ == 0 ? "{" : ", ";
    piece += Json(key).dump(-1, ' ', false, Json::error_handler_t::replace);
    piece += ": " + argument_json(*tool_, key, text);
    parts.push_back({Kind::kArguments, std::move(piece)});
  }
  State end_call(std::vector<ReplyPart>& parts) {
    parts.push_back({Kind::kArguments, count_ == 0 ? "{}" : "}"});
    parts.push_back({Kind::kCallEnd});
    return State::kDone;
  }
  bool begun() const { return tool_ != nullptr; }

  // What stands before `end`, which is taken off too. False: it has not come yet.
  static bool take_until(std::string_view end, std::string_view& text, std::string_view& before) {
    const size_t at = text.find(end, 0);
    if (at == std::string_view::npos) return false;
    before = text.substr(0, at);
    text.remove_prefix(at + end.size());
    return true;
  }
  // Whether `word` is in the text, which begins where it did the last time: what was looked through
  // then is not again.
  bool has_come(std::string_view word, std::string_view text) {
    const size_t at = text.find(word, std::min(searched_, text.size()));
    const bool has = at != std::string_view::npos;
    searched_ = has ? 0 : text.size() - std::min(text.size(), word.size() - 1);
    return has;
  }
  // What a wait for `word` is worth.
  static State wait_for(std::string_view word, std::string_view text) {
    const bool may_come = text.size() < word.size() ? word.starts_with(text) : false;
    return may_come ? State::kMore : State::kNoCall;
  }

 private:
  const std::vector<Tool>& tools_;
  const Tool* tool_ = nullptr;
  int count_ = 0;
  size_t searched_ = 0;
};

class ParametersCall final : public TaggedCall {
 public:
  using TaggedCall::TaggedCall;

  State read(std::string_view& text, std::vector<ReplyPart>& parts) override {
    constexpr std::string_view kFunction = "<function=";
    constexpr std::string_view kFunctionEnd = "</function>";
    constexpr std::string_view kParameter = "<parameter=";
    for (;;) {
      text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
      if (text.empty()) return State::kMore;
      if (!begun()) {
        if (!text.starts_with(kFunction)) return wait_for(kFunction, text);
        std::string_view rest = text.substr(kFunction.size()), name;
        if (!take_until(">", rest, name)) {
          return rest.size() > kMaxName ? State::kNoCall : State::kMore;
        }
        text = rest;
        if (!begin_call(trimmed(name), parts)) return State::kNoCall;
      } else if (text.starts_with(kFunctionEnd)) {
        text.remove_prefix(kFunctionEnd.size());
        return end_call(parts);
      } else if (text.starts_with(kParameter)) {
        if (!has_come("</parameter>", text)) return State::kMore;
        std::string_view rest = text.substr(kParameter.size()), name, value;
        if (!take_until(">", rest, name) || !take_until("</parameter>", rest, value)) {
          return State::kMore;
        }
        text = rest;
        add_argument(trimmed(name), without_line_ends(value), parts);
      } else {
        const bool may_come = kFunctionEnd.starts_with(text) || kParameter.starts_with(text);
        return may_come ? State::kMore : State::kNoCall;
      }
    }
  }
};

class KeyValuesCall final : public TaggedCall {
 public:
  KeyValuesCall(const CallSyntax& syntax, const std::vector<Tool>& tools)
      : TaggedCall(tools), syntax_(syntax) {}

  State read(std::string_view& text, std::vector<ReplyPart>& parts) override {
    constexpr std::string_view kKey = "<arg_key>";
    if (!begun()) {
      text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
      const size_t end = text.find_first_of("\n<");
      if (end == std::string_view::npos) {
        return text.size() > kMaxName ? State::kNoCall : State::kMore;
      }
      const std::string_view name = trimmed(text.substr(0, end));
      text.remove_prefix(end);
      if (!begin_call(name, parts)) return State::kNoCall;
    }
    for (;;) {
      text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
      if (text.starts_with(syntax_.call.close)) return end_call(parts);
      if (!text.starts_with(kKey)) {
        const bool may_come = kKey.starts_with(text) || syntax_.call.close.starts_with(text);
        return may_come ? State::kMore : State::kNoCall;
      }
      if (!has_come("</arg_value>", text)) return State::kMore;
      std::string_view rest = text.substr(kKey.size()), key, between, value;
      if (!take_until("</arg_key>", rest, key) || !take_until("<arg_value>", rest, between) ||
          !take_until("</arg_value>", rest, value)) {
        return State::kMore;
      }
      text = rest;
      add_argument(trimmed(key), value, parts);
    }
  }

 private:
  const CallSyntax& syntax_;
};

}  // namespace

std::unique_ptr<CallReader> make_parameters_call(const std::vector<Tool>& tools) {
  return std::make_unique<ParametersCall>(tools);
}

std::unique_ptr<CallReader> make_key_values_call(const CallSyntax& syntax,
                                                 const std::vector<Tool>& tools) {
  return std::make_unique<KeyValuesCall>(syntax, tools);
}

}  // namespace aerie::chat
