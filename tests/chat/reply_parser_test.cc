#include "chat/reply_parser.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "chat/reply_grammar.h"
#include "chat/whole_reply.h"

namespace aerie::chat::reply_parser_test {

using Kind = ReplyPart::Kind;

struct Call {
  std::string name;
  std::string arguments;
  bool ended = false;
};

struct Parsed {
  std::string reasoning;
  std::string content;
  std::vector<Call> calls;
};

Parsed parse_in(const Dialect& dialect, ReasoningStart start, const std::vector<Tool>& tools,
                const std::string& reply, size_t piece) {
  const auto parser = make_reply_parser(dialect, start, tools);
  std::vector<ReplyPart> parts;
  for (size_t at = 0; at < reply.size(); at += piece) {
    parser->push(std::string_view(reply).substr(at, piece), parts);
  }
  parser->finish(parts);
  Parsed out;
  for (const ReplyPart& part : parts) {
    if (part.kind == Kind::kReasoning) out.reasoning += part.text;
    if (part.kind == Kind::kContent) out.content += part.text;
    if (part.kind == Kind::kCall) out.calls.push_back({part.text, "", false});
    if (part.kind == Kind::kArguments) out.calls.back().arguments += part.text;
    if (part.kind == Kind::kCallEnd) out.calls.back().ended = true;
  }
  return out;
}

const Json& schema() {
  static const Json value = Json::parse(
      R"({"type":"object","properties":{"place":{"type":"string"},"days":{"type":"integer"},
          "raw":{"type":"string"},"list":{"type":"array"}}})");
  return value;
}

Dialect dialect_of(const char* calls, const char* reasoning = "none") {
  Dialect dialect;
  EXPECT_TRUE(choose_calls(calls, dialect).ok());
  if (dialect.harmony) return dialect;
  EXPECT_TRUE(choose_reasoning(reasoning, dialect).ok());
  return dialect;
}

// The same, however the reply is cut.
Parsed parse(const Dialect& dialect, const std::string& reply,
             ReasoningStart start = ReasoningStart::kMaybe, bool with_tools = true) {
  std::vector<Tool> tools;
  if (with_tools) tools = {{"a", &schema()}, {"b", nullptr}};
  const Parsed whole = parse_in(dialect, start, tools, reply, reply.size() + 1);
  for (size_t piece = 1; piece < std::min<size_t>(reply.size(), 12); ++piece) {
    const Parsed cut = parse_in(dialect, start, tools, reply, piece);
    EXPECT_EQ(cut.reasoning, whole.reasoning) << piece;
    EXPECT_EQ(cut.content, whole.content) << piece;
    EXPECT_EQ(cut.calls.size(), whole.calls.size()) << piece;
    for (size_t i = 0; i < std::min(cut.calls.size(), whole.calls.size()); ++i) {
      EXPECT_EQ(cut.calls[i].name, whole.calls[i].name);
      EXPECT_EQ(cut.calls[i].arguments, whole.calls[i].arguments);
      EXPECT_EQ(cut.calls[i].ended, whole.calls[i].ended);
    }
  }
  return whole;
}

void expect_calls(const Parsed& parsed, const std::vector<std::pair<std::string, Json>>& calls) {
  ASSERT_EQ(parsed.calls.size(), calls.size()) << parsed.content;
  for (size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(parsed.calls[i].name, calls[i].first);
    EXPECT_EQ(Json::parse(parsed.calls[i].arguments), calls[i].second) << parsed.calls[i].arguments;
    EXPECT_TRUE(parsed.calls[i].ended);
  }
}

const Json kRome = {{"place", "Rome"}, {"days", 3}};

