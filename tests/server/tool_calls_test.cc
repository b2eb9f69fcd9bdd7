#include "server/openai/fields/tool_calls.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace aerie::server::tool_calls_test {

struct Parsed {
  std::string text;
  std::vector<ToolCall> calls;
};

// The same, however the reply is cut.
Parsed parse(const std::string& reply) {
  Parsed out;
  for (size_t piece = reply.size(); piece >= 1; piece = piece > 7 ? 7 : piece - 1) {
    Parsed one;
    ToolCallParser parser({"a", "b"});
    for (size_t at = 0; at < reply.size(); at += piece) {
      parser.push(std::string_view(reply).substr(at, piece), one.text, one.calls);
    }
    parser.finish(one.text, one.calls);
    if (piece != reply.size()) {
      EXPECT_EQ(one.text, out.text) << piece;
      EXPECT_EQ(one.calls.size(), out.calls.size()) << piece;
    }
    out = std::move(one);
  }
  return out;
}

// Only what was offered can be called.
TEST(ToolCalls, OfOtherTools) {
  const std::string object = R"({"name": "c", "arguments": {}})";
  for (const std::string& reply :
       {object, "[" + object + "]", "<tool_call>" + object + "</tool_call>"}) {
    const Parsed none = parse(reply);
    EXPECT_EQ(none.text, reply);
    EXPECT_TRUE(none.calls.empty());
  }
}

TEST(ToolCalls, ManySemicolons) {
  const std::string reply = "{\"name\": \"" + std::string(200000, ';') + "\"}";
  ToolCallParser parser({"a"});
  std::string text;
  std::vector<ToolCall> calls;
  parser.push(reply, text, calls);
  parser.finish(text, calls);
  EXPECT_EQ(text, reply);
  const std::string objects = "{" + std::string(20000, '}') + ";";
  std::string many;
  for (int i = 0; i < 100; ++i) many += objects;
  ToolCallParser other({"a"});
  other.push(many, text, calls);
  other.finish(text, calls);
  EXPECT_TRUE(calls.empty());
}

TEST(ToolCalls, Tagged) {
  const Parsed two = parse(
      "Yes.\n<tool_call>\n{\"name\": \"a\", \"arguments\": {\"x\": \"</b>\"}}\n</tool_call>\n"
      "<tool_call>{\"name\": \"b\", \"arguments\": \"{}\"}</tool_call>");
  EXPECT_EQ(two.text, "Yes.\n");
  ASSERT_EQ(two.calls.size(), 2u);
  EXPECT_EQ(two.calls[0].name, "a");
  EXPECT_EQ(two.calls[0].arguments, R"({"x":"</b>"})");
  EXPECT_EQ(two.calls[1].arguments, "{}");
}

TEST(ToolCalls, WithoutTheEnd) {
  const Parsed one = parse("<tool_call>{\"name\":\"a\",\"arguments\":{}}");
  EXPECT_EQ(one.text, "");
  ASSERT_EQ(one.calls.size(), 1u);
}

TEST(ToolCalls, Json) {
  const Parsed llama = parse(R"({"name": "a", "parameters": {"x": 1}})");
  ASSERT_EQ(llama.calls.size(), 1u);
  EXPECT_EQ(llama.calls[0].arguments, R"({"x":1})");
  EXPECT_EQ(parse(R"(<|python_tag|>{"name":"a","parameters":{}})").calls.size(), 1u);
  EXPECT_EQ(parse(R"([{"name":"a","arguments":{}},{"name":"b","arguments":{}}])").calls.size(), 2u);
  const Parsed several =
      parse(R"({"name":"a","parameters":{"x":"p;q"}}; {"name":"b","parameters":{}})");
  ASSERT_EQ(several.calls.size(), 2u);
  EXPECT_EQ(several.calls[0].arguments, R"({"x":"p;q"})");
}

TEST(ToolCalls, WhatIsNoCallIsText) {
  for (const std::string& text :
       {std::string("Just text with < and <tool"), std::string("<tool_call>not json</tool_call>"),
        std::string(R"({"answer": 5})"), std::string("{ half"), std::string("  "),
        std::string("<tool_call>{\"name\": 5"), std::string("<|python_"), std::string("[1, 2]")}) {
    const Parsed parsed = parse(text);
    EXPECT_EQ(parsed.text, text);
    EXPECT_TRUE(parsed.calls.empty()) << text;
  }
}

TEST(ToolCalls, Grammar) {
  const Json a = {{"name", "a"},
                  {"parameters",
                   {{"type", "object"},
                    {"properties", {{"x", {{"$ref", "#/$defs/p"}}}}},
                    {"$defs", {{"p", {{"type", "string"}}}}}}}};
  const Json b = {{"name", "b"}};
  const auto spec = tool_grammar({&a, &b});
  ASSERT_TRUE(spec.ok());
  const Json schema = parse_json(spec->text, "schema").value();
  EXPECT_EQ(schema["$defs"]["p"]["type"], "string");
  EXPECT_EQ(schema["anyOf"].size(), 2u);
  EXPECT_FALSE(schema["anyOf"][0]["properties"]["arguments"].contains("$defs"));
  Json other = a;
  other["parameters"]["$defs"]["p"]["type"] = "number";
  EXPECT_FALSE(tool_grammar({&a, &other}).ok());
}

}  // namespace aerie::server::tool_calls_test
