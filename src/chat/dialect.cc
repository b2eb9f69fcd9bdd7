#include "chat/dialect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/errors.h"
#include "chat/harmony.h"

namespace aerie::chat {
namespace {

struct NamedCalls {
  std::string_view name;
  // A template that writes all of these has this syntax; the first in the list that fits.
  std::vector<std::string_view> signs;
  CallSyntax syntax;
  bool short_ids = false;
};

const std::vector<NamedCalls>& known_calls() {
  static const std::vector<NamedCalls> list = {
      {"seed_oss",
       {"<seed:tool_call>", "<function="},
       {CallBody::kParameters, {}, {"<seed:tool_call>", "</seed:tool_call>"}, "", "", "\n", false},
       false},
      {"qwen3_coder",
       {"<tool_call>", "<function="},
       {CallBody::kParameters, {}, {"<tool_call>", "</tool_call>"}, "", "", "\n", false},
       false},
      {"glm45",
       {"<tool_call>", "<arg_key>"},
       {CallBody::kKeyValues, {}, {"<tool_call>", "</tool_call>"}, "", "", "\n", false},
       false},
      {"hermes",
       {"<tool_call>"},
       {CallBody::kJson, {}, {"<tool_call>", "</tool_call>"}, "", "arguments", "\n", false},
       false},
      {"deepseek_v3",
       {"<｜tool▁calls▁begin｜>", "```json"},
       {CallBody::kNamed,
        {"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"},
        {"<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"},
        "<｜tool▁sep｜>",
        "",
        "",
        true},
       false},
      {"deepseek_v31",
       {"<｜tool▁calls▁begin｜>"},
       {CallBody::kNamed,
        {"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"},
        {"<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"},
        "<｜tool▁sep｜>",
        "",
        "",
        false},
       false},
      {"mistral",
       {"[TOOL_CALLS]", "[ARGS]"},
       {CallBody::kNamed, {}, {"[TOOL_CALLS]", ""}, "[ARGS]", "", "", false},
       true},
      {"mistral_list",
       {"[TOOL_CALLS]"},
       {CallBody::kJsonList, {}, {"[TOOL_CALLS]", ""}, "", "arguments", "", false},
       true},
      {"granite",
       {"<|tool_call|>"},
       {CallBody::kJsonList, {}, {"<|tool_call|>", ""}, "", "arguments", "", false},
       false},
      {"llama3_json",
       {"<|start_header_id|>", "\"parameters\""},
       {CallBody::kJson, {}, {}, "", "parameters", "", false},
       false},
      {"json", {"tools"}, {CallBody::kJson, {}, {}, "", "arguments", "", false}, false},
  };
  return list;
}

struct NamedReasoning {
  std::string_view name;
  Tags tags;
};

const std::vector<NamedReasoning>& known_reasoning() {
  static const std::vector<NamedReasoning> list = {
      {"seed_oss", {"<seed:think>", "</seed:think>"}},
      {"mistral", {"[THINK]", "[/THINK]"}},
      {"think", {"<think>", "</think>"}},
  };
  return list;
}

constexpr std::string_view kHarmony = "harmony";

using Alias = std::pair<std::string_view, std::string_view>;

// What vLLM and SGLang call them.
constexpr Alias kCallAliases[] = {
    {"qwen", "hermes"},
    {"qwen25", "hermes"},
    {"qwen3_xml", "qwen3_coder"},
    {"glm", "glm45"},
    {"glm47", "glm45"},
    {"deepseekv3", "deepseek_v3"},
    {"deepseekv31", "deepseek_v31"},
    {"llama3", "llama3_json"},
    {"llama4_json", "llama3_json"},
    {"openai", kHarmony},
    {"gpt-oss", kHarmony},
};
constexpr Alias kReasoningAliases[] = {
    {"deepseek_r1", "think"}, {"deepseek-r1", "think"}, {"deepseek_v3", "think"},
    {"deepseek-v3", "think"}, {"qwen3", "think"},       {"qwen3-thinking", "think"},
    {"glm45", "think"},       {"granite", "think"},     {"openai_gptoss", kHarmony},
    {"gpt-oss", kHarmony},
};

template <typename List>
std::string_view own_name(std::string_view name, const List& aliases) {
  const auto it = std::ranges::find(aliases, name, &Alias::first);
  return it == std::end(aliases) ? name : it->second;
}

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

void take(const NamedCalls& one, Dialect& dialect) {
  dialect.calls_name = one.name;
  dialect.calls = one.syntax;
  dialect.short_ids = one.short_ids;
}

void take_harmony(Dialect& dialect) {
  dialect = {};
  dialect.calls_name = dialect.reasoning_name = kHarmony;
  dialect.harmony = true;
}

template <typename List>
Status unknown(std::string_view what, std::string_view name, const List& list) {
  std::vector<std::string_view> names{"auto", "none", kHarmony};
  for (const auto& one : list) names.push_back(one.name);
  return invalid_argument("{} '{}' is not known; there are {}; without it the template decides",
                          what, name, fmt::join(names, ", "));
}

}  // namespace

Dialect detect_dialect(std::string_view source) {
  Dialect dialect;
  if (has(source, harmony::kChannel) && has(source, harmony::kMessage)) {
    take_harmony(dialect);
    return dialect;
  }
  for (const NamedReasoning& one : known_reasoning()) {
    if (!has(source, one.tags.close)) continue;
    dialect.reasoning_name = one.name;
    dialect.reasoning = one.tags;
    break;
  }
  const auto fits = [&](const NamedCalls& one) {
    return std::ranges::all_of(one.signs, [&](auto sign) { return has(source, sign); });
  };
  const auto it = std::ranges::find_if(known_calls(), fits);
  if (it != known_calls().end()) take(*it, dialect);
  return dialect;
}

Status choose_calls(std::string_view name, Dialect& dialect) {
  name = own_name(name, kCallAliases);
  // Their older form goes by the same name elsewhere.
  const bool is_older = name == "mistral" && dialect.calls_name == "mistral_list";
  if (name == "auto" || is_older) return {};
  if (name == kHarmony) {
    take_harmony(dialect);
    return {};
  }
  if (dialect.harmony) dialect = {};
  if (name == "none") {
    take({"none", {}, {}, false}, dialect);
    return {};
  }
  const auto it = std::ranges::find(known_calls(), name, &NamedCalls::name);
  if (it == known_calls().end()) return unknown("the form of tool calls", name, known_calls());
  take(*it, dialect);
  return {};
}

Status choose_reasoning(std::string_view name, Dialect& dialect) {
  name = own_name(name, kReasoningAliases);
  if (name == "auto") return {};
  if (name == kHarmony) {
    take_harmony(dialect);
    return {};
  }
  if (dialect.harmony) dialect = {};
  const auto it = std::ranges::find(known_reasoning(), name, &NamedReasoning::name);
  if (name != "none" && it == known_reasoning().end()) {
    return unknown("the form of reasoning", name, known_reasoning());
  }
  dialect.reasoning_name = name;
  dialect.reasoning = name == "none" ? Tags{} : it->tags;
  return {};
}

std::vector<int32_t> shown_tokens(const Dialect& dialect, bool with_calls,
                                  const Tokenizer& tokenizer) {
  std::vector<std::string_view> names{dialect.reasoning.open, dialect.reasoning.close};
  if (dialect.harmony) {
    names = {harmony::kStart,     harmony::kChannel, harmony::kMessage,
             harmony::kConstrain, harmony::kEnd,     harmony::kCall};
  } else if (with_calls) {
    const CallSyntax& calls = dialect.calls;
    names.insert(names.end(), {calls.section.open, calls.section.close, calls.call.open,
                               calls.call.close, calls.separator, kPythonTag, "[CALL_ID]"});
  }
  std::vector<int32_t> ids;
  for (const std::string_view name : names) {
    const int32_t id = name.empty() ? -1 : tokenizer.find(name);
    if (id >= 0 && tokenizer.is_control(id) && !tokenizer.is_end(id)) ids.push_back(id);
  }
  return ids;
}

ReasoningStart reasoning_start(const Dialect& dialect, std::string_view prompt) {
  if (dialect.reasoning.close.empty()) return ReasoningStart::kNever;
  const size_t last = prompt.find_last_not_of(" \t\r\n");
  prompt = prompt.substr(0, last == std::string_view::npos ? 0 : last + 1);
  if (prompt.ends_with(dialect.reasoning.close)) return ReasoningStart::kNever;
  return prompt.ends_with(dialect.reasoning.open) ? ReasoningStart::kOpen : ReasoningStart::kMaybe;
}

}  // namespace aerie::chat
