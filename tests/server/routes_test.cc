// All other routes: completions, responses, tokens, models, health, metrics, the page.
#include "server/http/routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/server/running_server.h"

namespace aerie::routes_test {

using test::Response;
using test::RunningServer;
using test::says;
using ::testing::HasSubstr;

TEST(Completions, FormsOfPrompts) {
  RunningServer server;
  EXPECT_EQ(server.complete("\"max_tokens\":99").json()["choices"][0]["text"],
            "You said: Once upon");
  const auto texts = [&](const std::string& prompt) {
    const Response response =
        server.post("/v1/completions", R"({"max_tokens":99,"prompt":)" + prompt + "}");
    std::vector<std::string> out;
    const Json json = response.json();
    for (const Json& choice : json["choices"]) out.push_back(choice["text"].get<std::string>());
    return out;
  };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(texts(R"(["ab","c"])"), (Texts{"You said: ab", "You said: c"}));
  EXPECT_EQ(texts("[97,98]"), (Texts{"You said: ab"}));
  EXPECT_EQ(texts("[[97],[98,99]]"), (Texts{"You said: a", "You said: bc"}));
  for (const char* prompt : {"5", "[]", "\"\"", "[1,\"x\"]", "[999999999]", "[-1]", "[1.5]", "{}",
                             "[[]]", "[null]", "null"}) {
    const Response response =
        server.post("/v1/completions", std::string(R"({"prompt":)") + prompt + "}");
    EXPECT_EQ(response.status, 400) << prompt;
  }
}

TEST(Completions, EchoLogprobsAndStream) {
  RunningServer server(says("abc"));
  EXPECT_EQ(server.complete("").json()["usage"]["completion_tokens"], 4);
  EXPECT_EQ(server.complete("\"echo\":true").json()["choices"][0]["text"], "Once uponabc");
  std::string text;
  for (const Json& event : server.complete(R"("echo":true,"stream":true)").events()) {
    text += event["choices"][0]["text"].get<std::string>();
  }
  EXPECT_EQ(text, "Once uponabc");
  const Json logprobs = server.complete("\"logprobs\":2").json()["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"], Json::array({"a", "b", "c", "<|im_end|>"}));
  EXPECT_EQ(logprobs["text_offset"], Json::array({0, 1, 2, 3}));
  EXPECT_EQ(logprobs["top_logprobs"][0].size(), 2u);
  EXPECT_EQ(server.complete(R"("echo":true,"logprobs":1,"stream":true)").status, 400);
  EXPECT_EQ(server.complete(R"("prompt_logprobs":1,"stream":true)").status, 400);
  EXPECT_EQ(server.complete(R"("prompt_logprobs":50)").status, 400);
  EXPECT_EQ(server.complete(R"("prompt_logprobs":3)").status, 200);
  EXPECT_EQ(server.service().last().sampling.prompt_logprobs, 3);
  EXPECT_EQ(server.complete(R"("echo":true,"logprobs":1)").status, 200);
  EXPECT_EQ(server.service().last().sampling.prompt_logprobs, 1);
  EXPECT_EQ(server.complete(R"("suffix":"x")").status, 400);
}

TEST(Completions, BestOf) {
  RunningServer server(says("abc"));
  const Json out = server.complete(R"("best_of":4,"n":2,"logprobs":0)").json();
  ASSERT_EQ(out["choices"].size(), 2u);
  EXPECT_EQ(out["choices"][0]["index"], 0);
  // The fake's last choice is the likeliest.
  EXPECT_EQ(out["choices"][0]["logprobs"]["token_logprobs"][0], -0.5);
  EXPECT_EQ(out["choices"][1]["logprobs"]["token_logprobs"][0], -1.0);
  EXPECT_EQ(out["usage"]["completion_tokens"], 16);
  EXPECT_EQ(server.complete(R"("best_of":1,"n":2)").status, 400);
  EXPECT_EQ(server.complete(R"("best_of":3,"stream":true)").status, 400);
}

TEST(Completions, NamesOfControlTokens) {
  RunningServer server;
  server.complete("", "<|im_start|>x");
  EXPECT_EQ(server.service().last().prompt, (std::vector<int32_t>{test::kTurnStart, 'x'}));
  server.complete("\"parse_special\":false", "<|im_start|>x");
  EXPECT_EQ(server.service().last().prompt.size(), 13u);
}

