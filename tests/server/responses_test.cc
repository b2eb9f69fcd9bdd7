// /v1/responses: items.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/server/running_server.h"

namespace aerie::responses_test {

using test::Response;
using test::RunningServer;
using test::thinks;
using ::testing::HasSubstr;

std::string body(const std::string& more) {
  return R"({"input":"Hello","tools":[{"type":"function","name":"weather","parameters":)"
         R"({"type":"object"}}])" +
         more + "}";
}

TEST(ResponseItems, Whole) {
  RunningServer server(thinks(test::kThoughtAndCall));
  const Json out = server.post("/v1/responses", body("")).json();
  ASSERT_EQ(out["output"].size(), 3u) << out;
  EXPECT_EQ(out["output"][0]["type"], "reasoning");
  EXPECT_EQ(out["output"][0]["content"][0]["text"], "I need it.");
  EXPECT_EQ(out["output"][1]["content"][0]["text"], "Let me see.");
  const Json& call = out["output"][2];
  EXPECT_EQ(call["type"], "function_call");
  EXPECT_EQ(call["name"], "weather");
  EXPECT_EQ(call["arguments"], R"({"place": "Rome"})");
  EXPECT_EQ(call["status"], "completed");
  EXPECT_GT(out["usage"]["output_tokens_details"]["reasoning_tokens"], 3);
  EXPECT_EQ(out["tools"][0]["name"], "weather");
  EXPECT_EQ(out["status"], "completed");
}

// The events say the same as the whole answer, in order, each item begun and ended once.
TEST(ResponseItems, Streamed) {
  RunningServer server(thinks(test::kThoughtAndCall));
  const Json whole = server.post("/v1/responses", body("")).json();
  const auto events = server.post("/v1/responses", body(R"(,"stream":true)")).events(false);
  Json items = Json::array();
  int number = 0;
  for (const Json& event : events) {
    EXPECT_EQ(event["sequence_number"], number++);
    const std::string type = event["type"];
    if (type == "response.output_item.added") {
      EXPECT_EQ(event["output_index"], items.size());
      items.push_back({{"type", event["item"]["type"]}, {"text", ""}, {"done", 0}});
    } else if (type.ends_with(".delta")) {
      Json& text = items.at(event["output_index"].get<size_t>())["text"];
      text = text.get<std::string>() + event["delta"].get<std::string>();
    } else if (type == "response.output_item.done") {
      Json& item = items.at(event["output_index"].get<size_t>());
      item["done"] = item["done"].get<int>() + 1;
      EXPECT_EQ(event["item"]["type"], item["type"]);
    }
  }
  ASSERT_EQ(items.size(), 3u);
  EXPECT_EQ(items[0]["text"], "I need it.");
  EXPECT_EQ(items[1]["text"], "Let me see.");
  EXPECT_EQ(items[2]["text"], R"({"place": "Rome"})");
  for (const Json& item : items) EXPECT_EQ(item["done"], 1);
  EXPECT_EQ(events.back()["type"], "response.completed");
  Json last = events.back()["response"];
  ASSERT_EQ(last["output"].size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(last["output"][i].value("content", Json()),
              whole["output"][i].value("content", Json()));
    EXPECT_EQ(last["output"][i].value("arguments", ""), whole["output"][i].value("arguments", ""));
  }
}

TEST(ResponseItems, OfEarlierTurns) {
  RunningServer server(thinks("Well."));
  const Response response = server.post(
      "/v1/responses",
      R"({"instructions":"Be brief.","input":[{"role":"user","content":"Weather?"},)"
      R"({"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"T1"}]},)"
      R"({"type":"message","role":"assistant","content":[{"type":"output_text","text":"C1"}]},)"
      R"({"type":"function_call","call_id":"c1","name":"weather","arguments":"{\"x\":1}"},)"
      R"({"type":"function_call_output","call_id":"c1","output":"Sun"}]})");
  ASSERT_EQ(response.status, 200) << response.body;
  const std::string text = server.prompt();
  EXPECT_THAT(text, HasSubstr("T1|C1[{"));
  EXPECT_THAT(text, HasSubstr(R"("arguments": {"x": 1})"));
  EXPECT_THAT(text, HasSubstr("|Sun"));
}

TEST(ResponseItems, RefusesWhatIsWrong) {
  RunningServer server(thinks("Well."));
  for (const char* wrong :
       {R"({"input":[{"type":"function_call","name":"x"}]})",
        R"({"input":[{"type":"function_call","call_id":"c"}]})",
        R"({"input":[{"type":"function_call_output","output":"x"}]})",
        R"({"input":[{"role":null,"content":"x"},{"type":"reasoning","content":"y"}]})",
        R"({"input":[{"content":"x"}]})", R"({"input":[{"role":"assistant"}]})",
        R"({"input":[{"type":"web_search_call"}]})", R"({"input":5})", R"({"input":[5]})",
        R"({"input":"x","tools":[{"type":"web_search"}]})",
        R"({"input":"x","tools":[{"type":"function"}]})",
        R"({"input":"x","tools":[{"type":"function","name":"f"}],"tool_choice":{"name":"g"}})",
        R"({"input":"x","reasoning":{"effort":"much"}})", R"({"input":"x","reasoning":5})"}) {
    EXPECT_EQ(server.post("/v1/responses", wrong).status, 400) << wrong;
  }
  EXPECT_EQ(server.post("/v1/responses", body(R"(,"tool_choice":"required")")).status, 200);
  EXPECT_NE(server.service().last().grammar, nullptr);
  EXPECT_EQ(
      server.post("/v1/responses", body(R"(,"tool_choice":{"type":"function","name":"weather"})"))
          .status,
      200);
}

}  // namespace aerie::responses_test
