// /v1/embeddings over a service that says what it was asked.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>

#include "base/errors.h"
#include "tests/server/running_server.h"

namespace aerie::server_embeddings_test {

using test::Response;
using test::RunningServer;
using ::testing::HasSubstr;

Response embed(const RunningServer& server, const std::string& input,
               const std::string& more = "") {
  return server.post("/v1/embeddings",
                     R"({"input":)" + input + (more.empty() ? "" : "," + more) + "}");
}

// What FakeService makes of a prompt, of length 1.
std::vector<float> expected(const std::string& prompt, double pooling = 100,
                            size_t dimensions = 4) {
  std::vector<double> all = {double(prompt.front()), double(prompt.back()), double(prompt.size()),
                             pooling};
  all.resize(dimensions);
  double sum = 0;
  for (const double one : all) sum += one * one;
  std::vector<float> out;
  for (const double one : all) out.push_back(static_cast<float>(one / std::sqrt(sum)));
  return out;
}

std::vector<float> numbers(const Json& vector) {
  return vector.get<std::vector<float>>();
}

std::vector<float> of_base64(const std::string& text) {
  static const std::string kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<uint32_t>(kLetters.find(c));
    count += 6;
    if (count >= 8) bytes += static_cast<char>(bits >> (count -= 8));
  }
  std::vector<float> out(bytes.size() / 4);
  std::memcpy(out.data(), bytes.data(), out.size() * 4);
  return out;
}

TEST(Embeddings, OfOneText) {
  RunningServer server;
  const Response response = embed(server, "\"Hello\"", R"("user":"u","model":"fake-model")");
  ASSERT_EQ(response.status, 200) << response.body;
  const Json json = response.json();
  EXPECT_EQ(json["object"], "list");
  EXPECT_EQ(json["model"], "fake-model");
  EXPECT_EQ(json["usage"], Json({{"prompt_tokens", 5}, {"total_tokens", 5}}));
  ASSERT_EQ(json["data"].size(), 1u);
  EXPECT_EQ(json["data"][0]["object"], "embedding");
  EXPECT_EQ(json["data"][0]["index"], 0);
  EXPECT_EQ(numbers(json["data"][0]["embedding"]), expected("Hello"));
  const Request asked = server.service().last();
  EXPECT_EQ(asked.pooling, Pooling::kLast);
  EXPECT_FALSE(asked.speculate);
  EXPECT_EQ(asked.client, "127.0.0.1");
}

TEST(Embeddings, OfTextsAndIds) {
  RunningServer server;
  for (const char* input : {R"(["Hello","ab"])", "[[72,101,108,108,111],[97,98]]"}) {
    const Json json = embed(server, input).json();
    ASSERT_EQ(json["data"].size(), 2u) << input;
    EXPECT_EQ(numbers(json["data"][0]["embedding"]), expected("Hello"));
    EXPECT_EQ(json["data"][1]["index"], 1);
    EXPECT_EQ(numbers(json["data"][1]["embedding"]), expected("ab"));
    EXPECT_EQ(json["usage"]["prompt_tokens"], 7);
  }
  const Json one = embed(server, "[97,98]").json();
  ASSERT_EQ(one["data"].size(), 1u);
  EXPECT_EQ(numbers(one["data"][0]["embedding"]), expected("ab"));
}

TEST(Embeddings, InBase64AndShortened) {
  RunningServer server;
  const Json encoded = embed(server, "\"Hello\"", R"("encoding_format":"base64")").json();
  EXPECT_EQ(of_base64(encoded["data"][0]["embedding"]), expected("Hello"));
  const Json shorter = embed(server, "\"Hello\"", R"("dimensions":2)").json();
  EXPECT_EQ(numbers(shorter["data"][0]["embedding"]), expected("Hello", 100, 2));
  const Json both =
      embed(server, "\"Hello\"", R"("dimensions":3,"encoding_format":"base64")").json();
  EXPECT_EQ(of_base64(both["data"][0]["embedding"]), expected("Hello", 100, 3));
}

