// /v1/chat/completions and what it shares with the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/server/running_server.h"

namespace aerie::chat_test {

using test::Response;
using test::RunningServer;
using test::says;
using test::thinks;
using ::testing::HasSubstr;

std::string text_of(const std::vector<Json>& events, int index = 0) {
  std::string text;
  for (const Json& event : events) {
    for (const Json& choice : event["choices"]) {
      if (choice["index"] == index && choice["delta"].contains("content")) {
        text += choice["delta"]["content"].get<std::string>();
      }
    }
  }
  return text;
}

TEST(Chat, Whole) {
  RunningServer server(says("Hi there"));
  const Response response = server.chat(R"("max_tokens":100,"return_token_ids":true)");
  ASSERT_EQ(response.status, 200) << response.body;
  const Json out = response.json();
  EXPECT_EQ(out["object"], "chat.completion");
  EXPECT_EQ(out["model"], "fake-model");
  EXPECT_EQ(out["choices"][0]["message"]["content"], "Hi there");
  EXPECT_EQ(out["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(out["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(out["usage"]["completion_tokens"], 9);
  EXPECT_EQ(out["usage"]["prompt_tokens"], out["prompt_token_ids"].size());
  EXPECT_EQ(out["usage"]["prompt_tokens_details"]["cached_tokens"], 3);
  EXPECT_EQ(out["choices"][0]["token_ids"].size(), 9);
  EXPECT_EQ(out["aerie"]["rounds"], 5);
  EXPECT_NEAR(out["aerie"]["accepted_length"].get<double>(), 1.8, 1e-9);
  EXPECT_EQ(server.service().last().client, "127.0.0.1");
  EXPECT_EQ(server.service().last().sampling.temperature, 1.0);
}

TEST(Chat, WhatARequestLeavesOpenIsAsTheMakersRecommend) {
  server::ServerOptions options;
  options.api.sampling.temperature = 0.6;
  options.api.sampling.top_k = 20;
  RunningServer server(says("Hi"), std::move(options));
  server.chat(R"("top_p":0.5)");
  EXPECT_EQ(server.service().last().sampling.temperature, 0.6);
  EXPECT_EQ(server.service().last().sampling.top_k, 20);
  EXPECT_EQ(server.service().last().sampling.top_p, 0.5);
  server.chat(R"("temperature":0,"top_k":0)");
  EXPECT_EQ(server.service().last().sampling.temperature, 0.0);
  EXPECT_EQ(server.service().last().sampling.top_k, 0);
}

TEST(Chat, StreamSaysTheSame) {
  server::ServerOptions options;
  options.api.allow_trace = true;
  RunningServer server(says("Hi there, you"), std::move(options));
  const Response response =
      server.chat(R"("stream":true,"stream_options":{"include_usage":true},"trace":true)");
  EXPECT_EQ(response.header("Content-Type"), "text/event-stream; charset=utf-8");
  const auto events = response.events();
  ASSERT_GE(events.size(), 4u);
  EXPECT_EQ(events[0]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(text_of(events), "Hi there, you");
  size_t traced = 0;
  for (const Json& event : events) {
    EXPECT_EQ(event["id"], events[0]["id"]);
    EXPECT_EQ(event["object"], "chat.completion.chunk");
    if (event.contains("trace")) traced += event["trace"]["tokens"].size();
  }
  EXPECT_EQ(traced, 14u);
  const Json& last = events.back();
  EXPECT_TRUE(last["choices"].empty());
  EXPECT_EQ(last["usage"]["completion_tokens"], 14);
  EXPECT_EQ(last["aerie"]["rounds"], 7);
  EXPECT_EQ(events[events.size() - 2]["choices"][0]["finish_reason"], "stop");
}

TEST(Chat, StreamIntervalJoinsRounds) {
  server::ServerOptions options;
  options.api.stream_interval = 4;
  RunningServer server(says(std::string(64, 'x')), std::move(options));
  const auto events = server.chat(R"("stream":true)").events();
  EXPECT_EQ(text_of(events), std::string(64, 'x'));
  EXPECT_LT(events.size(), 16u);
}

TEST(Chat, Choices) {
  RunningServer server(says("abc"));
  const Json whole = server.chat(R"("n":3,"seed":4)").json();
  ASSERT_EQ(whole["choices"].size(), 3u);
  EXPECT_EQ(whole["usage"]["completion_tokens"], 12);
  EXPECT_EQ(server.service().last().sampling.choice, 2u);
  EXPECT_EQ(server.service().last().sampling.seed, 4u);
  const auto events = server.chat(R"("n":3,"stream":true)").events();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(text_of(events, i), "abc");
}

TEST(Chat, Logprobs) {
  RunningServer server(says("ab"));
  const Json content = server.chat(R"("logprobs":true,"top_logprobs":2)")
                           .json()["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 3u);
  EXPECT_EQ(content[0]["token"], "a");
  EXPECT_EQ(content[0]["logprob"], -2.0);
  EXPECT_EQ(content[0]["bytes"], Json::array({97}));
  EXPECT_EQ(content[0]["top_logprobs"].size(), 2u);
}

TEST(Chat, StopAndLength) {
  RunningServer server(says("one two three"));
  const Json stopped = server.chat(R"("stop":[" two"])").json();
  EXPECT_EQ(stopped["choices"][0]["message"]["content"], "one");
  EXPECT_EQ(stopped["choices"][0]["finish_reason"], "stop");
  const Json cut = server.chat(R"("max_completion_tokens":4,"max_tokens":9)").json();
  EXPECT_EQ(cut["choices"][0]["message"]["content"], "one ");
  EXPECT_EQ(cut["choices"][0]["finish_reason"], "length");
}

// As many as anybody wants, as long as they are no burden together.
TEST(Chat, ManyStops) {
  RunningServer server(says("one two three"));
  Json stops = Json::array();
  for (int i = 0; i < 1000; ++i) stops.push_back("stop " + std::to_string(i));
  stops.push_back(" two");
  const Json stopped = server.chat("\"stop\":" + stops.dump()).json();
  EXPECT_EQ(stopped["choices"][0]["message"]["content"], "one");
  stops.push_back(std::string(60'000, 'x'));
  const Response refused = server.chat("\"stop\":" + stops.dump());
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.json()["error"]["param"], "stop");
}

TEST(Chat, Prediction) {
  RunningServer server(says("abcd"));
  const Json out = server.chat(R"("prediction":{"type":"content","content":"abc"})").json();
  EXPECT_EQ(server.service().last().prediction.size(), 3u);
  const Json& details = out["usage"]["completion_tokens_details"];
  EXPECT_EQ(details["accepted_prediction_tokens"], 3);
  EXPECT_EQ(details["rejected_prediction_tokens"], 6);
}

TEST(Chat, Speculation) {
  RunningServer server;
  const auto asked = [&](const std::string& speculation) {
    const Response response = server.chat("\"speculation\":" + speculation);
    EXPECT_EQ(response.status, 200) << response.body;
    return server.service().last();
  };
  EXPECT_TRUE(asked("true").speculate);
  EXPECT_FALSE(asked("\"off\"").speculate);
  EXPECT_FALSE(asked(R"({"enabled":false})").speculate);
  EXPECT_EQ(asked("\"suffix\"").speculation, 2);
  EXPECT_EQ(asked(R"({"method":"ngram","depth":3})").speculation, 1);
  EXPECT_EQ(asked(R"({"method":"ngram","depth":3})").max_draft_depth, 3);
  EXPECT_EQ(asked("\"ngram:num_speculative_tokens=4\"").speculation, 1);
  EXPECT_EQ(server.chat(R"("speculation":"magic")").status, 400);
  EXPECT_EQ(server.chat(R"("speculation":5)").status, 400);
}

TEST(Chat, NamesOfControlTokensStayText) {
  RunningServer server;
  const Json out =
      server.chat(R"("return_token_ids":true)", "a<|im_end|>b<|im_start|>system").json();
  const auto ids = out["prompt_token_ids"].get<std::vector<int32_t>>();
  EXPECT_EQ(std::count(ids.begin(), ids.end(), test::kTurnStart), 2);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), test::kTurnEnd), 1);
  std::string prompt;
  for (const int32_t id : ids) prompt += server.service().tokenizer().piece(id);
  EXPECT_THAT(prompt, HasSubstr("a<|im_end|>b<|im_start|>system"));
}

TEST(Chat, Constraints) {
  RunningServer server;
  for (
      const char* one :
      {R"("response_format":{"type":"json_object"})",
       R"("response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object"}}})",
       R"("guided_choice":["a","b"])", R"("guided_regex":"a+")",
       R"("guided_json":{"type":"object"})", R"("grammar":"root ::= \"a\"")",
       R"("structured_outputs":{"regex":"a+"})",
       R"("structured_outputs":{"json":{"type":"object"}})"}) {
    const Response response = server.chat(one);
    EXPECT_EQ(response.status, 200) << one << response.body;
    EXPECT_NE(server.service().last().grammar, nullptr) << one;
  }
  EXPECT_EQ(server.chat(R"("response_format":{"type":"text"})").status, 200);
  EXPECT_EQ(server.service().last().grammar, nullptr);
  for (
      const char* one :
      {R"("response_format":{"type":"xml"})", R"("guided_choice":[])", R"("guided_regex":5)",
       R"("structured_outputs":{})", R"("guided_regex":"a","guided_choice":["a"])",
       R"("response_format":{"type":"json_schema","json_schema":{"schema":{"type":"no such"}}})"}) {
    EXPECT_EQ(server.chat(one).status, 400) << one;
  }
}

constexpr const char* kTools =
    R"("tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object"}}}])";

TEST(Chat, ToolCalls) {
  RunningServer server(
      says("Let me see.<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"place\": \"Rome\"}}\n"
           "</tool_call>"));
  const Json out = server.chat(kTools).json();
  const Json& choice = out["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["content"], "Let me see.");
  const Json& call = choice["message"]["tool_calls"][0];
  EXPECT_EQ(call["function"]["name"], "weather");
  EXPECT_EQ(call["function"]["arguments"], R"({"place": "Rome"})");
  const auto events = server.chat(std::string(kTools) + R"(,"stream":true)").events();
  EXPECT_EQ(text_of(events), "Let me see.");
  std::string name, arguments;
  int pieces = 0;
  for (const Json& event : events) {
    const Json& delta = event["choices"][0]["delta"];
    if (!delta.contains("tool_calls")) continue;
    for (const Json& piece : delta["tool_calls"]) {
      ++pieces;
      EXPECT_EQ(piece["index"], 0);
      EXPECT_EQ(piece.contains("id"), name.empty());
      name += piece["function"].value("name", "");
      arguments += piece["function"]["arguments"];
    }
  }
  EXPECT_EQ(name, "weather");
  EXPECT_EQ(arguments, R"({"place": "Rome"})");
  EXPECT_GT(pieces, 4);  // as they come
  EXPECT_EQ(events.back()["choices"][0]["finish_reason"], "tool_calls");
}

TEST(Chat, ToolChoices) {
  RunningServer server(says(R"({"name":"weather","arguments":{"place":"Oslo"}})"));
  const auto with = [&](const std::string& choice) {
    return server.chat(kTools + std::string(R"(,"tool_choice":)") + choice);
  };
  const Json named = with(R"({"type":"function","function":{"name":"weather"}})").json();
  EXPECT_NE(server.service().last().grammar, nullptr);
  EXPECT_EQ(named["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "weather");
  EXPECT_EQ(named["choices"][0]["message"]["content"], nullptr);
  EXPECT_EQ(with(R"("required")").status, 200);
  EXPECT_NE(server.service().last().grammar, nullptr);
  const Json none = with(R"("none")").json();
  EXPECT_EQ(server.service().last().grammar, nullptr);
  EXPECT_FALSE(none["choices"][0]["message"].contains("tool_calls"));
  EXPECT_EQ(with(R"({"type":"function","function":{"name":"other"}})").status, 400);
  EXPECT_EQ(with(R"("sometimes")").status, 400);
  EXPECT_EQ(server.chat(R"("tools":[{"type":"strange"}])").status, 400);
  EXPECT_EQ(server.chat(R"("tool_choice":"required")").status, 400);
}

TEST(Chat, Reasoning) {
  RunningServer server(thinks("<think>\nIs it?\nYes.\n</think>\n\nIt is."));
  const Json whole = server.chat("\"seed\":1").json();
  const Json& message = whole["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], "Is it?\nYes.");
  EXPECT_EQ(message["content"], "It is.");
  const int thought = whole["usage"]["completion_tokens_details"]["reasoning_tokens"];
  EXPECT_GT(thought, 8);
  EXPECT_LT(thought, whole["usage"]["completion_tokens"]);
  const auto events =
      server.chat(R"("stream":true,"stream_options":{"include_usage":true})").events();
  std::string reasoning, content;
  for (const Json& event : events) {
    if (event["choices"].empty()) {
      EXPECT_EQ(event["usage"]["completion_tokens_details"]["reasoning_tokens"], thought);
      continue;
    }
    const Json& delta = event["choices"][0]["delta"];
    reasoning += delta.value("reasoning_content", "");
    content += delta.value("content", "");
    EXPECT_TRUE(content.empty() || !delta.contains("reasoning_content"));
  }
  EXPECT_EQ(reasoning, "Is it?\nYes.");
  EXPECT_EQ(content, "It is.");
  const Json hidden = server.chat(R"("include_reasoning":false)").json();
  EXPECT_FALSE(hidden["choices"][0]["message"].contains("reasoning_content"));
  EXPECT_EQ(hidden["choices"][0]["message"]["content"], "It is.");
}

TEST(Chat, ReasoningThatThePromptBegins) {
  RunningServer server(thinks("Hm.</think>It is.", "<think>\n"));
  const Json message = server.chat("\"seed\":1").json()["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], "Hm.");
  EXPECT_EQ(message["content"], "It is.");
}

TEST(Chat, ReasoningEffort) {
  RunningServer server(thinks("<think>Hm.</think>It is."));
  // The template leaves it out, and what looks like it is content then.
  const Json off = server.chat(R"("reasoning_effort":"none")").json();
  EXPECT_EQ(off["choices"][0]["message"]["content"], "<think>Hm.</think>It is.");
  EXPECT_FALSE(server.service().last().span_limit.has_value());
  const Json own = server.chat(R"("chat_template_kwargs":{"enable_thinking":false})").json();
  EXPECT_EQ(own["choices"][0]["message"]["content"], "<think>Hm.</think>It is.");
  EXPECT_EQ(server.chat(R"("reasoning_effort":"low")").status, 200);
  EXPECT_EQ(server.chat(R"("reasoning_effort":"most")").status, 400);
  EXPECT_EQ(server.chat(R"("reasoning_effort":3)").status, 400);
  EXPECT_EQ(server.chat(R"("max_reasoning_tokens":5)").status, 200);
  ASSERT_TRUE(server.service().last().span_limit.has_value());
  EXPECT_EQ(server.service().last().span_limit->max_tokens, 5);
  EXPECT_EQ(server.service().last().span_limit->close, "</think>");
  EXPECT_FALSE(server.service().last().span_limit->is_open);
  EXPECT_EQ(server.chat(R"("max_reasoning_tokens":-1)").status, 400);
  EXPECT_EQ(server.chat(R"("max_reasoning_tokens":"many")").status, 400);
}

TEST(Chat, ConstraintsBeginBehindReasoning) {
  RunningServer server(thinks("<think>Hm.</think>{}"));
  EXPECT_EQ(server.chat(R"("response_format":{"type":"json_object"})").status, 200);
  const auto grammar = server.service().last().grammar;
  ASSERT_NE(grammar, nullptr);
  const auto constraint = make_constraint(grammar);
  const Tokenizer& tokenizer = server.service().tokenizer();
  std::vector<int32_t> ids;
  ASSERT_TRUE(tokenizer.encode("<think>Hm.</think>{", {false, true}, ids).ok());
  for (const int32_t id : ids) {
    EXPECT_TRUE(constraint->allows(id)) << tokenizer.piece(id);
    constraint->advance(id);
  }
  ids.clear();
  ASSERT_TRUE(tokenizer.encode("x", {false, true}, ids).ok());
  EXPECT_FALSE(constraint->allows(ids.front()));
}

TEST(Chat, StrictTools) {
  RunningServer server(thinks("Well."));
  constexpr const char* kStrict =
      R"("tools":[{"type":"function","function":{"name":"weather","strict":true,)"
      R"("parameters":{"type":"object","properties":{"x":{"type":"integer"}}}}}])";
  EXPECT_EQ(server.chat(kStrict).json()["choices"][0]["message"]["content"], "Well.");
  EXPECT_NE(server.service().last().grammar, nullptr);
  EXPECT_EQ(server.chat(kTools).status, 200);
  EXPECT_EQ(server.service().last().grammar, nullptr);
  EXPECT_EQ(server
                .chat(R"("tools":[{"type":"function","function":{"name":"w","strict":true,)"
                      R"("parameters":{"type":"no such"}}}])")
                .status,
            400);
}

// The texts of earlier turns reach the template by its own names.
TEST(Chat, ReasoningOfEarlierTurns) {
  RunningServer server(thinks("Well."));
  for (const char* name : {"reasoning_content", "reasoning"}) {
    const Response response = server.post(
        "/v1/chat/completions",
        std::string(R"({"messages":[{"role":"assistant","content":"x",")") + name +
            R"(":"I thought"},{"role":"user","content":"y"}],"return_token_ids":true})");
    ASSERT_EQ(response.status, 200) << response.body;
    std::string prompt;
    for (const int32_t id : response.json()["prompt_token_ids"].get<std::vector<int32_t>>()) {
      prompt += server.service().tokenizer().piece(id);
    }
    EXPECT_THAT(prompt, HasSubstr("I thought|x")) << name;
  }
}

TEST(Chat, TemplateWithoutTools) {
  test::FakeService::Options options;
  options.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}";
  RunningServer server(std::move(options));
  EXPECT_EQ(server.chat(kTools).status, 400);
  EXPECT_EQ(server.chat(std::string(kTools) + R"(,"tool_choice":"none")").status, 200);
}

TEST(Chat, RefusesWhatIsWrong) {
  RunningServer server;
  for (const char* more : {R"("temperature":-1)",
                           R"("temperature":2.5)",
                           R"("temperature":"hot")",
                           R"("top_p":0)",
                           R"("top_p":1.5)",
                           R"("n":0)",
                           R"("n":100000)",
                           R"("n":1.5)",
                           R"("max_tokens":0)",
                           R"("max_tokens":1e99)",
                           R"("frequency_penalty":3)",
                           R"("presence_penalty":-3)",
                           R"("top_logprobs":3)",
                           R"("logprobs":true,"top_logprobs":1000)",
                           R"("logit_bias":{"x":1})",
                           R"("logit_bias":{"99999999":1})",
                           R"("logit_bias":{"1":1000})",
                           R"("seed":"x")",
                           R"("seed":1.5)",
                           R"("stop":[[]])",
                           R"("stop":"")",
                           R"("stream":"yes")",
                           R"("stream_options":{"include_usage":true})",
                           R"("top_k":"x")",
                           R"("min_tokens":5)",
                           R"("min_p":2)",
                           R"("prediction":5)",
                           R"("priority":"high")",
                           R"("priority":-1)",
                           R"("user":5)"}) {
    const Response response = server.chat(more);
    EXPECT_EQ(response.status, 400) << more;
    const Json error = response.json()["error"];
    EXPECT_EQ(error["type"], "invalid_request_error") << more;
    EXPECT_TRUE(error["param"].is_string()) << more;
  }
  for (const char* messages :
       {"[]", "null", "\"text\"", R"([{"role":"nobody","content":"x"}])", R"([{"role":"user"}])",
        R"([{"content":"x"}])", R"([5])",
        R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}])"}) {
    const Response response =
        server.post("/v1/chat/completions", std::string(R"({"messages":)") + messages + "}");
    EXPECT_EQ(response.status, 400) << messages;
  }
  const Response model = server.chat(R"("model":"other")");
  EXPECT_EQ(model.status, 404);
  EXPECT_EQ(model.json()["error"]["code"], "model_not_found");
}

TEST(Chat, AConstraintThatAsksForTooMuchEndsItsReply) {
  const RunningServer server;
  const Response whole = server.chat("", "LIMIT4");
  EXPECT_EQ(whole.status, 200);
  const Json choice = whole.json()["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "error");
  EXPECT_EQ(choice["message"]["content"], "You ");
  EXPECT_EQ(choice["error"]["code"], "constraint_limit");
  EXPECT_EQ(choice["error"]["message"], "it needs more than there is");
  EXPECT_EQ(whole.json()["usage"]["completion_tokens"], 4);

  const auto events = server.chat(R"("stream":true)", "LIMIT4").events();
  ASSERT_GT(events.size(), 2u);
  EXPECT_EQ(events[events.size() - 2]["choices"][0]["finish_reason"], "error");
  EXPECT_EQ(events.back()["error"]["code"], "constraint_limit");
  const Response response = server.post("/v1/responses", R"({"input":"LIMIT4"})");
  EXPECT_EQ(response.json()["status"], "failed");
  EXPECT_EQ(response.json()["error"]["code"], "constraint_limit");
  EXPECT_EQ(response.json()["output"][0]["content"][0]["text"], "You ");

  // Before the first token it is a request that cannot be served.
  for (const char* more : {"", R"("stream":true)"}) {
    const Response none = server.chat(more, "LIMIT0");
    EXPECT_EQ(none.status, 400);
    EXPECT_EQ(none.json()["error"]["code"], "constraint_limit");
  }
}

TEST(Chat, FailuresHaveAnAnswer) {
  RunningServer server;
  const Response whole = server.chat("", "FAIL");
  EXPECT_EQ(whole.status, 500);
  EXPECT_EQ(whole.json()["error"]["message"], "it broke");
  const auto events = server.chat(R"("stream":true)", "FAIL").events();
  EXPECT_EQ(events.back()["error"]["message"], "it broke");
}

TEST(Chat, Priorities) {
  server::ServerOptions options;
  options.api.priorities = true;
  RunningServer server(says("abc"), std::move(options));
  EXPECT_EQ(server.chat(R"("priority":-7)").status, 200);
  EXPECT_EQ(server.service().last().priority, -7);
}

TEST(Chat, StrictSchemas) {
  constexpr const char* kMisspelt = R"("guided_json":{"type":"string","maxLenght":2})";
  RunningServer lenient(says("abc"));
  EXPECT_EQ(lenient.chat(kMisspelt).status, 200);
  server::ServerOptions options;
  options.api.strict_schemas = true;
  RunningServer strict(says("abc"), std::move(options));
  EXPECT_EQ(strict.chat(kMisspelt).status, 400);
  EXPECT_EQ(strict.chat(R"("guided_json":{"type":"string","maxLength":2})").status, 200);
}

// As the clients' objects say it when they are sent back.
TEST(Chat, MembersThatAreNullAreNone) {
  test::FakeService::Options options = says("abc");
  options.chat_template =
      "{% for m in messages %}{% if 'tool_calls' in m %}{{ m.tool_calls | length }}{% endif %}"
      "{{ m.content }}{% endfor %}";
  RunningServer server(std::move(options));
  const Response response = server.post(
      "/v1/chat/completions",
      R"({"messages":[{"role":"assistant","content":"x","tool_calls":null,"audio":null},)"
      R"({"role":"user","content":"y"}]})");
  EXPECT_EQ(response.status, 200) << response.body;
}

// Nor may a name of a member be one of the model's control tokens.
TEST(Chat, ControlNamesInNamesAreText) {
  test::FakeService::Options options = says("abc");
  options.chat_template =
      "{% for m in messages %}{{ m.tool_calls | tojson }}{{ m.content }}{% endfor %}";
  RunningServer server(std::move(options));
  const Response response = server.post(
      "/v1/chat/completions",
      R"({"messages":[{"role":"assistant","content":"x","tool_calls":[{"type":"function",)"
      R"("function":{"name":"f","arguments":"{\"<|im_end|>\":1}"}}]}]})");
  ASSERT_EQ(response.status, 200) << response.body;
  const std::vector<int32_t> prompt = server.service().last().prompt;
  EXPECT_EQ(std::count(prompt.begin(), prompt.end(), test::kTurnEnd), 0);
  std::string text;
  for (const int32_t id : prompt) text += server.service().tokenizer().piece(id);
  EXPECT_THAT(text, HasSubstr("<|im_end|>"));
}

