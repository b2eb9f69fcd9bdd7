#include "tokenizer/chat_template.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/jinja/jinja_cases.h"

namespace aerie::chat_template_test {

using test::ordered_json;

const std::filesystem::path kPublished = "../shared/data/chat-templates";
const std::string kMessage =
    R"({{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}})";
const std::string kReply =
    R"({% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %})";
const std::string kPlain = "{% for message in messages %}" + kMessage + "{% endfor %}" + kReply;
const std::string kSystem =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    R"({{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}{% endif %})" +
    kMessage + "{% endfor %}" + kReply;
const std::string kQwen15 =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    R"({{ '<|im_start|>system\nYou are a helpful assistant<|im_end|>\n' }}{% endif %})"
    R"({{'<|im_start|>' + message['role'] + '\n' + message['content']}})"
    "{% if (loop.last and add_generation_prompt) or not loop.last %}"
    R"({{ '<|im_end|>' + '\n'}}{% endif %}{% endfor %})"
    "{% if add_generation_prompt and messages[-1]['role'] != 'assistant' %}"
    R"({{ '<|im_start|>assistant\n' }}{% endif %})";

const std::vector<ChatMessage> kUser = {{"user", "Hi"}};
const std::vector<ChatMessage> kAnswered = {{"user", "Hi"}, {"assistant", "Yo"}};
const std::vector<ChatMessage> kWithSystem = {{"system", "Be."}, {"user", "Hi"}};

std::string render(const std::string& source, const std::vector<ChatMessage>& messages,
                   bool add_generation_prompt) {
  const auto chat = ChatTemplate::parse(source);
  EXPECT_TRUE(chat.ok()) << source;
  if (!chat.ok()) return "";
  const auto text = chat.value().render(messages, add_generation_prompt);
  return text.ok() ? text.value() : "error";
}

TEST(ChatTemplate, Plain) {
  EXPECT_EQ(render(kPlain, kUser, true), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(render(kPlain, kWithSystem, false),
            "<|im_start|>system\nBe.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n");
  EXPECT_EQ(render(kPlain, {}, true), "<|im_start|>assistant\n");
  EXPECT_EQ(render(kPlain, {}, false), "");
}

TEST(ChatTemplate, DefaultSystem) {
  const std::string system = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n";
  EXPECT_EQ(render(kSystem, kUser, true),
            system + "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(render(kSystem, kWithSystem, false),
            "<|im_start|>system\nBe.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n");
  EXPECT_EQ(render(kSystem, {}, true), "<|im_start|>assistant\n");
  const std::vector<ChatMessage> late = {{"user", "Hi"}, {"system", "Be."}};
  EXPECT_EQ(render(kSystem, late, false),
            system + "<|im_start|>user\nHi<|im_end|>\n<|im_start|>system\nBe.<|im_end|>\n");
}

TEST(ChatTemplate, Qwen15LeavesTheEndOpen) {
  const std::string system = "<|im_start|>system\nYou are a helpful assistant<|im_end|>\n";
  EXPECT_EQ(render(kQwen15, kUser, false), system + "<|im_start|>user\nHi");
  EXPECT_EQ(render(kQwen15, kUser, true),
            system + "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(render(kQwen15, kAnswered, false),
            system + "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYo");
  EXPECT_EQ(render(kQwen15, kAnswered, true),
            system + "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYo<|im_end|>\n");
  EXPECT_EQ(render(kQwen15, {}, false), "");
  EXPECT_EQ(render(kQwen15, {}, true), "error");
}

// All of these render as kPlain does in Jinja, set up as Hugging Face does.
TEST(ChatTemplate, LayoutDoesNotMatter) {
  const std::string same[] = {
      "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}"
      "{% endif %}" +
          kPlain,
      "{% if add_generation_prompt is not defined %}\n  {% set add_generation_prompt = false %}\n"
      "{% endif %}\n" +
          kPlain + "\n",
      "{% for message in messages %}\n"
      R"({{ "<|im_start|>" + message.role + "\n" + message.content + "<|im_end|>\n" }}{% endfor %})"
      "\n  {% if add_generation_prompt %}\n{{ \"<|im_start|>assistant\\n\" }}\t{%- endif %}",
      kPlain + "{{ '' }}\n",
      "{%- for message in messages -%}\r\n" + kMessage + "{%- endfor %}\r\n{# x #}\r\n" + kReply,
  };
  for (const std::string& source : same) {
    EXPECT_EQ(render(source, kWithSystem, true), render(kPlain, kWithSystem, true));
  }
}

TEST(ChatTemplate, TokensByName) {
  const std::string source = "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}";
  const auto without = ChatTemplate::parse(source);
  const auto with = ChatTemplate::parse(source, {"<s>", "</s>"});
  ASSERT_TRUE(without.ok() && with.ok());
  EXPECT_EQ(*without->render(kUser, true), "Hi");
  EXPECT_EQ(*with->render(kUser, true), "<s>Hi</s>");
  const ordered_json messages = {{{"role", "user"}, {"content", "Yo"}}};
  ChatInput input;
  input.messages = &messages;
  input.tokens.eos = "<end>";
  EXPECT_EQ(*with->render(input), "<s>Yo<end>");
  EXPECT_EQ(*without->render(input), "Yo<end>");
}

TEST(ChatTemplate, VariablesOfTheInput) {
  const auto chat = ChatTemplate::parse(
      "{{ messages | length }}{{ tools }}{{ documents }}{{ add_generation_prompt }}"
      "{{ enable_thinking | default('unset') }}{{ strftime_now('%d %b %Y') }}");
  ASSERT_TRUE(chat.ok());
  ChatInput input;
  input.now = test::golden_time();
  EXPECT_EQ(*chat->render(input), "0NoneNoneTrueunset02 Jan 2026");
  const ordered_json messages = {{{"role", "user"}, {"content", {{{"type", "text"}}}}}};
  const ordered_json tools = {{{"name", "f"}}};
  const ordered_json extra = {{"enable_thinking", false}, {"documents", ordered_json::array()}};
  input.messages = &messages;
  input.tools = &tools;
  input.add_generation_prompt = false;
  input.extra = &extra;
  EXPECT_EQ(*chat->render(input), "1[{'name': 'f'}][]FalseFalse02 Jan 2026");
  const ordered_json wrong = ordered_json::array();
  input.extra = &wrong;
  EXPECT_EQ(chat->render(input).status().code(), StatusCode::kInvalidArgument);
}

TEST(ChatTemplate, ErrorsSayWhere) {
  const auto broken = ChatTemplate::parse("{% if x %}\n{{ y | nope }}{% endif %}");
  ASSERT_FALSE(broken.ok());
  EXPECT_EQ(broken.status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(broken.status().message(),
            "chat template: template line 2, column 8: there is no filter 'nope'");
  const auto refusing = ChatTemplate::parse("{{ raise_exception('Only one message!') }}");
  ASSERT_TRUE(refusing.ok());
  const auto text = refusing->render(kUser, true);
  EXPECT_EQ(text.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(text.status().message(),
            "chat template: template line 1, column 19: the template refuses this: Only one "
            "message!");
}

// Any prefix of a template, and any single byte changed, is refused or harmless; never a crash.
TEST(ChatTemplate, DamagedTemplates) {
  for (const std::string& whole : {kPlain, kSystem, kQwen15}) {
    for (size_t i = 0; i < whole.size(); ++i) {
      std::vector<std::string> sources = {whole.substr(0, i)};
      for (const char c : {'\0', '{', '}', '%', '\'', '\\', '-', '#', '\n', '\xFF'}) {
        sources.push_back(whole);
        sources.back()[i] = c;
      }
      for (const std::string& source : sources) {
        const auto chat = ChatTemplate::parse(source);
        if (!chat.ok()) continue;
        const auto text = chat->render(kUser, false);
        EXPECT_TRUE(text.ok() || text.status().code() == StatusCode::kInvalidArgument) << source;
      }
    }
  }
}

// 36 published templates with 4 conversations each, rendered by Jinja2.
TEST(ChatTemplate, PublishedTemplates) {
  if (!std::filesystem::exists(kPublished)) GTEST_SKIP() << "no " << kPublished;
  std::map<std::string, std::string> sources;
  for (const auto& row : test::read_ordered_rows(kPublished / "templates.jsonl")) {
    sources[row.at("name").get<std::string>()] = row.at("chat_template").get<std::string>();
  }
  std::ifstream file(kPublished / "contexts.json");
  const ordered_json contexts = ordered_json::parse(file);
  int rendered = 0, refused = 0;
  for (const auto& row : test::read_ordered_rows(kPublished / "golden.jsonl")) {
    const auto chat = ChatTemplate::parse(sources.at(row.at("template").get<std::string>()));
    ASSERT_TRUE(chat.ok()) << row.at("template") << chat.status().message();
    ordered_json extra = contexts.at(row.at("context").get<std::string>());
    const ordered_json messages = extra.at("messages");
    const ordered_json tools = extra.value("tools", ordered_json());
    ChatInput input;
    input.messages = &messages;
    input.tools = &tools;
    input.add_generation_prompt = extra.at("add_generation_prompt").get<bool>();
    input.tokens = {extra.at("bos_token").get<std::string>(),
                    extra.at("eos_token").get<std::string>()};
    input.now = test::golden_time();
    for (const char* name : {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token",
                             "tools_in_user_message"}) {
      extra.erase(name);
    }
    input.extra = &extra;
    const auto text = chat->render(input);
    if (row.contains("error")) {
      ++refused;
      EXPECT_FALSE(text.ok()) << row.at("template") << row.at("context");
    } else {
      ++rendered;
      ASSERT_TRUE(text.ok()) << row.at("template") << text.status().message();
      EXPECT_EQ(*text, row.at("output").get<std::string>())
          << row.at("template") << row.at("context");
    }
  }
  EXPECT_EQ(rendered, 108);
  EXPECT_EQ(refused, 36);
}

}  // namespace aerie::chat_template_test