TEST(Embeddings, PoolingIsTheModelsOrTheOperators) {
  test::FakeService::Options mean;
  mean.pooling = Pooling::kMean;
  RunningServer by_model(mean);
  EXPECT_EQ(numbers(embed(by_model, "\"ab\"").json()["data"][0]["embedding"]),
            expected("ab", -100));
  test::FakeService::Options other;
  other.pooling = not_supported("the model wants the first token's state");
  RunningServer neither(other);
  const Response refused = embed(neither, "\"ab\"");
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("the model wants the first token's state"));
  server::ServerOptions options;
  options.api.pooling = Pooling::kMean;
  RunningServer by_operator(other, options);
  EXPECT_EQ(numbers(embed(by_operator, "\"ab\"").json()["data"][0]["embedding"]),
            expected("ab", -100));
}

TEST(Embeddings, WhatIsWrongIsNamed) {
  server::ServerOptions options;
  options.api.max_prompt_tokens = 400;
  RunningServer server({}, options);
  const auto refusal = [&](const std::string& input, const std::string& more = "") {
    const Response response = embed(server, input, more);
    EXPECT_EQ(response.status, 400) << input.substr(0, 40) << more;
    return response.json()["error"];
  };
  EXPECT_EQ(server.post("/v1/embeddings", "{}").json()["error"]["param"], "input");
  for (const char* input : {"\"\"", "[]", "[\"\"]", "7", "{}", "[[]]", "[\"a\",7]", "[1.5]", "[-1]",
                            "[99999]", "[[1],\"a\",null]"}) {
    EXPECT_EQ(refusal(input)["param"], "input") << input;
  }
  for (const char* more : {R"("dimensions":0)", R"("dimensions":5)", R"("dimensions":"all")"}) {
    EXPECT_EQ(refusal("\"a\"", more)["param"], "dimensions") << more;
  }
  EXPECT_EQ(refusal("\"a\"", R"("encoding_format":"int8")")["param"], "encoding_format");
  EXPECT_EQ(refusal('"' + std::string(401, 'x') + '"')["code"], "context_length_exceeded");
  std::string many = "[\"x\"", long_ones = "[\"" + std::string(400, 'x') + '"';
  for (int i = 0; i < 1024; ++i) many += ",\"x\"";
  EXPECT_THAT(refusal(many + "]")["message"].get<std::string>(), HasSubstr("at most 1024"));
  for (int i = 0; i < 750; ++i) long_ones += ",\"" + std::string(400, 'x') + '"';
  EXPECT_THAT(refusal(long_ones + "]")["message"].get<std::string>(),
              HasSubstr("300400 tokens; one request may have 300000"));
  EXPECT_EQ(embed(server, "\"a\"", R"("model":"other")").status, 404);
}

TEST(Embeddings, ManyAtOnceAndThoseThatGoAway) {
  RunningServer server;
  std::string many = "[\"x\"";
  for (int i = 1; i < 1000; ++i) many += ",\"x\"";
  EXPECT_EQ(embed(server, many + "]").json()["data"].size(), 1000u);
  ASSERT_TRUE(test::eventually([&] { return server.service().running() == 0; }));
  test::Client client(server.port());
  client.send_request("POST", "/v1/embeddings", R"({"input":["a","HANG"]})");
  ASSERT_TRUE(test::eventually([&] { return server.service().running() == 1; }));
  client.hang_up();
  EXPECT_TRUE(test::eventually([&] { return server.service().running() == 0; }));
}

TEST(Embeddings, TakeTokensOfAKeysLimit) {
  server::ServerOptions options;
  ASSERT_TRUE(options.gate.keys.add_lines("key-a alice tpm=100", "keys").ok());
  RunningServer server({}, std::move(options));
  const auto ask = [&](const std::string& text) {
    return server.post("/v1/embeddings", "{\"input\":\"" + text + "\"}",
                       "Authorization: Bearer key-a\r\n");
  };
  const Response first = ask(std::string(60, 'x'));
  EXPECT_EQ(first.status, 200);
  EXPECT_NEAR(std::stoi("0" + first.header("x-ratelimit-remaining-tokens")), 40, 3);
  EXPECT_EQ(ask(std::string(60, 'x')).status, 429);
}

}  // namespace aerie::server_embeddings_test