TEST(ReplyParser, Reasoning) {
  const Dialect dialect = dialect_of("hermes", "think");
  const Parsed begun = parse(dialect, "<think>\nIs it?\n  Yes.\n</think>\n\nIt is.");
  EXPECT_EQ(begun.reasoning, "Is it?\n  Yes.");
  EXPECT_EQ(begun.content, "It is.");
  const Parsed open = parse(dialect, "Hm < 3 </thin </think>It is.", ReasoningStart::kOpen);
  EXPECT_EQ(open.reasoning, "Hm < 3 </thin");
  EXPECT_EQ(open.content, "It is.");
  const Parsed cut = parse(dialect, "<think>\nStill thinking </th");
  EXPECT_EQ(cut.reasoning, "Still thinking </th");
  EXPECT_EQ(cut.content, "");
  const Parsed none = parse(dialect, "I <think> so");
  EXPECT_EQ(none.reasoning, "");
  EXPECT_EQ(none.content, "I <think> so");
  const Parsed never = parse(dialect, "<think>a</think>", ReasoningStart::kNever);
  EXPECT_EQ(never.content, "<think>a</think>");
  EXPECT_EQ(parse(dialect_of("none", "mistral"), "[THINK]x[/THINK]y").reasoning, "x");
}

TEST(ReplyParser, Hermes) {
  const Dialect dialect = dialect_of("hermes", "think");
  const Parsed parsed = parse(dialect,
                              "<think>\nI need a.\n</think>\n\nLet me see.\n<tool_call>\n"
                              R"({"name": "a", "arguments": {"place": "Rome", "days": 3}})"
                              "\n</tool_call>\n<tool_call>\n"
                              R"({"name": "b", "arguments": {"x": "}</tool_call>\"{"}})"
                              "\n</tool_call>");
  EXPECT_EQ(parsed.reasoning, "I need a.");
  EXPECT_EQ(parsed.content, "Let me see.\n");
  expect_calls(parsed, {{"a", kRome}, {"b", {{"x", "}</tool_call>\"{"}}}});
}

TEST(ReplyParser, ArgumentsFirst) {
  const Parsed parsed = parse(
      dialect_of("hermes"),
      R"(<tool_call>{"arguments": {"days": 1}, "id": [1, "x"], "name": "a"}</tool_call> Done.)");
  expect_calls(parsed, {{"a", {{"days", 1}}}});
  EXPECT_EQ(parsed.content, "Done.");
  for (const char* arguments : {"hello world", "{]", "[1"}) {
    const std::string reply = R"({"arguments": )" + std::string(arguments) + R"(, "name": "a"})";
    EXPECT_TRUE(parse(dialect_of("hermes"), reply).calls.empty()) << reply;
  }
}

TEST(ReplyParser, ArgumentsAsText) {
  expect_calls(parse(dialect_of("hermes"),
                     R"(<tool_call>{"name": "a", "arguments": "{\"days\": 1}"}</tool_call>)"),
               {{"a", {{"days", 1}}}});
}

TEST(ReplyParser, WithoutTheClosingTag) {
  expect_calls(parse(dialect_of("hermes"), R"(<tool_call>{"name":"a","arguments":{"days":3}})"),
               {{"a", {{"days", 3}}}});
}

TEST(ReplyParser, CutOff) {
  const Parsed parsed =
      parse(dialect_of("hermes"), R"(<tool_call>{"name": "a", "arguments": {"place": "Ro)");
  ASSERT_EQ(parsed.calls.size(), 1u);
  EXPECT_EQ(parsed.calls[0].arguments, R"({"place": "Ro)");
  EXPECT_EQ(parsed.content, "");
}

TEST(ReplyParser, Llama3) {
  const Dialect dialect = dialect_of("llama3_json");
  expect_calls(parse(dialect, R"({"name": "a", "parameters": {"place": "Rome", "days": 3}})"),
               {{"a", kRome}});
  expect_calls(parse(dialect, R"(<|python_tag|>{"name":"a","parameters":{}})"),
               {{"a", Json::object()}});
  expect_calls(
      parse(dialect, R"({"name":"a","parameters":{"place":"p;q"}}; {"name":"b","parameters":{}})"),
      {{"a", {{"place", "p;q"}}}, {"b", Json::object()}});
  expect_calls(parse(dialect, R"([{"name":"a","arguments":{}},{"name":"b","arguments":{}}])"),
               {{"a", Json::object()}, {"b", Json::object()}});
}