TEST(Responses, WholeAndStream) {
  RunningServer server(says("A river"));
  const Json whole =
      server.post("/v1/responses", R"({"input":"Name one","instructions":"Be brief"})").json();
  EXPECT_EQ(whole["object"], "response");
  EXPECT_EQ(whole["status"], "completed");
  EXPECT_EQ(whole["output"][0]["content"][0]["text"], "A river");
  EXPECT_EQ(whole["usage"]["output_tokens"], 8);
  const Response stream = server.post(
      "/v1/responses",
      R"({"input":[{"role":"user","content":[{"type":"input_text","text":"x"}]}],"stream":true,)"
      R"("max_output_tokens":3})");
  const auto events = stream.events(false);
  EXPECT_EQ(events.front()["type"], "response.created");
  EXPECT_EQ(events.back()["type"], "response.incomplete");
  std::string text;
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i]["sequence_number"], i);
    if (events[i]["type"] == "response.output_text.delta") text += events[i]["delta"];
  }
  EXPECT_EQ(text, "A r");
  for (const char* body :
       {"{}", R"({"input":5})", R"({"input":"x","previous_response_id":"y"})",
        R"({"input":"x","tools":[{"type":"web_search"}]})", R"({"input":[{"type":"strange"}]})"}) {
    EXPECT_EQ(server.post("/v1/responses", body).status, 400) << body;
  }
}

TEST(Tokens, RenderedPrompts) {
  RunningServer server;
  const Json texts =
      server.post("/v1/completions/render", R"({"prompt":["ab",[99,100]],"n":2})").json();
  ASSERT_EQ(texts.size(), 2);
  EXPECT_EQ(texts[0]["token_ids"], Json::array({97, 98}));
  EXPECT_EQ(texts[1]["token_ids"], Json::array({99, 100}));
  EXPECT_EQ(texts[0]["model"], server.get("/v1/models").json()["data"][0]["id"]);
  // What a reply is asked for is what is rendered.
  const std::string chat =
      R"({"messages":[{"role":"user","content":"x"}],"max_tokens":1,"return_token_ids":true})";
  const Json prompt = server.post("/v1/chat/completions", chat).json()["prompt_token_ids"];
  EXPECT_GT(prompt.size(), 5);
  const Json rendered = server.post("/v1/chat/completions/render", chat).json();
  EXPECT_EQ(rendered["token_ids"], prompt);
  EXPECT_TRUE(rendered["request_id"].is_string());
  for (const char* body : {"{}", R"({"prompt":"x","n":0})", R"({"messages":5})"}) {
    EXPECT_EQ(server.post("/v1/completions/render", body).status, 400) << body;
    EXPECT_EQ(server.post("/v1/chat/completions/render", body).status, 400) << body;
  }
}

TEST(Tokens, BothWays) {
  RunningServer server;
  const Json out = server.post("/tokenize", R"({"prompt":"abé","return_token_strs":true})").json();
  EXPECT_EQ(out["tokens"], Json::array({97, 98, 0xC3, 0xA9}));
  EXPECT_EQ(out["count"], 4);
  EXPECT_EQ(out["token_strs"][2], "\xEF\xBF\xBD");
  EXPECT_EQ(server.post("/detokenize", R"({"tokens":[97,98,195,169]})").json()["prompt"], "abé");
  EXPECT_EQ(server.post("/detokenize", R"({"tokens":[195]})").json()["prompt"], "\xEF\xBF\xBD");
  EXPECT_GT(
      server.post("/tokenize", R"({"messages":[{"role":"user","content":"x"}]})").json()["count"],
      5);
  for (const char* body : {"{}", R"({"tokens":5})", R"({"tokens":[5000000]})"}) {
    EXPECT_EQ(server.post("/detokenize", body).status, 400) << body;
    EXPECT_EQ(server.post("/tokenize", body).status, 400) << body;
  }
}

