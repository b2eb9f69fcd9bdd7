// {"name": "f", "arguments": {...}}, or a list of such objects.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "chat/call_reader.h"

namespace aerie::chat {
namespace {

using Kind = ReplyPart::Kind;

class JsonCalls final : public CallReader {
 public:
  explicit JsonCalls(const std::vector<Tool>& tools) : tools_(tools) {}

  State read(std::string_view& text, std::vector<ReplyPart>& parts) override {
    while (at_ != At::kEnd) {
      const bool in_value = at_ == At::kKey || at_ == At::kValue;
      if (!in_value) text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
      if (text.empty()) return State::kMore;
      if (!step(text, parts)) return State::kNoCall;
    }
    return State::kDone;
  }

 private:
  enum class At : uint8_t {
    kBegin,
    kObject,
    kFirstKey,
    kKey,
    kColon,
    kValueBegin,
    kValue,
    kComma,
    kNext,
    kEnd,
  };

  // One sign, or what there is of a string or a value. False: this is no call.
  bool step(std::string_view& text, std::vector<ReplyPart>& parts) {
    const char c = text.front();
    switch (at_) {
      case At::kBegin:
        is_list_ = c == '[';
        at_ = At::kObject;
        if (is_list_) text.remove_prefix(1);
        return is_list_ || c == '{';
      case At::kObject:
        at_ = At::kFirstKey;
        text.remove_prefix(1);
        return c == '{';
      case At::kFirstKey:
        begin_value(At::kKey);
        return c == '"';
      case At::kColon:
        at_ = At::kValueBegin;
        text.remove_prefix(1);
        return c == ':';
      case At::kValueBegin:
        begin_value(At::kValue);
        streams_ = is_arguments() && tool_ != nullptr && c == '{' && !has_arguments_;
        if (streams_) begin_call(parts);
        return c != ',' && c != '}' && c != ']';
      case At::kKey:
      case At::kValue:
        return take_value(text, parts);
      case At::kComma:
        text.remove_prefix(1);
        if (c == ',') at_ = At::kFirstKey;
        return c == ',' || (c == '}' && end_object(parts));
      case At::kNext:
        text.remove_prefix(1);
        at_ = c == ',' ? At::kObject : At::kEnd;
        return c == ',' || c == ']';
      case At::kEnd:
        break;
    }
    return false;
  }

  bool is_arguments() const { return key_ == "arguments" || key_ == "parameters"; }

  void begin_value(At at) {
    at_ = at;
    end_ = {};
    value_.clear();
    streams_ = false;
  }

  void begin_call(std::vector<ReplyPart>& parts) {
    has_arguments_ = true;
    parts.push_back({Kind::kCall, tool_->name});
  }

  bool take_value(std::string_view& text, std::vector<ReplyPart>& parts) {
    const std::string_view piece = text.substr(0, end_.push(text));
    text.remove_prefix(piece.size());
    if (!streams_) {
      value_ += piece;
    } else if (!piece.empty()) {
      parts.push_back({Kind::kArguments, std::string(piece)});
    }
    if (!end_.done()) return true;
    if (at_ == At::kKey) return end_key();
    at_ = At::kComma;
    return streams_ || end_value();
  }

  std::optional<std::string> string_of(const std::string& json) const {
    const auto value = parse_json(json, "call");
    if (!value.ok() || !value->is_string()) return std::nullopt;
    return value->get<std::string>();
  }

  bool end_key() {
    auto key = string_of(value_);
    at_ = At::kColon;
    key_ = key.value_or("");
    // What has other members is an answer, which is not to wait for its end.
    constexpr std::array<std::string_view, 5> kMembers = {"name", "arguments", "parameters", "id",
                                                          "type"};
    return std::ranges::find(kMembers, key_) != kMembers.end();
  }

  // Of what was not passed on as it came.
  bool end_value() {
    if (key_ == "name" && tool_ == nullptr) {
      const auto name = string_of(value_);
      tool_ = name ? find_tool(tools_, *name) : nullptr;
      return tool_ != nullptr;
    }
    if (!is_arguments() || kept_) return true;
    kept_ = string_of(value_).value_or(value_);
    return parse_json(value_, "arguments").ok();
  }

  bool end_object(std::vector<ReplyPart>& parts) {
    if (tool_ == nullptr || (!has_arguments_ && !kept_)) return false;
    if (!has_arguments_) {
      begin_call(parts);
      parts.push_back({Kind::kArguments, std::move(*kept_)});
    }
    parts.push_back({Kind::kCallEnd});
    tool_ = nullptr;
    has_arguments_ = false;
    kept_.reset();
    at_ = is_list_ ? At::kNext : At::kEnd;
    return true;
  }

  const std::vector<Tool>& tools_;
  At at_ = At::kBegin;
  bool is_list_ = false;
  JsonValueEnd end_;
  std::string key_;
  std::string value_;     // of a key or a value that is not passed on as it comes
  bool streams_ = false;  // the value is, since it is the arguments' and the function is known
  const Tool* tool_ = nullptr;
  bool has_arguments_ = false;       // they were passed on
  std::optional<std::string> kept_;  // they came before the name, or as a string
};

}  // namespace

std::unique_ptr<CallReader> make_json_calls(const std::vector<Tool>& tools) {
  return std::make_unique<JsonCalls>(tools);
}

}  // namespace aerie::chat
