// Rendering is no part of what a user waits for.
#include <cstdio>

#include "tests/jinja/jinja_cases.h"
#include "tokenizer/chat_template.h"

namespace aerie::jinja_speed_test {

using test::cpu_seconds;
using test::kJinjaSlowdown;
using test::ordered_json;

TEST(JinjaSpeed, PublishedTemplates) {
  const std::filesystem::path path = "../shared/data/chat-templates/templates.jsonl";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no chat templates";
  std::vector<ChatMessage> messages = {{"system", "Be brief."}};
  for (int i = 0; i < 20; ++i) {
    messages.push_back({i % 2 == 0 ? "user" : "assistant", "Some words of a conversation. é"});
  }
  constexpr int kRounds = 20;
  double parsing = 0, slowest_parse = 0, rendering = 0, slowest = 0;
  int rendered = 0;
  const auto rows = test::read_ordered_rows(path);
  for (const ordered_json& row : rows) {
    const auto source = row.at("chat_template").get<std::string>();
    double start = cpu_seconds();
    for (int i = 0; i < kRounds; ++i) ASSERT_TRUE(ChatTemplate::parse(source).ok());
    const double parse = (cpu_seconds() - start) / kRounds;
    const auto chat = ChatTemplate::parse(source, {"<s>", "</s>"});
    if (!chat->render(messages, true).ok()) continue;
    ++rendered;
    start = cpu_seconds();
    for (int i = 0; i < kRounds; ++i) ASSERT_TRUE(chat->render(messages, true).ok());
    const double render = (cpu_seconds() - start) / kRounds;
    parsing += parse;
    rendering += render;
    slowest_parse = std::max(slowest_parse, parse);
    slowest = std::max(slowest, render);
  }
  ASSERT_GT(rendered, 25);
  std::printf(
      "%d templates, 21 messages: parse %.0f us (at most %.0f), render %.0f us (at most %.0f)\n",
      rendered, parsing / rendered * 1e6, slowest_parse * 1e6, rendering / rendered * 1e6,
      slowest * 1e6);
  EXPECT_LT(slowest_parse, 5e-3 * kJinjaSlowdown);
  EXPECT_LT(slowest, 1e-3 * kJinjaSlowdown);
}

// A long conversation takes time in proportion.
TEST(JinjaSpeed, LongConversation) {
  const auto chat = ChatTemplate::parse(
      "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + "
      "message['content'] | trim + '<|im_end|>' + '\n' }}{% endfor %}");
  ASSERT_TRUE(chat.ok());
  const std::vector<ChatMessage> messages(2000, {"user", std::string(2000, 'x')});
  const double start = cpu_seconds();
  const auto text = chat->render(messages, true);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_GT(text->size(), 4000000u);
  EXPECT_LT(cpu_seconds() - start, 0.2 * kJinjaSlowdown);
}

}  // namespace aerie::jinja_speed_test
