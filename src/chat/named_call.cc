// A function's name, a separator, and its arguments as JSON (Mistral, DeepSeek).
#include <optional>
#include <utility>

#include "chat/call_reader.h"

namespace aerie::chat {
namespace {

using Kind = ReplyPart::Kind;

constexpr std::string_view kCallId = "[CALL_ID]";
constexpr std::string_view kFence = "```json";

class NamedCall final : public CallReader {
 public:
  NamedCall(const CallSyntax& syntax, const std::vector<Tool>& tools)
      : syntax_(syntax), tools_(tools) {}

  State read(std::string_view& text, std::vector<ReplyPart>& parts) override {
    if (at_ == At::kBegin) {
      text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
      if (text.empty()) return State::kMore;
      // The list of an older template of the same makers.
      if (text.front() == '[' || text.front() == '{') list_ = make_json_calls(tools_);
      at_ = At::kName;
    }
    if (list_ != nullptr) return list_->read(text, parts);
    if (at_ == At::kName) {
      const State state = read_name(text);
      if (state != State::kDone) return state;
    }
    if (at_ == At::kBefore) {
      const State state = read_fence(text);
      if (state != State::kDone) return state;
      parts.push_back({Kind::kCall, name_});
      at_ = At::kArguments;
    }
    return read_arguments(text, parts);
  }

 private:
  enum class At : uint8_t { kBegin, kName, kBefore, kArguments };

  State read_name(std::string_view& text) {
    const std::string_view end = is_fenced_ ? "\n" : std::string_view(syntax_.separator);
    const size_t at = text.find(end);
    if (at == std::string_view::npos) {
      return text.size() > kMaxName ? State::kNoCall : State::kMore;
    }
    const std::string_view name = trimmed(text.substr(0, std::min(at, text.find(kCallId))));
    text.remove_prefix(at + end.size());
    if (syntax_.has_fence && !is_fenced_ && name == "function") {
      is_fenced_ = true;
      return read_name(text);
    }
    name_ = name;
    at_ = At::kBefore;
    return find_tool(tools_, name) != nullptr ? State::kDone : State::kNoCall;
  }

  // Up to the arguments' first bracket.
  State read_fence(std::string_view& text) {
    const size_t at = text.find('{');
    const std::string_view before = trimmed(text.substr(0, at));
    if (!before.empty() && !kFence.starts_with(before)) return State::kNoCall;
    if (at == std::string_view::npos) return State::kMore;
    text.remove_prefix(at);
    return State::kDone;
  }

  State read_arguments(std::string_view& text, std::vector<ReplyPart>& parts) {
    const std::string_view piece = text.substr(0, end_.push(text));
    text.remove_prefix(piece.size());
    if (!piece.empty()) parts.push_back({Kind::kArguments, std::string(piece)});
    if (!end_.done()) return State::kMore;
    parts.push_back({Kind::kCallEnd});
    return State::kDone;
  }

  const CallSyntax& syntax_;
  const std::vector<Tool>& tools_;
  At at_ = At::kBegin;
  std::unique_ptr<CallReader> list_;
  bool is_fenced_ = false;
  std::string name_;
  JsonValueEnd end_;
};

}  // namespace

std::unique_ptr<CallReader> make_named_call(const CallSyntax& syntax,
                                            const std::vector<Tool>& tools) {
  return std::make_unique<NamedCall>(syntax, tools);
}

}  // namespace aerie::chat