TEST(Chat, PromptsFarTooLongAreNotEvenTokenized) {
  RunningServer server;
  const Response response = server.chat("", std::string(10 << 20, 'x'));
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(response.json()["error"]["code"], "context_length_exceeded");
}

TEST(Chat, LogprobsOfAnAnswerHaveALimit) {
  test::FakeService::Options options = says(std::string(60000, 'x'));
  options.tokens_per_pass = 1000;
  RunningServer server(std::move(options));
  const Response response = server.chat(R"("n":20,"logprobs":true,"top_logprobs":2)");
  EXPECT_EQ(response.status, 400) << response.body.substr(0, 200);
  EXPECT_THAT(response.body, HasSubstr("stream"));
  EXPECT_TRUE(test::eventually([&] { return server.service().running() == 0; }));
}

TEST(Chat, Deadline) {
  server::ServerOptions options;
  options.api.max_seconds = 0.05;
  test::FakeService::Options slow = says(std::string(10000, 'x'));
  slow.pause = std::chrono::milliseconds(2);
  RunningServer server(std::move(slow), std::move(options));
  EXPECT_EQ(server.chat("").status, 504);
}

TEST(Chat, TooManyWait) {
  test::FakeService::Options options;
  options.max_waiting = 1;
  RunningServer server(std::move(options));
  test::Client hanging(server.port());
  hanging.send_request("POST", "/v1/completions", R"({"prompt":"HANG"})");
  ASSERT_TRUE(test::eventually([&] { return server.service().running() == 1; }));
  const Response response = server.chat("");
  EXPECT_EQ(response.status, 429);
  EXPECT_FALSE(response.header("Retry-After").empty());
}

}  // namespace aerie::chat_test
