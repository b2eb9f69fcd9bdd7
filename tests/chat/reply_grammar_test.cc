#include "chat/reply_grammar.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "grammar/grammar.h"
#include "grammar/span_limit.h"
#include "tests/chat/marked_tokenizer.h"
#include "tests/grammar/grammars.h"

namespace aerie::chat::reply_grammar_test {

using Kind = ReplyPart::Kind;
using test::MarkedTokenizer;

const std::vector<std::string> kTags = {
    "<tool_call>", "</tool_call>", "<think>",          "</think>",     "</parameter>",
    "</function>", "</arg_value>", "<seed:tool_call>", "<seed:think>", "</seed:think>"};
const std::vector<std::string> kControls = {
    "<|start|>",           "<|channel|>",  "<|message|>", "<|constrain|>", "<|end|>",
    "[TOOL_CALLS]",        "[ARGS]",       "[THINK]",     "[/THINK]",      "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁end｜>", "<|tool_call|>"};

const MarkedTokenizer& vocabulary() {
  static const MarkedTokenizer tokenizer(kTags, kControls);
  return tokenizer;
}

const std::shared_ptr<const TokenTrie>& trie() {
  static const std::shared_ptr<const TokenTrie> one = make_token_trie(vocabulary());
  return one;
}

const Json& place_schema() {
  static const Json value = Json::parse(
      R"({"type":"object","properties":{"place":{"type":"string"},"days":{"type":"integer",
          "minimum":1,"maximum":9},"unit":{"type":"string","enum":["C","F"]},
          "where":{"$ref":"#/$defs/point"}},"required":["place","unit","where"],
          "additionalProperties":false,
          "$defs":{"point":{"type":"array","items":{"type":"integer"},"maxItems":2}}})");
  return value;
}

std::vector<CallableTool> callable(bool strict = false) {
  return {{{"weather", &place_schema()}, strict}, {{"now", nullptr}, strict}};
}

Dialect dialect_of(const std::string& calls, const std::string& reasoning = "none") {
  Dialect dialect;
  EXPECT_TRUE(choose_calls(calls, dialect).ok());
  if (dialect.harmony) return dialect;
  EXPECT_TRUE(choose_reasoning(reasoning, dialect).ok());
  return dialect;
}

std::shared_ptr<const Grammar> compiled(const GrammarSpec& spec) {
  return test::compile(spec, trie());
}

// Whether the text, its tags as tokens, is a whole output.
bool takes(const std::shared_ptr<const Grammar>& grammar, const std::string& text) {
  std::vector<int32_t> ids;
  EXPECT_TRUE(vocabulary().encode(text, {}, ids).ok());
  const auto constraint = make_constraint(grammar);
  for (const int32_t id : ids) {
    if (!constraint->allows(id)) return false;
    constraint->advance(id);
  }
  return constraint->allows(vocabulary().eos());
}

// A text drawn from the masks, which the longer it is the more goes for tags and ends.
std::string drawn(const std::shared_ptr<const Grammar>& grammar, std::mt19937& random) {
  const MarkedTokenizer& tokenizer = vocabulary();
  const auto constraint = make_constraint(grammar);
  std::string text;
  for (int step = 0; step < 4000; ++step) {
    std::vector<int32_t> ids = test::allowed(*constraint, tokenizer.vocab_size());
    EXPECT_FALSE(ids.empty()) << text;
    if (ids.empty()) return text;
    std::vector<int32_t> closing;
    for (const int32_t id : ids) {
      const bool closes = id >= 256 || std::string_view("\"}]\n").find(tokenizer.piece(id)) !=
                                           std::string_view::npos;
      if (closes) closing.push_back(id);
    }
    const bool hurry = random() % 60 < static_cast<unsigned>(step) || random() % 6 == 0;
    if (hurry && !closing.empty()) ids = closing;
    const bool may_end = constraint->allows(tokenizer.eos());
    const int32_t token =
        hurry && may_end && random() % 4 == 0 ? tokenizer.eos() : ids[random() % ids.size()];
    EXPECT_TRUE(constraint->allows(token));
    constraint->advance(token);
    if (tokenizer.is_end(token)) return text;
    text += tokenizer.piece(token);
  }
  ADD_FAILURE() << "no end: " << text.substr(0, 2000);
  return text;
}