TEST(ReplyParser, Mistral) {
  const Dialect nemo = dialect_of("mistral_list");
  expect_calls(
      parse(
          nemo,
          R"([TOOL_CALLS][{"name": "a", "arguments": {"place": "Rome", "days": 3}, "id": "abcdefghi"}, {"name": "b", "arguments": {}}])"),
      {{"a", kRome}, {"b", Json::object()}});
  const Dialect small = dialect_of("mistral", "mistral");
  const Parsed parsed = parse(
      small,
      R"([THINK]Two.[/THINK][TOOL_CALLS]a[CALL_ID]abcdefghi[ARGS]{"place": "Rome", "days": 3}[TOOL_CALLS]b[ARGS]{})");
  EXPECT_EQ(parsed.reasoning, "Two.");
  EXPECT_EQ(parsed.content, "");
  expect_calls(parsed, {{"a", kRome}, {"b", Json::object()}});
  expect_calls(parse(small, R"([TOOL_CALLS][{"name": "a", "arguments": {}}])"),
               {{"a", Json::object()}});
}

TEST(ReplyParser, Granite) {
  expect_calls(parse(dialect_of("granite"),
                     R"(<|tool_call|>[{"name": "a", "arguments": {"place": "Rome", "days": 3}}])"),
               {{"a", kRome}});
}

