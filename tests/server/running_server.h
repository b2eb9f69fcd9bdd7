// A server over a FakeService on a port of its own.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "server/server.h"
#include "tests/server/client.h"
#include "tests/server/fake_service.h"

namespace aerie::test {

class RunningServer {
 public:
  explicit RunningServer(FakeService::Options fake = {}, server::ServerOptions options = {})
      : service_(std::move(fake)) {
    auto server = server::Server::start(service_, std::move(options));
    EXPECT_TRUE(server.ok()) << server.status().message();
    server_ = std::move(server).value();
  }

  FakeService& service() { return service_; }
  server::Server& server() { return *server_; }
  int port() const { return server_->port(); }
  void stop() { server_.reset(); }
  // The text of the last request's prompt, control tokens by name.
  std::string prompt() {
    std::string text;
    for (const int32_t id : service_.last().prompt) text += service_.tokenizer().piece(id);
    return text;
  }

  Response post(std::string_view path, const std::string& body,
                std::string_view headers = "") const {
    return exchange(port(), "POST", path, body, headers);
  }
  Response get(std::string_view path, std::string_view headers = "") const {
    return exchange(port(), "GET", path, "", headers);
  }
  Response chat(const std::string& more, const std::string& content = "Hello") const {
    return post("/v1/chat/completions", R"({"messages":[{"role":"user","content":")" + content +
                                            "\"}]" + (more.empty() ? "" : ",") + more + "}");
  }
  Response complete(const std::string& more, const std::string& prompt = "Once upon") const {
    return post("/v1/completions",
                R"({"prompt":")" + prompt + "\"" + (more.empty() ? "" : ",") + more + "}");
  }

 private:
  FakeService service_;
  std::unique_ptr<server::Server> server_;
};

inline FakeService::Options says(std::string text) {
  FakeService::Options options;
  options.reply = [text = std::move(text)](const std::string&) { return text; };
  return options;
}

// A reply with a thought, something said and a call of "weather".
inline constexpr const char* kThoughtAndCall =
    "<think>\nI need it.\n</think>\n\nLet me see.<tool_call>\n"
    "{\"name\": \"weather\", \"arguments\": {\"place\": \"Rome\"}}\n</tool_call>";

// A template whose model thinks, and the same with the opening tag in the prompt.
inline FakeService::Options thinks(const std::string& reply, const std::string& begin = "") {
  FakeService::Options options = says(reply);
  options.chat_template =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.reasoning_content }}|{{ m.content }}"
      "{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}"
      "<|im_end|>\n{% endfor %}{% if tools %}{{ tools | length }}<tool_call> </think>{% endif %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n" +
      begin +
      "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n"
      "{% endif %}{% endif %}";
  return options;
}

}  // namespace aerie::test