std::vector<ReplyPart> parsed(const Dialect& dialect, ReasoningStart start, const std::string& text,
                              const std::vector<CallableTool>& tools) {
  std::vector<Tool> offered;
  for (const CallableTool& one : tools) offered.push_back(one.tool);
  const auto parser = make_reply_parser(dialect, start, offered);
  std::vector<ReplyPart> parts;
  parser->push(text, parts);
  parser->finish(parts);
  return parts;
}

std::string joined(const std::vector<ReplyPart>& parts, Kind kind) {
  std::string out;
  for (const ReplyPart& part : parts) out += part.kind == kind ? part.text : "";
  return out;
}

void expect_weather(const Json& arguments) {
  EXPECT_TRUE(arguments["place"].is_string()) << arguments;
  EXPECT_TRUE(arguments["unit"] == "C" || arguments["unit"] == "F") << arguments;
  ASSERT_TRUE(arguments["where"].is_array()) << arguments;
  EXPECT_LE(arguments["where"].size(), 2u);
  for (const Json& one : arguments["where"]) EXPECT_TRUE(one.is_number_integer());
  if (arguments.contains("days")) {
    EXPECT_GE(arguments["days"].get<int>(), 1);
    EXPECT_LE(arguments["days"].get<int>(), 9);
  }
}

const std::vector<std::pair<const char*, const char*>> kDialects = {
    {"hermes", "think"},      {"qwen3_coder", "think"}, {"seed_oss", "seed_oss"},
    {"glm45", "think"},       {"deepseek_v3", "think"}, {"deepseek_v31", "none"},
    {"mistral_list", "none"}, {"mistral", "mistral"},   {"granite", "think"},
    {"llama3_json", "none"},  {"json", "none"},         {"harmony", "none"}};

// What a grammar of calls lets through is calls, with arguments as the schema wants them.
TEST(ReplyGrammar, CallsAreParsedAsSuch) {
  for (const auto& [calls, reasoning] : kDialects) {
    const Dialect dialect = dialect_of(calls, reasoning);
    for (const ReasoningStart start :
         {ReasoningStart::kNever, ReasoningStart::kMaybe, ReasoningStart::kOpen}) {
      const auto spec = reply_with_calls(dialect, start, callable(), true);
      ASSERT_TRUE(spec.ok()) << spec.status().message();
      const auto grammar = compiled(*spec);
      ASSERT_NE(grammar, nullptr);
      std::mt19937 random(7);
      for (int i = 0; i < 12; ++i) {
        const std::string text = drawn(grammar, random);
        const auto parts = parsed(dialect, start, text, callable());
        EXPECT_EQ(joined(parts, Kind::kContent), "") << calls << ": " << text;
        std::string name, arguments;
        int count = 0;
        for (const ReplyPart& part : parts) {
          if (part.kind == Kind::kCall) {
            name = part.text;
            arguments.clear();
          }
          if (part.kind == Kind::kArguments) arguments += part.text;
          if (part.kind != Kind::kCallEnd) continue;
          ++count;
          const Json value = Json::parse(arguments, nullptr, false);
          ASSERT_TRUE(value.is_object()) << calls << ": " << arguments;
          if (name == "weather") expect_weather(value);
        }
        EXPECT_GE(count, 1) << calls << ": " << text;
      }
    }
  }
}