TEST(Models, UnderTheirNames) {
  server::ServerOptions options;
  options.api.model_names = {"first", "team/second"};
  RunningServer server({}, std::move(options));
  const Json list = server.get("/v1/models").json();
  ASSERT_EQ(list["data"].size(), 2u);
  EXPECT_EQ(list["data"][0]["id"], "first");
  EXPECT_EQ(list["data"][0]["aerie"]["speculations"][0], "auto");
  EXPECT_EQ(server.get("/v1/models/team/second").json()["id"], "team/second");
  EXPECT_EQ(server.get("/v1/models/team%2Fsecond").status, 200);
  EXPECT_EQ(server.get("/v1/models/fake-model").status, 404);
  EXPECT_EQ(server.chat(R"("model":"team/second")").json()["model"], "team/second");
  EXPECT_EQ(server.chat("").json()["model"], "first");
}

// As llama.cpp's server answers them.
TEST(LlamaCpp, Completion) {
  RunningServer server(says("One. Two."));
  const auto ask = [&](const std::string& more) {
    return server.post("/completion", R"({"prompt":"Once upon")" + more + "}");
  };
  const Json whole = ask(R"(,"n_predict":-1,"seed":-1,"return_tokens":true)").json();
  EXPECT_EQ(whole["content"], "One. Two.");
  EXPECT_EQ(whole["stop_type"], "eos");
  EXPECT_EQ(whole["tokens"].size(), whole["tokens_predicted"]);
  EXPECT_EQ(whole["timings"]["predicted_n"], whole["tokens_predicted"]);
  EXPECT_EQ(ask(R"(,"n_predict":3)").json()["stop_type"], "limit");
  const Json stopped = ask(R"(,"stop":["Two"])").json();
  EXPECT_EQ(stopped["stop_type"], "word");
  EXPECT_EQ(stopped["stopping_word"], "Two");
  std::string text;
  const auto events = ask(R"(,"stream":true)").events(false);
  for (const Json& event : events) {
    text += event["content"];
    EXPECT_EQ(event["stop"], &event == &events.back());
  }
  EXPECT_EQ(text, "One. Two.");
  ask(R"(,"repeat_penalty":1.3,"logit_bias":[[5,2.5],[6,false]],"json_schema":{"type":"object"})");
  EXPECT_EQ(server.service().last().sampling.repetition_penalty, 1.3);
  EXPECT_EQ(server.service().last().sampling.logit_bias[1].second, -100.0f);
  EXPECT_NE(server.service().last().grammar, nullptr);
  EXPECT_EQ(server.post("/completion", R"({"prompt":[72,105]})").json()["prompt"], "Hi");
  for (const char* wrong :
       {R"({})", R"(5)", R"({"prompt":5})", R"({"prompt":""})", R"({"prompt":[]})",
        R"({"prompt":[-5]})", R"({"prompt":"x","n_predict":-7})", R"({"prompt":"x","n_probs":99})",
        R"({"prompt":"x","logit_bias":[5]})", R"({"prompt":"x","logit_bias":[["a",1]]})"}) {
    EXPECT_EQ(server.post("/completion", wrong).status, 400) << wrong;
  }
}

TEST(LlamaCpp, PropsAndTokens) {
  RunningServer server;
  const Json props = server.get("/props").json();
  EXPECT_EQ(props["default_generation_settings"]["n_ctx"], 1 << 16);
  EXPECT_THAT(props["chat_template"].get<std::string>(), HasSubstr("im_start"));
  const Json tokens = server.post("/tokenize", R"({"content":"Hi"})").json();
  EXPECT_EQ(tokens["tokens"].size(), 2u);
  EXPECT_EQ(server.post("/detokenize", R"({"tokens":[72,105]})").json()["content"], "Hi");
  EXPECT_EQ(server.get("/tokenizer_info").status, 200);
}

TEST(Routes, AllAreDescribed) {
  RunningServer server;
  const Json description = server.get("/openapi.json").json();
  size_t count = 0;
  for (const server::Route& route : server::routes()) {
    std::string method(route.method);
    for (char& c : method) c = static_cast<char>(c | 32);
    const std::string path(route.path);
    ASSERT_TRUE(description["paths"].contains(path)) << path;
    EXPECT_TRUE(description["paths"][path].contains(method)) << path;
    ++count;
  }
  EXPECT_EQ(description["paths"].size(), count);
  // No reference leads nowhere.
  const std::string text = description.dump();
  const std::string mark = "\"#/components/";
  for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + 1)) {
    const std::string pointer = text.substr(at + 2, text.find('"', at + 2) - at - 2);
    EXPECT_TRUE(description.contains(Json::json_pointer(pointer))) << pointer;
  }
}