TEST(ReplyParser, DeepSeek) {
  expect_calls(parse(dialect_of("deepseek_v31", "think"),
                     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>a<｜tool▁sep｜>{\"place\": "
                     "\"Rome\", \"days\": 3}"
                     "<｜tool▁call▁end｜><｜tool▁call▁begin｜>b<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
                     "<｜tool▁calls▁end｜>"),
               {{"a", kRome}, {"b", Json::object()}});
  const Parsed old = parse(
      dialect_of("deepseek_v3", "think"),
      "Hm.</"
      "think>\n\nSo:\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>a\n```json\n"
      "{\"place\": \"Rome\", \"days\": 3}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function"
      "<｜tool▁sep｜>b\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
      ReasoningStart::kOpen);
  EXPECT_EQ(old.reasoning, "Hm.");
  EXPECT_EQ(old.content, "So:\n");
  expect_calls(old, {{"a", kRome}, {"b", Json::object()}});
}

TEST(ReplyParser, Parameters) {
  for (const auto& [name, open, close] :
       {std::tuple("qwen3_coder", "<tool_call>", "</tool_call>"),
        std::tuple("seed_oss", "<seed:tool_call>", "</seed:tool_call>")}) {
    const Parsed parsed =
        parse(dialect_of(name),
              std::string("Now.\n\n") + open +
                  "\n<function=a>\n<parameter=place>\nRome\n</parameter>\n"
                  "<parameter=days>\n3\n</parameter>\n<parameter=raw>\nline 1\n  \"2\"\n\n"
                  "</parameter>\n<parameter=list>[1, \"x\"]</parameter></function>\n" +
                  close + "\n" + open + "<function=b></function>" + close);
    EXPECT_EQ(parsed.content, "Now.\n\n");
    expect_calls(
        parsed,
        {{"a", {{"place", "Rome"}, {"days", 3}, {"raw", "line 1\n  \"2\"\n"}, {"list", {1, "x"}}}},
         {"b", Json::object()}});
  }
  // What is no JSON is a text, and Python's words are what they mean.
  expect_calls(parse(dialect_of("qwen3_coder"),
                     "<tool_call><function=b><parameter=x>True</parameter><parameter=y>a b"
                     "</parameter></function></tool_call>"),
               {{"b", {{"x", true}, {"y", "a b"}}}});
}

TEST(ReplyParser, KeyValues) {
  const Dialect dialect = dialect_of("glm45", "think");
  const Parsed parsed =
      parse(dialect,
            "\n<think>Hm.</think>\nSee.\n<tool_call>a\n<arg_key>place</arg_key>\n<arg_value>Rome"
            "</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>");
  EXPECT_EQ(parsed.reasoning, "Hm.");
  EXPECT_EQ(parsed.content, "See.\n");
  expect_calls(parsed, {{"a", kRome}});
  expect_calls(parse(dialect,
                     "<tool_call>a<arg_key>place</arg_key><arg_value>12</arg_value>"
                     "</tool_call><tool_call>b</tool_call>"),
               {{"a", {{"place", "12"}}}, {"b", Json::object()}});
}

TEST(ReplyParser, Harmony) {
  const Dialect dialect = dialect_of("harmony");
  const Parsed said = parse(
      dialect,
      "<|channel|>analysis<|message|>User asks.<|end|><|start|>assistant<|channel|>final<|message|>"
      "It is 4.");
  EXPECT_EQ(said.reasoning, "User asks.");
  EXPECT_EQ(said.content, "It is 4.");
  const Parsed called =
      parse(dialect,
            "<|channel|>analysis<|message|>Need a.<|end|><|start|>assistant<|channel|>commentary"
            "<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.a "
            "<|constrain|>json<|message|>{\"place\":\"Rome\",\"days\":3}");
  EXPECT_EQ(called.reasoning, "Need a.");
  EXPECT_EQ(called.content, "I look.");
  expect_calls(called, {{"a", kRome}});
  expect_calls(parse(dialect, " to=functions.b<|channel|>commentary json<|message|>{}<|call|>"),
               {{"b", Json::object()}});
  const Parsed twice = parse(dialect,
                             "<|channel|>analysis<|message|>A<|end|><|start|>assistant<|channel|>"
                             "analysis<|message|>B<|end|><|start|>assistant<|channel|>final");
  EXPECT_EQ(twice.reasoning, "A\n\nB");
  for (const char* text : {"No headers <|here", " Paris.", "<html>", " to", "<"}) {
    EXPECT_EQ(parse(dialect, text).content, text);
  }
  // Tools that were not offered are not called.
  const Parsed other = parse(dialect, "<|channel|>commentary to=functions.c<|message|>{}<|call|>");
  EXPECT_TRUE(other.calls.empty());
  EXPECT_EQ(other.content, "{}");
}

TEST(ReplyParser, OfOtherTools) {
  const std::string object = R"({"name": "c", "arguments": {}})";
  for (const std::string& reply :
       {object, "[" + object + "]", "<tool_call>" + object + "</tool_call>"}) {
    const Parsed none = parse(dialect_of("hermes"), reply);
    EXPECT_EQ(none.content, reply);
    EXPECT_TRUE(none.calls.empty());
  }
  const Parsed second =
      parse(dialect_of("hermes"), R"([{"name": "a", "arguments": {}}, {"name": "c"}, 5])");
  EXPECT_EQ(second.calls.size(), 1u);
}

TEST(ReplyParser, WhatIsNoCallIsContent) {
  for (const char* name : {"hermes", "qwen3_coder", "glm45", "llama3_json"}) {
    for (const std::string& text :
         {std::string("Just text with < and <tool"), std::string("<tool_call>not json</tool_call>"),
          std::string(R"({"answer": 5})"), std::string("{ half"), std::string("  "),
          std::string("<tool_call>{\"name\": 5"), std::string("<|python_"), std::string("[1, 2]"),
          std::string("<tool_call>"), std::string("x <tool_call>\n\n<tool_call>"),
          std::string("<tool_call><function=c></function></tool_call>"),
          std::string(R"({"name": "a"})")}) {
      const Parsed parsed = parse(dialect_of(name), text);
      EXPECT_EQ(parsed.content, text) << name;
      EXPECT_TRUE(parsed.calls.empty()) << text;
    }
  }
  for (const std::string& text :
       {std::string("<｜tool▁calls▁begin｜>"), std::string("<｜tool▁calls▁begin｜> text"),
        std::string("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>a and b"),
        std::string("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>c<｜tool▁sep｜>{}")}) {
    EXPECT_EQ(parse(dialect_of("deepseek_v31"), text).content, text);
  }
}

TEST(ReplyParser, WithoutTools) {
  const std::string reply = R"(<tool_call>{"name": "a", "arguments": {}}</tool_call>)";
  const Parsed parsed = parse(dialect_of("hermes"), reply, ReasoningStart::kMaybe, false);
  EXPECT_EQ(parsed.content, reply);
  EXPECT_TRUE(parsed.calls.empty());
}

// Whatever a model writes, it is read alike in all pieces, and of what is no call nothing is lost.
TEST(ReplyParser, RandomTexts) {
  const std::vector<std::string> pieces = {"<think>",
                                           "</think>",
                                           "<tool_call>",
                                           "</tool_call>",
                                           "<function=a>",
                                           "</function>",
                                           "<parameter=x>",
                                           "</parameter>",
                                           "<arg_key>",
                                           "</arg_key>",
                                           "<arg_value>",
                                           "</arg_value>",
                                           "[TOOL_CALLS]",
                                           "[ARGS]",
                                           "[THINK]",
                                           "[/THINK]",
                                           "<|channel|>",
                                           "analysis",
                                           "final",
                                           "<|message|>",
                                           "<|end|>",
                                           "<|start|>",
                                           " to=functions.a",
                                           "<｜tool▁calls▁begin｜>",
                                           "<｜tool▁call▁begin｜>",
                                           "<｜tool▁sep｜>",
                                           "<｜tool▁call▁end｜>",
                                           "<|tool_call|>",
                                           "a",
                                           "\n",
                                           " ",
                                           "{",
                                           "}",
                                           "[",
                                           "]",
                                           "\"name\"",
                                           ":",
                                           "\"a\"",
                                           ",",
                                           "\"arguments\"",
                                           "\"",
                                           "\\",
                                           ";",
                                           "1",
                                           R"({"name": "a", "arguments": {"x": 1}})",
                                           "```json",
                                           "```",
                                           "function",
                                           "<",
                                           "</t"};
  std::mt19937 random(3);
  for (const char* name :
       {"hermes", "qwen3_coder", "seed_oss", "glm45", "deepseek_v3", "deepseek_v31", "mistral",
        "mistral_list", "granite", "llama3_json", "json", "harmony", "none"}) {
    const Dialect dialect = dialect_of(name, random() % 2 == 0 ? "think" : "mistral");
    for (int i = 0; i < 300; ++i) {
      std::string text;
      const size_t count = random() % 24;
      for (size_t n = 0; n < count; ++n) text += pieces[random() % pieces.size()];
      const auto start = static_cast<ReasoningStart>(random() % 3);
      const Parsed parsed = parse(dialect, text, start, random() % 4 != 0);
      if (parsed.calls.empty() && parsed.reasoning.empty() && start == ReasoningStart::kNever &&
          !dialect.harmony) {
        EXPECT_EQ(parsed.content, text) << name;
      }
    }
  }
}

// Each byte is looked at a bounded number of times.
TEST(ReplyParser, LongRepliesTakeLinearTime) {
  for (const char* name : {"hermes", "glm45", "qwen3_coder", "mistral", "harmony"}) {
    const Dialect dialect = dialect_of(name, "think");
    std::string reply = R"({"name": ")" + std::string(200000, ';') + "\"}";
    for (int i = 0; i < 20000; ++i) reply += "<tool_call>{};";
    const auto parser = make_reply_parser(dialect, ReasoningStart::kMaybe, {{"a", nullptr}});
    std::vector<ReplyPart> parts;
    for (size_t at = 0; at < reply.size(); at += 3) {
      parser->push(std::string_view(reply).substr(at, 3), parts);
    }
    parser->finish(parts);
    std::string content;
    for (const ReplyPart& part : parts) content += part.text;
    EXPECT_EQ(content, reply) << name;
  }
}

// All at once, longer than what a parser is handed at a time.
TEST(WholeReply, HasItsParts) {
  const Json functions = Json::parse(
      R"([{"name":"weather","parameters":{"type":"object"}},{"name":"stop"},{"no":"name"}])");
  const std::string thought(10'000, 't');
  const ChatReply reply =
      read_reply(dialect_of("hermes", "think"), ReasoningStart::kOpen, tools_of(functions),
                 thought +
                     "</think>\n\nOne moment.<tool_call>\n{\"name\": \"weather\", \"arguments\": "
                     "{\"place\": \"Rome\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"stop\", "
                     "\"arguments\": {}}\n</tool_call>");
  EXPECT_EQ(reply.reasoning, thought);
  EXPECT_EQ(reply.content, "One moment.");
  ASSERT_EQ(reply.calls.size(), 2u);
  EXPECT_EQ(reply.calls[0].name, "weather");
  EXPECT_EQ(Json::parse(reply.calls[0].arguments), Json({{"place", "Rome"}}));
  EXPECT_EQ(reply.calls[1].name, "stop");
  EXPECT_EQ(reply.calls[1].arguments, "{}");
}

}  // namespace aerie::chat::reply_parser_test