// Whichever calls there are among free text, they are whole.
TEST(ReplyGrammar, OptionalCalls) {
  for (const auto& [calls, reasoning] : kDialects) {
    const Dialect dialect = dialect_of(calls, reasoning);
    const auto spec = reply_with_optional_calls(dialect, ReasoningStart::kMaybe, callable(), true);
    ASSERT_TRUE(spec.ok()) << spec.status().message();
    const auto grammar = compiled(*spec);
    std::mt19937 random(11);
    int called = 0;
    for (int i = 0; i < 30; ++i) {
      const std::string text = drawn(grammar, random);
      const auto parts = parsed(dialect, ReasoningStart::kMaybe, text, callable());
      std::string arguments;
      for (const ReplyPart& part : parts) {
        if (part.kind == Kind::kCall) arguments.clear();
        if (part.kind == Kind::kArguments) arguments += part.text;
        if (part.kind != Kind::kCallEnd) continue;
        ++called;
        EXPECT_TRUE(Json::accept(arguments)) << calls << ": " << text;
      }
    }
    // Without tags the first sign decides.
    const bool has_tags = !dialect.calls.call.open.empty() || dialect.harmony;
    EXPECT_TRUE(called > 0 || !has_tags) << calls;
  }
  const auto plain = compiled(*reply_with_optional_calls(
      dialect_of("llama3_json"), ReasoningStart::kNever, callable(), false));
  EXPECT_TRUE(takes(plain, R"({"name": "now", "parameters": {}})"));
  EXPECT_FALSE(takes(plain, R"({"name": "other", "parameters": {}})"));
  EXPECT_TRUE(takes(plain, "It is {now}."));
  const auto hermes = reply_with_optional_calls(dialect_of("hermes", "think"),
                                                ReasoningStart::kMaybe, callable(), false);
  const auto grammar = compiled(*hermes);
  EXPECT_TRUE(takes(grammar, "Just text."));
  EXPECT_TRUE(takes(grammar, "<think>\nHm\n</think>\n\nText <tool then."));
  const std::string now = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  EXPECT_TRUE(takes(grammar, "So:\n" + now));
  EXPECT_FALSE(takes(grammar, now + "\n" + now));
  EXPECT_FALSE(
      takes(grammar, "<tool_call>\n{\"name\": \"other\", \"arguments\": {}}\n</tool_call>"));
}

TEST(ReplyGrammar, ContentBehindReasoning) {
  GrammarSpec content;
  content.kind = GrammarKind::kJsonObject;
  const Dialect think = dialect_of("none", "think");
  const auto maybe = compiled(reply_with_content(think, ReasoningStart::kMaybe, content));
  EXPECT_TRUE(takes(maybe, "{}"));
  EXPECT_TRUE(takes(maybe, "<think>Any {text] </thi at all</think>\n\n{\"a\": 1}"));
  EXPECT_FALSE(takes(maybe, "<think>Any text"));
  EXPECT_FALSE(takes(maybe, "<think>x</think>text"));
  EXPECT_FALSE(takes(maybe, "text"));
  const auto open = compiled(reply_with_content(think, ReasoningStart::kOpen, content));
  EXPECT_TRUE(takes(open, "text</think>{}"));
  EXPECT_FALSE(takes(open, "{}"));
  const auto never = compiled(reply_with_content(think, ReasoningStart::kNever, content));
  EXPECT_TRUE(takes(never, "{}"));
  EXPECT_FALSE(takes(never, "<think></think>{}"));
  const auto harmony =
      compiled(reply_with_content(dialect_of("harmony"), ReasoningStart::kNever, content));
  EXPECT_TRUE(takes(harmony, "<|channel|>final<|message|>{}"));
  EXPECT_TRUE(takes(harmony,
                    "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final "
                    "<|constrain|>json<|message|>{}"));
  EXPECT_FALSE(takes(harmony, "{}"));
  EXPECT_FALSE(takes(harmony, "<|channel|>final<|message|>text"));
}

// Of a control token only the token will do, not its name in letters, and text has no such tokens.
TEST(ReplyGrammar, ControlTokensAreNoText) {
  const auto grammar = compiled(reply_with_content(
      dialect_of("none", "mistral"), ReasoningStart::kOpen, {GrammarKind::kChoice, "", {"a"}}));
  EXPECT_TRUE(takes(grammar, "Hm[/THINK]a"));
  const auto constraint = make_constraint(grammar);
  for (const char c : std::string("Hm[/THINK")) constraint->advance(static_cast<uint8_t>(c));
  EXPECT_FALSE(constraint->allows(']'));
  EXPECT_FALSE(constraint->allows(vocabulary().find("[TOOL_CALLS]")));
  EXPECT_FALSE(constraint->allows(0xFF));
  EXPECT_TRUE(constraint->allows(vocabulary().find("[/THINK]")));
  GrammarSpec json;
  json.kind = GrammarKind::kJsonObject;
  const auto object = make_constraint(compiled(json));
  for (const char c : std::string("{\"")) object->advance(static_cast<uint8_t>(c));
  EXPECT_FALSE(object->allows(vocabulary().find("[TOOL_CALLS]")));
  EXPECT_TRUE(object->allows(vocabulary().find("<tool_call>")));
}

