// OpenAI's "harmony": a reply is messages, each with a header that names its channel and whom it is
// for (openai/harmony, docs/format.md): <|channel|>analysis<|message|>...<|end|><|start|>assistant
// <|channel|>commentary to=functions.f <|constrain|>json<|message|>{...}<|call|>
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "chat/call_reader.h"
#include "chat/harmony.h"
#include "chat/parsers.h"

namespace aerie::chat {
namespace {

using Kind = ReplyPart::Kind;

constexpr std::string_view kFunctions = "functions.";
constexpr std::array<std::string_view, 4> kEnds = {harmony::kEnd, harmony::kCall, harmony::kReturn,
                                                   harmony::kStart};
constexpr size_t kMaxHeader = 4096;

class HarmonyParser final : public ReplyParser {
 public:
  explicit HarmonyParser(std::vector<Tool> tools) : tools_(std::move(tools)) {}

  void push(std::string_view text, std::vector<ReplyPart>& parts) override {
    held_ += text;
    while (!held_.empty() && (in_header_ ? header(parts) : body(parts))) {
    }
  }

  void finish(std::vector<ReplyPart>& parts) override {
    // A header that was cut off says nothing.
    if (in_header_ && is_first_ && is_free() != false) begin_message(harmony::kFinal, "", parts);
    if (!in_header_) pass_on(held_.size(), parts);
    end_message(parts);
    held_.clear();
  }

 private:
  // The word behind `sign`.
  static std::string_view word_behind(std::string_view text, std::string_view sign) {
    const size_t at = text.find(sign);
    if (at == std::string_view::npos) return {};
    text.remove_prefix(at + sign.size());
    return text.substr(0, text.find_first_of(" \t\r\n<"));
  }

  // A model that knows no headers begins with what it has to say. Nothing: it may be a header yet.
  std::optional<bool> is_free() const {
    for (const std::string_view begin : {std::string_view("<|"), std::string_view(" to=")}) {
      const std::optional<bool> is_here = begins(held_, begin);
      if (!is_here) return std::nullopt;
      if (*is_here) return false;
    }
    return true;
  }

  bool header(std::vector<ReplyPart>& parts) {
    const std::optional<bool> free = is_first_ ? is_free() : false;
    if (!free) return false;
    const size_t at = *free ? 0 : held_.find(harmony::kMessage);
    if (at == std::string::npos && held_.size() <= kMaxHeader) return false;
    if (*free || at == std::string::npos) {
      begin_message(harmony::kFinal, "", parts);
      return true;
    }
    const std::string text = held_.substr(0, at);
    held_.erase(0, at + harmony::kMessage.size());
    begin_message(word_behind(text, harmony::kChannel), word_behind(text, "to="), parts);
    return true;
  }

  void begin_message(std::string_view channel, std::string_view recipient,
                     std::vector<ReplyPart>& parts) {
    in_header_ = is_first_ = false;
    kind_ = channel == harmony::kAnalysis ? Kind::kReasoning : Kind::kContent;
    if (recipient.starts_with(kFunctions)) recipient.remove_prefix(kFunctions.size());
    if (const Tool* tool = find_tool(tools_, recipient)) {
      kind_ = Kind::kArguments;
      parts.push_back({Kind::kCall, tool->name});
      return;
    }
    // Messages of one kind are told apart.
    bool& said = kind_ == Kind::kReasoning ? reasoned_ : said_;
    if (std::exchange(said, true)) space_ = "\n\n";
  }

  void pass_on(size_t size, std::vector<ReplyPart>& parts) {
    if (size == 0) return;
    parts.push_back({kind_, std::exchange(space_, "") + held_.substr(0, size)});
    held_.erase(0, size);
  }

  void end_message(std::vector<ReplyPart>& parts) {
    if (!in_header_ && kind_ == Kind::kArguments) parts.push_back({Kind::kCallEnd});
    in_header_ = true;
    space_.clear();
  }

  bool body(std::vector<ReplyPart>& parts) {
    size_t at = std::string::npos, size = 0, keep = 0;
    for (const std::string_view end : kEnds) {
      const size_t here = held_.find(end);
      keep = std::max(keep, held_length(held_, end));
      if (here < at) {
        at = here;
        size = end == harmony::kStart ? 0 : end.size();
      }
    }
    pass_on(at == std::string::npos ? held_.size() - keep : at, parts);
    if (at == std::string::npos) return false;
    held_.erase(0, size);
    end_message(parts);
    return true;
  }

  const std::vector<Tool> tools_;
  bool in_header_ = true;
  bool is_first_ = true;
  Kind kind_ = Kind::kContent;  // of the message's text
  bool reasoned_ = false;
  bool said_ = false;
  std::string held_;   // not decided yet
  std::string space_;  // before the next piece
};

}  // namespace

std::unique_ptr<ReplyParser> make_harmony_parser(std::vector<Tool> tools) {
  return std::make_unique<HarmonyParser>(std::move(tools));
}

}  // namespace aerie::chat
