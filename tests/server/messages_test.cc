// /v1/messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/server/running_server.h"

namespace aerie::messages_test {

using test::Response;
using test::RunningServer;
using test::says;
using test::thinks;
using ::testing::HasSubstr;

std::string body(const std::string& more) {
  return R"({"max_tokens":200,"messages":[{"role":"user","content":"Hello"}],"tools":[)"
         R"({"name":"weather","input_schema":{"type":"object"}}])" +
         more + "}";
}

TEST(Messages, Whole) {
  RunningServer server(thinks(test::kThoughtAndCall));
  const Response response = server.post("/v1/messages", body(""));
  ASSERT_EQ(response.status, 200) << response.body;
  const Json out = response.json();
  EXPECT_EQ(out["type"], "message");
  EXPECT_EQ(out["role"], "assistant");
  EXPECT_EQ(out["stop_reason"], "tool_use");
  EXPECT_EQ(out["stop_sequence"], nullptr);
  ASSERT_EQ(out["content"].size(), 3u) << out;
  EXPECT_EQ(out["content"][0]["thinking"], "I need it.");
  EXPECT_EQ(out["content"][1]["text"], "Let me see.");
  EXPECT_EQ(out["content"][2]["type"], "tool_use");
  EXPECT_EQ(out["content"][2]["name"], "weather");
  EXPECT_EQ(out["content"][2]["input"]["place"], "Rome");
  EXPECT_EQ(out["usage"]["cache_read_input_tokens"], 3);
  EXPECT_GT(out["usage"]["output_tokens"], 20);
}

TEST(Messages, Streamed) {
  RunningServer server(thinks(test::kThoughtAndCall));
  const Response response = server.post("/v1/messages", body(R"(,"stream":true)"));
  EXPECT_THAT(response.body, HasSubstr("event: message_start\ndata: {\"type\":\"message_start\""));
  const auto events = response.events(false);
  Json blocks = Json::array();
  int open = 0;
  for (const Json& event : events) {
    const std::string type = event["type"];
    if (type == "content_block_start") {
      EXPECT_EQ(event["index"], blocks.size());
      EXPECT_EQ(open++, 0);
      blocks.push_back({{"type", event["content_block"]["type"]}, {"said", ""}});
    } else if (type == "content_block_delta") {
      const Json& delta = event["delta"];
      for (const char* key : {"text", "thinking", "partial_json"}) {
        if (delta.contains(key)) {
          Json& said = blocks.at(event["index"].get<size_t>())["said"];
          said = said.get<std::string>() + delta[key].get<std::string>();
        }
      }
    } else if (type == "content_block_stop") {
      EXPECT_EQ(--open, 0);
    }
  }
  ASSERT_EQ(blocks.size(), 3u);
  EXPECT_EQ(blocks[0]["said"], "I need it.");
  EXPECT_EQ(blocks[1]["said"], "Let me see.");
  EXPECT_EQ(blocks[2]["said"], R"({"place": "Rome"})");
  EXPECT_EQ(events.front()["message"]["usage"]["output_tokens"], 0);
  EXPECT_GT(events.front()["message"]["usage"]["input_tokens"], 5);
  EXPECT_EQ(events[events.size() - 2]["type"], "message_delta");
  EXPECT_EQ(events[events.size() - 2]["delta"]["stop_reason"], "tool_use");
  EXPECT_EQ(events.back()["type"], "message_stop");
}

TEST(Messages, StopReasons) {
  RunningServer server(says("One. Two."));
  const auto reason = [&](const std::string& more) {
    return server
        .post("/v1/messages", R"({"messages":[{"role":"user","content":"Hello"}],)" + more + "}")
        .json();
  };
  EXPECT_EQ(reason(R"("max_tokens":100)")["stop_reason"], "end_turn");
  EXPECT_EQ(reason(R"("max_tokens":3)")["stop_reason"], "max_tokens");
  const Json stopped = reason(R"("max_tokens":100,"stop_sequences":["x","Two"])");
  EXPECT_EQ(stopped["stop_reason"], "stop_sequence");
  EXPECT_EQ(stopped["stop_sequence"], "Two");
  EXPECT_EQ(stopped["content"][0]["text"], "One. ");
}

TEST(Messages, OfEarlierTurns) {
  RunningServer server(thinks("Well."));
  const Response response = server.post(
      "/v1/messages",
      R"({"max_tokens":9,"system":[{"type":"text","text":"Be brief."}],"messages":[)"
      R"({"role":"user","content":[{"type":"text","text":"Weather?"}]},)"
      R"({"role":"assistant","content":[{"type":"thinking","thinking":"T1","signature":""},)"
      R"({"type":"text","text":"C1"},{"type":"tool_use","id":"t1","name":"weather","input":{"x":1}}]},)"
      R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":)"
      R"([{"type":"text","text":"Sun"}]},{"type":"text","text":"And now?"}]}]})");
  ASSERT_EQ(response.status, 200) << response.body;
  const std::string prompt = server.prompt();
  EXPECT_THAT(prompt, HasSubstr("system\n|Be brief."));
  EXPECT_THAT(prompt, HasSubstr("assistant\nT1|C1[{"));
  EXPECT_THAT(prompt, HasSubstr(R"("arguments": {"x": 1})"));
  EXPECT_THAT(prompt, HasSubstr("tool\n|Sun"));
  EXPECT_THAT(prompt, HasSubstr("user\n|And now?"));
}

TEST(Messages, Settings) {
  RunningServer server(thinks("Well."));
  server.post("/v1/messages",
              body(R"(,"thinking":{"type":"enabled","budget_tokens":7},"top_k":5)"));
  EXPECT_EQ(server.service().last().sampling.top_k, 5);
  EXPECT_EQ(server.service().last().max_tokens, 200);
  ASSERT_TRUE(server.service().last().span_limit.has_value());
  EXPECT_EQ(server.service().last().span_limit->max_tokens, 7);
  server.post("/v1/messages", body(R"(,"thinking":{"type":"disabled"})"));
  EXPECT_THAT(server.prompt(), HasSubstr("</think>"));
  for (const char* choice : {R"({"type":"any"})", R"({"type":"tool","name":"weather"})"}) {
    EXPECT_EQ(server.post("/v1/messages", body(std::string(R"(,"tool_choice":)") + choice)).status,
              200);
    EXPECT_NE(server.service().last().grammar, nullptr);
  }
  const Json count = server.post("/v1/messages/count_tokens", body("")).json();
  server.post("/v1/messages", body(""));
  EXPECT_EQ(count["input_tokens"], server.service().last().prompt.size());
}

TEST(Messages, RefusesWhatIsWrong) {
  RunningServer server(thinks("Well."));
  for (
      const char* wrong :
      {R"({})",
       R"(5)",
       R"([])",
       R"({"max_tokens":5})",
       R"({"max_tokens":5,"messages":[]})",
       R"({"messages":[{"role":"user","content":"x"}]})",
       R"({"max_tokens":5,"messages":[{"role":"system","content":"x"}]})",
       R"({"max_tokens":5,"messages":[{"role":"user"}]})",
       R"({"max_tokens":5,"messages":[{"role":"user","content":5}]})",
       R"({"max_tokens":5,"messages":[{"role":"user","content":[5]}]})",
       R"({"max_tokens":5,"messages":[{"role":"user","content":[{"type":"image"}]}]})",
       R"({"max_tokens":5,"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"}]})",
       R"({"max_tokens":5,"messages":[{"role":"user","content":"x"}],"system":5})",
       R"({"max_tokens":5,"messages":[{"role":"user","content":"x"}],"n":2})",
       R"({"max_tokens":5,"messages":[{"role":"user","content":"x"}],"stop_sequences":"x"})",
       R"({"max_tokens":5,"messages":[{"role":"user","content":"x"}],"thinking":{"type":"on"}})",
       R"({"max_tokens":5,"messages":[{"role":"user","content":"x"}],"thinking":{"type":"enabled","budget_tokens":-1}})",
       R"({"max_tokens":5,"messages":[{"role":"user","content":"x"}],"tools":[{"type":"bash_1"}]})",
       R"({"max_tokens":5,"messages":[{"role":"user","content":"x"}],"tools":[{"name":""}]})",
       R"({"max_tokens":5,"messages":[{"role":"user","content":"x"}],"tool_choice":{"type":"all"}})",
       R"({"max_tokens":5,"messages":[{"role":"user","content":"x"}],"temperature":3})"}) {
    const Response response = server.post("/v1/messages", wrong);
    EXPECT_EQ(response.status, 400) << wrong << response.body;
    EXPECT_EQ(server.post("/v1/messages/count_tokens", wrong).status == 400 ||
                  std::string_view(wrong).find("max_tokens") == std::string_view::npos,
              true)
        << wrong;
  }
  const Json failed =
      server
          .post("/v1/messages", R"({"max_tokens":5,"messages":[{"role":"user","content":"FAIL"}]})")
          .json();
  EXPECT_TRUE(failed.contains("error"));
}

TEST(Messages, KeyInItsOwnHeader) {
  server::ServerOptions options;
  ASSERT_TRUE(options.gate.keys.add("secret").ok());
  RunningServer server(says("Hi"), std::move(options));
  const std::string hello = R"({"max_tokens":5,"messages":[{"role":"user","content":"x"}]})";
  EXPECT_EQ(server.post("/v1/messages", hello).status, 401);
  EXPECT_EQ(server.post("/v1/messages", hello, "x-api-key: wrong\r\n").status, 401);
  EXPECT_EQ(server.post("/v1/messages", hello, "x-api-key: secret\r\n").status, 200);
}

}  // namespace aerie::messages_test