TEST(ReplyGrammar, WhatCannotBeEnforced) {
  const Json pattern =
      Json::parse(R"({"type":"object","properties":{"x":{"type":"string","pattern":"a+"}}})");
  const Dialect xml = dialect_of("qwen3_coder");
  const auto strict =
      reply_with_calls(xml, ReasoningStart::kNever, {{{"f", &pattern}, true}}, false);
  ASSERT_FALSE(strict.ok());
  EXPECT_NE(strict.status().message().find("'x' of 'f' has pattern"), std::string::npos);
  EXPECT_TRUE(
      reply_with_calls(xml, ReasoningStart::kNever, {{{"f", &pattern}, false}}, false).ok());
  const Json lost =
      Json::parse(R"({"type":"object","properties":{"x":{"$ref":"#/properties/y"}}})");
  EXPECT_FALSE(
      reply_with_calls(dialect_of("hermes"), ReasoningStart::kNever, {{{"f", &lost}, true}}, false)
          .ok());
}

// Definitions are written out for each argument that refers to them, so that they are bounded.
TEST(ReplyGrammar, SchemasAreBounded) {
  Json large = {{"type", "object"},
                {"$defs", {{"x", {{"description", std::string(100000, 'x')}}}}}};
  for (int i = 0; i < 200; ++i) {
    large["properties"]["p" + std::to_string(i)] = {{"type", "integer"}};
  }
  const Dialect xml = dialect_of("qwen3_coder");
  const std::vector<CallableTool> plain = {{{"f", &large}, false}};
  EXPECT_TRUE(reply_with_calls(xml, ReasoningStart::kNever, plain, true).ok());
  for (auto& [name, property] : large["properties"].items()) property = {{"$ref", "#/$defs/x"}};
  EXPECT_EQ(reply_with_calls(xml, ReasoningStart::kNever, plain, true).status().code(),
            StatusCode::kResourceExhausted);
  Json many = {{"type", "object"}};
  for (int i = 0; i < 1200; ++i) many["properties"]["p" + std::to_string(i)] = {{"type", "string"}};
  const std::vector<CallableTool> wide = {{{"f", &many}, false}};
  EXPECT_EQ(reply_with_calls(xml, ReasoningStart::kNever, wide, true).status().code(),
            StatusCode::kResourceExhausted);
}

// What is let through as text is not read as a call by the parser of strict calls.
TEST(ReplyGrammar, FreeTextIsNoCall) {
  for (const auto& [calls, reasoning] : kDialects) {
    const Dialect dialect = dialect_of(calls, reasoning);
    const auto grammar = compiled(
        *reply_with_optional_calls(dialect, ReasoningStart::kNever, callable(true), false));
    for (const std::string& text :
         {std::string(R"({"name": "now", "arguments": {"wrong": 1}})"),
          std::string("\n {\"name\": \"weather\", \"parameters\": {}}"),
          std::string(R"([{"name": "weather", "arguments": {}}])"),
          std::string(R"(<|python_tag|>{"name": "weather", "arguments": {}})"),
          std::string("Sure <tool_call>{\"name\": \"weather\", \"arguments\": {}}</tool_call>")}) {
      if (!takes(grammar, text)) continue;
      std::vector<Tool> tools;
      for (const CallableTool& one : callable()) tools.push_back(one.tool);
      const auto parser =
          make_reply_parser(dialect, ReasoningStart::kNever, tools, CallForms::kOwn);
      std::vector<ReplyPart> parts;
      parser->push(text, parts);
      parser->finish(parts);
      std::string arguments;
      for (const ReplyPart& part : parts) {
        EXPECT_TRUE(part.kind == Kind::kContent || text.find("now") != std::string::npos)
            << calls << ": " << text;
      }
    }
  }
}

TEST(ReplyGrammar, PartsAreBounded) {
  GrammarSpec deep;
  deep.kind = GrammarKind::kText;
  for (int i = 0; i < 40; ++i) {
    GrammarSpec outer;
    outer.kind = GrammarKind::kSequence;
    outer.parts.push_back(std::move(deep));
    deep = std::move(outer);
  }
  EXPECT_EQ(compile_grammar(deep, trie()).status().code(), StatusCode::kResourceExhausted);
  GrammarSpec wide;
  wide.kind = GrammarKind::kAlternatives;
  wide.parts.resize(25000, {GrammarKind::kText, "x", {}});
  EXPECT_EQ(compile_grammar(wide, trie()).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(compile_grammar({GrammarKind::kFreeText, "", {""}}, trie()).status().code(),
            StatusCode::kInvalidArgument);
}

std::string said_under(TokenConstraint& constraint, std::string_view wanted) {
  std::string out;
  for (const char c : wanted) {
    const int32_t id = static_cast<uint8_t>(c);
    const auto ids = test::allowed(constraint, vocabulary().vocab_size());
    const int32_t token = std::find(ids.begin(), ids.end(), id) != ids.end() ? id : ids.front();
    constraint.advance(token);
    out += vocabulary().piece(token);
  }
  return out;
}

TEST(SpanLimit, ClosesThePart) {
  const SpanLimit limit{"<think>", "</think>", true, 4};
  const auto alone = make_span_limit(limit, vocabulary(), nullptr);
  EXPECT_EQ(said_under(*alone, "thinking"), "thin</think>ing");
  const test::MarkedTokenizer letters({}, {});
  const auto spelled = make_span_limit(limit, letters, nullptr);
  EXPECT_EQ(said_under(*spelled, "abc<xxxxxxxxxx"), "abc</think>xxx");
  // Not again in the answer, and not within a character.
  const auto once = make_span_limit(limit, vocabulary(), nullptr);
  EXPECT_EQ(said_under(*once, "thinking"), "thin</think>ing");
  once->advance(vocabulary().find("<think>"));
  EXPECT_EQ(said_under(*once, "goes on as it likes"), "goes on as it likes");
  const auto wide = make_span_limit(limit, vocabulary(), nullptr);
  EXPECT_EQ(said_under(*wide, "abc\xE2\x82\xACx"), "abc\xE2\x82\xAC</think>");
  const SpanLimit repeats{"<think>", "</think>", true, 1, true};
  const auto again = make_span_limit(repeats, vocabulary(), nullptr);
  EXPECT_EQ(said_under(*again, "abc"), "a</think>c");
  again->advance(vocabulary().find("<think>"));
  EXPECT_EQ(said_under(*again, "xy"), "</think>y");
  const SpanLimit closed{"<think>", "</think>", false, 0};
  const auto outside = make_span_limit(closed, vocabulary(), nullptr);
  EXPECT_EQ(said_under(*outside, " text"), " text");
  outside->advance(vocabulary().find("<think>"));
  EXPECT_EQ(said_under(*outside, "now"), "now");
  const auto begins = make_span_limit(closed, vocabulary(), nullptr);
  EXPECT_EQ(said_under(*begins, "\n"), "\n");
  begins->advance(vocabulary().find("<think>"));
  EXPECT_EQ(said_under(*begins, "now"), "</think>ow");
}

TEST(SpanLimit, WithAGrammar) {
  GrammarSpec content{GrammarKind::kChoice, "", {"yes", "no"}};
  const auto grammar =
      compiled(reply_with_content(dialect_of("none", "think"), ReasoningStart::kOpen, content));
  const auto both =
      make_span_limit({"<think>", "</think>", true, 2}, vocabulary(), make_constraint(grammar));
  EXPECT_EQ(said_under(*both, "abcyes"), "ab</think>yes");
  const auto fork = both->fork();
  EXPECT_TRUE(fork->allows(vocabulary().eos()));
}

}  // namespace aerie::chat::reply_grammar_test
