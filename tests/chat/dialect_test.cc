#include "chat/dialect.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/chat/marked_tokenizer.h"
#include "tokenizer/chat_template.h"

namespace aerie::chat::dialect_test {

std::map<std::string, std::string> templates() {
  std::map<std::string, std::string> out;
  std::ifstream file("../shared/data/chat-templates/templates.jsonl");
  for (std::string line; std::getline(file, line);) {
    const auto one = nlohmann::json::parse(line);
    out[one["name"]] = one["chat_template"];
  }
  return out;
}

// What the makers' own words about their models say.
TEST(Dialect, OfPublishedTemplates) {
  const std::map<std::string, std::pair<std::string, std::string>> expected = {
      {"Apertus-8B-Instruct", {"json", "none"}},
      {"ByteDance-Seed-OSS", {"seed_oss", "seed_oss"}},
      {"GLM-4.6", {"glm45", "think"}},
      {"GLM-4.7-Flash", {"glm45", "think"}},
      {"HuggingFaceTB-SmolLM3-3B", {"none", "think"}},
      {"Mistral-Small-3.2-24B-Instruct-2506", {"mistral", "none"}},
      {"Qwen-QwQ-32B", {"hermes", "think"}},
      {"Qwen-Qwen2.5-7B-Instruct", {"hermes", "none"}},
      {"Qwen-Qwen3-0.6B", {"hermes", "think"}},
      {"Qwen3-Coder", {"qwen3_coder", "none"}},
      {"Qwen3.5-4B", {"qwen3_coder", "think"}},
      {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", {"deepseek_v3", "think"}},
      {"deepseek-ai-DeepSeek-V3.1", {"deepseek_v31", "think"}},
      {"ibm-granite-granite-3.3-2B-Instruct", {"granite", "think"}},
      {"microsoft-Phi-3.5-mini-instruct", {"none", "none"}},
      {"mistralai-Ministral-3-14B-Reasoning-2512", {"mistral", "mistral"}},
      {"mistralai-Mistral-Nemo-Instruct-2407", {"mistral_list", "none"}},
      {"openai-gpt-oss-120b", {"harmony", "harmony"}},
      {"cz-chatml", {"none", "none"}},
      {"cz-qwen2.5-instruct", {"hermes", "none"}},
  };
  const auto sources = templates();
  ASSERT_FALSE(sources.empty());
  for (const auto& [name, names] : expected) {
    ASSERT_TRUE(sources.contains(name)) << name;
    const Dialect dialect = detect_dialect(sources.at(name));
    EXPECT_EQ(dialect.calls_name, names.first) << name;
    EXPECT_EQ(dialect.reasoning_name, names.second) << name;
  }
}

TEST(Dialect, Chosen) {
  Dialect dialect = detect_dialect("{{ tools }}<tool_call>");
  EXPECT_TRUE(choose_calls("auto", dialect).ok());
  EXPECT_EQ(dialect.calls_name, "hermes");
  EXPECT_TRUE(choose_calls("glm45", dialect).ok());
  EXPECT_EQ(dialect.calls.body, CallBody::kKeyValues);
  EXPECT_TRUE(choose_reasoning("think", dialect).ok());
  EXPECT_EQ(dialect.reasoning.close, "</think>");
  EXPECT_TRUE(choose_reasoning("none", dialect).ok());
  EXPECT_EQ(dialect.reasoning.close, "");
  EXPECT_TRUE(choose_calls("harmony", dialect).ok());
  EXPECT_TRUE(dialect.harmony);
  EXPECT_TRUE(choose_calls("none", dialect).ok());
  EXPECT_FALSE(dialect.harmony);
  for (const char* name : {"qwen25", "glm47", "openai", "llama3", "deepseekv31"}) {
    EXPECT_TRUE(choose_calls(name, dialect).ok()) << name;
  }
  for (const char* name : {"qwen3", "deepseek_r1", "openai_gptoss"}) {
    EXPECT_TRUE(choose_reasoning(name, dialect).ok()) << name;
  }
  const Status unknown = choose_calls("hermess", dialect);
  EXPECT_NE(unknown.message().find("hermes, deepseek_v3"), std::string::npos) << unknown.message();
  EXPECT_FALSE(choose_reasoning("thinking", dialect).ok());
}

TEST(Dialect, WhereReasoningStarts) {
  const Dialect think = detect_dialect("</think>");
  EXPECT_EQ(reasoning_start(think, "user: say <think>\nassistant:\n"), ReasoningStart::kMaybe);
  EXPECT_EQ(reasoning_start(think, "assistant:<think>\n"), ReasoningStart::kOpen);
  EXPECT_EQ(reasoning_start(think, "assistant:<think>\n\n</think>\n\n"), ReasoningStart::kNever);
  EXPECT_EQ(reasoning_start(Dialect(), "<think>"), ReasoningStart::kNever);
}

// The prompts of published templates.
TEST(Dialect, StartsOfPublishedTemplates) {
  const auto sources = templates();
  const nlohmann::ordered_json messages = {{{"role", "user"}, {"content", "Hello"}}};
  const auto start = [&](const char* name, const char* extra) {
    const auto chat = ChatTemplate::parse(sources.at(name));
    const nlohmann::ordered_json more = nlohmann::ordered_json::parse(extra);
    ChatInput input;
    input.messages = &messages;
    input.extra = &more;
    return reasoning_start(detect_dialect(sources.at(name)), chat->render(input).value());
  };
  const char* on = R"({"enable_thinking":true})";
  const char* off = R"({"enable_thinking":false})";
  EXPECT_EQ(start("Qwen-Qwen3-0.6B", "{}"), ReasoningStart::kMaybe);
  EXPECT_EQ(start("Qwen-Qwen3-0.6B", off), ReasoningStart::kNever);
  EXPECT_EQ(start("Qwen3.5-4B", on), ReasoningStart::kOpen);
  EXPECT_EQ(start("Qwen-QwQ-32B", on), ReasoningStart::kOpen);
  EXPECT_EQ(start("deepseek-ai-DeepSeek-V3.1", R"({"thinking":true})"), ReasoningStart::kOpen);
  EXPECT_EQ(start("GLM-4.7-Flash", "{}"), ReasoningStart::kOpen);
  EXPECT_EQ(start("GLM-4.7-Flash", off), ReasoningStart::kNever);
  EXPECT_EQ(start("HuggingFaceTB-SmolLM3-3B", off), ReasoningStart::kNever);
}

TEST(Dialect, ShownTokens) {
  const test::MarkedTokenizer tokenizer({"<think>"},
                                        {"</think>", "[TOOL_CALLS]", "[ARGS]", "<|other|>"});
  Dialect dialect = detect_dialect("tools </think> [TOOL_CALLS] [ARGS]");
  EXPECT_EQ(shown_tokens(dialect, false, tokenizer).size(), 1u);
  EXPECT_EQ(shown_tokens(dialect, true, tokenizer).size(), 3u);
}

}  // namespace aerie::chat::dialect_test
