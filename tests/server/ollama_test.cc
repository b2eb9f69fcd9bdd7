// Ollama's API.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/server/running_server.h"

namespace aerie::ollama_test {

using test::Response;
using test::RunningServer;
using test::says;
using test::thinks;

std::string chat(const std::string& more) {
  return R"({"messages":[{"role":"user","content":"Hello"}])" + more + "}";
}

constexpr const char* kTools =
    R"(,"tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object"}}}])";

std::vector<Json> lines_of(const Response& response) {
  std::vector<Json> out;
  std::istringstream text(response.body);
  for (std::string line; std::getline(text, line);) {
    auto value = parse_json(line, "line");
    EXPECT_TRUE(value.ok()) << line;
    if (value.ok()) out.push_back(std::move(*value));
  }
  return out;
}

TEST(Ollama, Chat) {
  RunningServer server(thinks(test::kThoughtAndCall));
  const Json whole =
      server.post("/api/chat", chat(std::string(kTools) + R"(,"stream":false)")).json();
  EXPECT_EQ(whole["message"]["thinking"], "I need it.");
  EXPECT_EQ(whole["message"]["content"], "Let me see.");
  EXPECT_EQ(whole["message"]["tool_calls"][0]["function"]["arguments"]["place"], "Rome");
  EXPECT_EQ(whole["done"], true);
  EXPECT_EQ(whole["done_reason"], "stop");
  EXPECT_GT(whole["eval_count"], 20);
  const Response streamed = server.post("/api/chat", chat(kTools));
  EXPECT_EQ(streamed.header("Content-Type"), "application/x-ndjson");
  std::string thinking, content;
  Json calls = Json::array();
  const auto lines = lines_of(streamed);
  for (const Json& line : lines) {
    thinking += line["message"].value("thinking", "");
    content += line["message"]["content"];
    for (const Json& call : line["message"].value("tool_calls", Json::array())) {
      calls.push_back(call);
    }
    EXPECT_EQ(line["done"], &line == &lines.back());
  }
  EXPECT_EQ(thinking, "I need it.");
  EXPECT_EQ(content, "Let me see.");
  EXPECT_EQ(calls, whole["message"]["tool_calls"]);
}

TEST(Ollama, Options) {
  RunningServer server(thinks("Well."));
  const Response response =
      server.post("/api/chat",
                  chat(R"(,"model":"fake-model:latest","think":false,"format":"json","options":)"
                       R"({"temperature":0.5,"num_predict":7,"num_ctx":99,"repeat_penalty":1.5})"));
  ASSERT_EQ(response.status, 200) << response.body;
  const Request request = server.service().last();
  EXPECT_EQ(request.sampling.temperature, 0.5);
  EXPECT_EQ(request.sampling.repetition_penalty, 1.5);
  EXPECT_EQ(request.max_tokens, 7);
  EXPECT_NE(request.grammar, nullptr);
  EXPECT_EQ(server.post("/api/chat", chat(R"(,"options":{"num_predict":-1})")).status, 200);
  EXPECT_EQ(server.service().last().max_tokens, 0);
  for (const char* wrong :
       {R"({})", R"(5)", R"({"messages":5})", R"({"messages":[5]})", R"({"messages":[]})",
        R"({"messages":[{"role":"user","content":"x","images":["a"]}]})",
        R"({"messages":[{"role":"user","content":"x"}],"format":5})",
        R"({"messages":[{"role":"user","content":"x"}],"think":"much"})",
        R"({"messages":[{"role":"user","content":"x"}],"options":5})",
        R"({"messages":[{"role":"user","content":"x"}],"options":{"temperature":"x"}})"}) {
    EXPECT_EQ(server.post("/api/chat", wrong).status, 400) << wrong;
  }
  EXPECT_EQ(server.post("/api/chat", chat(R"(,"model":"other")")).status, 404);
}

TEST(Ollama, Generate) {
  RunningServer server(says("Hi there"));
  const auto ask = [&](const std::string& more) {
    return server.post("/api/generate", R"({"prompt":"Hello","stream":false)" + more + "}").json();
  };
  EXPECT_EQ(ask("")["response"], "Hi there");
  const size_t chat_tokens = server.service().last().prompt.size();
  EXPECT_EQ(ask(R"(,"raw":true)")["response"], "Hi there");
  EXPECT_LT(server.service().last().prompt.size(), chat_tokens);
  EXPECT_EQ(server.post("/api/generate", R"({"prompt":"x","suffix":"y"})").status, 400);
  EXPECT_EQ(server.post("/api/generate", R"({})").status, 400);
  EXPECT_EQ(server.post("/api/generate", R"({"raw":true})").status, 400);
  const auto lines = lines_of(server.post("/api/generate", R"({"prompt":"Hello"})"));
  std::string text;
  for (const Json& line : lines) text += line["response"];
  EXPECT_EQ(text, "Hi there");
}

TEST(Ollama, Models) {
  RunningServer server(thinks("Well."));
  EXPECT_EQ(server.get("/api/tags").json()["models"][0]["name"], "fake-model");
  EXPECT_TRUE(server.get("/api/version").json()["version"].is_string());
  const Json model = server.post("/api/show", R"({"model":"fake-model:latest"})").json();
  EXPECT_EQ(model["capabilities"], Json({"completion", "tools", "thinking"}));
  EXPECT_EQ(model["model_info"]["general.context_length"], 1 << 16);
  EXPECT_EQ(server.post("/api/show", R"({"model":"other"})").status, 404);
  EXPECT_EQ(server.post("/api/show", R"({})").status, 400);
}

}  // namespace aerie::ollama_test
