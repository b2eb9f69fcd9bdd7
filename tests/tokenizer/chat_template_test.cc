#include "tokenizer/chat_template.h"

#include <gtest/gtest.h>

#include "tests/tokenizer/vocabularies.h"

namespace aerie {
namespace {

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

// All of these render otherwise than the forms that are known, if only for some messages.
TEST(ChatTemplate, WhatWouldBeRenderedWronglyIsRefused) {
  const std::string loop = "{% for message in messages %}", end = "{% endfor %}";
  const std::string others[] = {
      "",
      "<|im_start|>",
      kReply,
      loop + kMessage + end,
      "{{ bos_token }}" + kPlain,
      "\n" + kPlain,
      kPlain + "\n\n\n",
      kPlain + " ",
      loop + "\n    " + kMessage + end + kReply,
      loop + kMessage + "\n" + end + kReply,
      loop + kMessage + kMessage + end + kReply,
      loop +
          R"({{'<|im_start|>' + message['role'] + '\n' + message['content'] | trim)"
          R"( + '<|im_end|>\n'}})" +
          end + kReply,
      loop + R"({{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>'}})" +
          end + kReply,
      loop + R"({{'<|im_start|>' + message['role'] + ' ' + message['content'] + '<|im_end|>\n'}})" +
          end + kReply,
      loop + R"({{'<|im_start|>user\n' + message['content'] + '<|im_end|>\n'}})" + end + kReply,
      loop +
          R"({{'<|im_start|>' + (message['role'] + '\n' + message['content']) + '<|im_end|>\n'}})" +
          end + kReply,
      "{% for message in messages[1:] %}" + kMessage + end + kReply,
      loop + "{% if loop.first and messages[0]['role'] != 'system' %}{{ 'You.' }}{% endif %}" +
          kMessage + end + kReply,
      loop +
          "{% if loop.first and messages[0]['role'] != 'tool' %}"
          R"({{ '<|im_start|>system\nYou.<|im_end|>\n' }}{% endif %})" +
          kMessage + end + kReply,
      loop + kMessage + end +
          "{% if add_generation_prompt %}{{ '<|im_start|>user\\n' }}{% endif %}",
      loop + kMessage + end + R"({{ '<|im_start|>assistant\n' }})",
      kPlain + "{{ 'x' }}",
      // Not Jinja.
      "{% for",
      "{{ 'x",
      "{# x",
      "{{ 'x' ",
      "{",
      R"({{ '\x41' }})",
      "{{ '\\",
  };
  for (const std::string& source : others) {
    const auto chat = ChatTemplate::parse(source);
    ASSERT_FALSE(chat.ok()) << source;
    EXPECT_EQ(chat.status().code(), StatusCode::kUnsupported);
    EXPECT_NE(chat.status().message().find("not one of the ChatML forms"), std::string::npos);
  }
}

TEST(ChatTemplate, DefaultSystemOfEveryKind) {
  const auto with = [](const std::string& literal) {
    return "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' "
           "%}{{ " +
           literal + " }}{% endif %}" + kMessage + "{% endfor %}" + kReply;
  };
  EXPECT_EQ(render(with(R"('<|im_start|>system\n<|im_end|>\n')"), kUser, false),
            "<|im_start|>system\n<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n");
  EXPECT_EQ(render(with(R"("<|im_start|>system\nIt's \"so\"\\\n'x'<|im_end|>\n")"), kUser, false),
            "<|im_start|>system\nIt's \"so\"\\\n'x'<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n");
  // The markers may not share bytes.
  EXPECT_FALSE(ChatTemplate::parse(with(R"('<|im_start|>system<|im_end|>\n')")).ok());
}

// Any prefix of a template, and any single byte changed, is refused or harmless; never a crash.
TEST(ChatTemplate, DamagedTemplates) {
  for (const std::string& whole : {kPlain, kSystem, kQwen15}) {
    for (size_t i = 0; i < whole.size(); ++i) {
      EXPECT_FALSE(ChatTemplate::parse(whole.substr(0, i)).ok()) << i;
      for (const char c : {'\0', '{', '}', '%', '\'', '\\', '-', '#', '\n', '\xFF'}) {
        std::string damaged = whole;
        damaged[i] = c;
        const auto chat = ChatTemplate::parse(damaged);
        EXPECT_TRUE(!chat.ok() || chat.value().render(kUser, false).ok());
      }
    }
  }
}

// None of the published templates in the shared goldens is one of the plain forms.
TEST(ChatTemplate, PublishedTemplatesOfOtherForms) {
  AERIE_SKIP_WITHOUT(test::kShared / "chat-templates");
  for (const auto& row : test::read_rows(test::kShared / "chat-templates/templates.jsonl")) {
    EXPECT_FALSE(ChatTemplate::parse(row.at("chat_template").get<std::string>()).ok())
        << row.at("name");
  }
}

}  // namespace
}  // namespace aerie