TEST(Routes, HealthVersionAndPage) {
  RunningServer server;
  EXPECT_EQ(server.get("/health").status, 200);
  EXPECT_EQ(server.get("/ready").status, 200);
  EXPECT_TRUE(server.get("/version").json()["version"].is_string());
  const Response page = server.get("/");
  EXPECT_THAT(page.header("Content-Type"), HasSubstr("text/html"));
  EXPECT_THAT(page.header("Content-Security-Policy"), HasSubstr("default-src 'self'"));
  EXPECT_EQ(page.header("X-Content-Type-Options"), "nosniff");
  const Response head = test::exchange(server.port(), "HEAD", "/");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.header("Content-Length"), page.header("Content-Length"));
}

TEST(Routes, Load) {
  RunningServer server;
  EXPECT_EQ(server.get("/load").json()["server_load"], 0);
  test::Client client(server.port());
  client.send_request("POST", "/v1/completions", R"({"prompt":"HANG","stream":true})");
  EXPECT_TRUE(test::eventually([&] { return server.get("/get_load").json()["load"] == 1; }));
  EXPECT_EQ(server.get("/load").json()["server_load"], 1);
}

TEST(Routes, UnknownOnesAndMethods) {
  RunningServer server;
  EXPECT_EQ(server.get("/v1/completions").status, 405);
  EXPECT_EQ(server.get("/v1/completions").header("Allow"), "POST");
  EXPECT_EQ(test::exchange(server.port(), "PUT", "/v1/models").status, 405);
  for (const char* path : {"/no/such", "/../../etc/passwd", "/%2e%2e/etc/passwd", "/v1/models/",
                           "/index", "/page/index.html", "//"}) {
    const Response response = server.get(path);
    EXPECT_EQ(response.status, 404) << path;
    EXPECT_EQ(response.json()["error"]["code"].is_string(), true) << path;
  }
  EXPECT_EQ(server.get("/%00").status, 400);
  EXPECT_EQ(server.get("/%zz").status, 400);
}

TEST(Metrics, UnderTheirNames) {
  RunningServer server(says("abc"));
  server.chat("");
  server.complete("\"max_tokens\":2");
  ASSERT_TRUE(test::eventually([&] { return server.service().running() == 0; }));
  const std::string text = server.get("/metrics").body;
  for (const char* name :
       {"vllm:num_requests_running{", "vllm:num_requests_waiting{", "vllm:kv_cache_usage_perc{",
        "vllm:prefix_cache_queries_total{", "vllm:prefix_cache_hits_total{",
        "vllm:prompt_tokens_total{", "vllm:generation_tokens_total{",
        "vllm:time_to_first_token_seconds_bucket{", "vllm:inter_token_latency_seconds_sum{",
        "vllm:time_per_output_token_seconds_count{", "vllm:e2e_request_latency_seconds_bucket{",
        "vllm:request_queue_time_seconds_bucket{", "vllm:num_preemptions_total{",
        "vllm:spec_decode_num_drafts_total{", "vllm:spec_decode_num_draft_tokens_total{",
        "vllm:spec_decode_num_accepted_tokens_total{",
        "vllm:spec_decode_num_accepted_tokens_per_pos_total{"}) {
    EXPECT_THAT(text, HasSubstr(name));
  }
  for (const char* what : {"written", "dropped", "left_out"}) {
    EXPECT_THAT(text, HasSubstr("aerie:records_" + std::string(what) + "_total{"));
  }
  const auto value = [&](const std::string& reason) {
    const size_t at = text.find("finished_reason=\"" + reason + "\"} ");
    return at == std::string::npos ? -1 : std::atoi(text.c_str() + text.find("} ", at) + 2);
  };
  EXPECT_EQ(value("stop"), 1);
  EXPECT_EQ(value("length"), 1);
  EXPECT_THAT(text, HasSubstr("position=\"2\"} 1\n"));
}

}  // namespace aerie::routes_test
