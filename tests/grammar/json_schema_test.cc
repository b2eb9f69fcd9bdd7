#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <map>

#include "tests/grammar/matching.h"
#include "tests/grammar/schema_suite.h"

namespace aerie {
namespace {

using ::testing::HasSubstr;

void check(const std::string& schema, const std::vector<std::string>& matches,
           const std::vector<std::string>& others) {
  SCOPED_TRACE(schema);
  const auto grammar = test::must_compile(GrammarKind::kJsonSchema, schema);
  ASSERT_NE(grammar, nullptr);
  for (const std::string& text : matches) EXPECT_TRUE(test::accepts(grammar, text)) << text;
  for (const std::string& text : others) EXPECT_FALSE(test::accepts(grammar, text)) << text;
}

void refuses(const std::string& schema, StatusCode code, const std::string& what) {
  SCOPED_TRACE(schema.substr(0, 200));
  const auto grammar = test::compile(GrammarKind::kJsonSchema, schema);
  ASSERT_FALSE(grammar.ok());
  EXPECT_EQ(grammar.status().code(), code);
  EXPECT_THAT(grammar.status().message(), HasSubstr(what));
}

TEST(JsonSchema, Types) {
  check("true", {"1", "{}", "[null]"}, {"", "{"});
  check(R"({"type":"integer"})", {"0", "-12"}, {"1.5", "-", "01", "\"a\""});
  check(R"({"type":["null","boolean"]})", {"null", "true"}, {"0", "\"null\""});
  check(R"({"minLength":2})", {"1", "\"ab\"", "{}"}, {"\"a\""});
  check(R"({"const":{"a":[1,"x\n"]}})", {R"({"a":[1,"x\n"]})", R"({"a": [1, "x\n"]})"}, {"{}"});
  check(R"({"enum":["a",1,null],"type":["string","null"]})", {"\"a\"", "null"}, {"1", "\"b\""});
}

TEST(JsonSchema, Numbers) {
  for (const auto& [low, high] :
       std::vector<std::pair<int, int>>{{0, 0}, {-5, 17}, {13, 1024}, {-321, -45}, {99, 101}}) {
    const std::string range =
        "\"minimum\":" + std::to_string(low) + ",\"maximum\":" + std::to_string(high);
    const auto whole =
        test::must_compile(GrammarKind::kJsonSchema, "{\"type\":\"integer\"," + range + "}");
    const auto real =
        test::must_compile(GrammarKind::kJsonSchema, "{\"type\":\"number\"," + range + "}");
    for (int i = -1500; i <= 1500; ++i) {
      const bool inside = low <= i && i <= high;
      EXPECT_EQ(test::accepts(whole, std::to_string(i)), inside) << i << " " << range;
      EXPECT_EQ(test::accepts(real, std::to_string(i)), inside) << i << " " << range;
      const double half = i + (i < 0 ? -0.5 : 0.5);
      const std::string text = std::to_string(i) + ".5";
      EXPECT_EQ(test::accepts(real, text), low <= half && half <= high) << text << " " << range;
    }
  }
  check(R"({"type":"number","exclusiveMinimum":0,"maximum":1})", {"1", "0.5"},
        {"0", "1.5", "-0.5", "0.0"});
  check(R"({"type":"integer","exclusiveMinimum":1.5,"exclusiveMaximum":4})", {"2", "3"},
        {"1", "4"});
  check(R"({"type":"integer","minimum":10})", {"10", "999999999999999"}, {"9", "-10"});
}

TEST(JsonSchema, Strings) {
  check(R"({"type":"string","minLength":1,"maxLength":3})",
        {"\"a\"", "\"é\\n😀\"", "\"\\ud83d\\ude00ab\""}, {"\"\"", "\"abcd\""});
  check(R"({"type":"string","pattern":"^a+$"})", {"\"aa\""}, {"\"\"", "\"ab\""});
  check(R"({"type":"string","pattern":"b\\\"c"})", {R"("xb\"cy")"}, {R"("xb\"")", "\"\""});
  check(R"({"type":"string","pattern":"^[a-z]{2,4}$","maxLength":9})", {"\"abc\""}, {"\"a\""});
  check(R"({"type":"string","format":"date"})", {"\"2024-02-28\""}, {"\"2023-02-30\"", "\"a\""});
  check(R"({"format":"uuid"})", {"\"01234567-89ab-cdef-0123-456789abcdef\"", "1"}, {"\"0\""});
}

TEST(JsonSchema, Arrays) {
  check(R"({"type":"array","items":{"type":"null"},"minItems":1,"maxItems":2})",
        {"[null]", "[null, null]"}, {"[]", "[null,null,null]", "[1]"});
  check(R"({"type":"array","prefixItems":[{"const":1},{"const":2}],"items":false})",
        {"[]", "[1]", "[1,2]"}, {"[2]", "[1,2,3]"});
  check(R"({"type":"array","items":[{"const":1}],"additionalItems":{"const":2},"minItems":2})",
        {"[1,2]", "[1,2,2]"}, {"[1]", "[1,1]"});
  check(R"({"type":"array","maxItems":0})", {"[]"}, {"[1]"});
}

TEST(JsonSchema, Objects) {
  check(R"({"type":"object","properties":{"a":{"const":1},"b":{"const":2},"c":{"const":3}},
           "required":["b"],"additionalProperties":false})",
        {R"({"b":2})", R"({"a":1,"b":2})", R"({"a": 1, "b": 2, "c": 3})", R"({"b":2,"c":3})"},
        {"{}", R"({"a":1})", R"({"b":2,"a":1})", R"({"b":2,"d":1})", R"({"b":2,"b":2})"});
  check(R"({"type":"object","properties":{"ab":{"const":1}},"additionalProperties":{"const":2}})",
        {"{}", R"({"a":2})", R"({"abc":2,"":2})", R"({"ab":1,"b":2})"},
        {R"({"ab":2})", R"({"\u0061b":2})", R"({"a":1})"});
  check(R"({"type":"object","required":["x"]})", {R"({"x":[]})", R"({"x":1,"y":2})"}, {"{}"});
  check(R"({"type":"object","properties":{"a":false}})", {"{}", R"({"b":1})"}, {R"({"a":1})"});
}

TEST(JsonSchema, Combinations) {
  check(R"({"anyOf":[{"type":"null"},{"const":1}]})", {"null", "1"}, {"2"});
  check(R"({"type":"object","properties":{"k":{"const":1}},"required":["k"],
           "allOf":[{"properties":{"l":{"const":2}},"required":["l"]}]})",
        {R"({"k":1,"l":2})"}, {R"({"k":1})", R"({"l":2})"});
  check(R"({"oneOf":[{"type":"object","properties":{"t":{"const":"a"}},"required":["t"]},
                     {"type":"object","properties":{"t":{"const":"b"},"n":{"type":"null"}},
                      "required":["t","n"]}]})",
        {R"({"t":"a"})", R"({"t":"b","n":null})"}, {R"({"t":"b"})", R"({"t":"c"})"});
  check(R"({"$defs":{"n":{"type":"object","properties":{"v":{"type":"integer"},
           "next":{"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}]}},"required":["next"],
           "additionalProperties":false}},"$ref":"#/$defs/n"})",
        {R"({"next":null})", R"({"v":1,"next":{"next":null}})"}, {"{}", R"({"next":{}})"});
  check(R"({"items":{"$ref":"#"},"type":"array"})", {"[]", "[[],[[]]]"}, {"[1]"});
  check(R"({"definitions":{"a/b":{"const":7}},"$ref":"#/definitions/a~1b"})", {"7"}, {"8"});
}

TEST(JsonSchema, RefusesByName) {
  const auto no = StatusCode::kUnsupported;
  refuses(R"({"not":{}})", no, "/not");
  refuses(R"({"properties":{"a/b":{"multipleOf":3}}})", no, "/properties/a~1b/multipleOf");
  refuses(R"({"type":"array","uniqueItems":true})", no, "uniqueItems");
  refuses(R"({"type":"string","format":"email"})", no, "\"email\"");
  refuses(R"({"patternProperties":{"a":{}}})", no, "patternProperties");
  refuses(R"({"oneOf":[{"minimum":1},{"maximum":2}]})", no, "branches 0 and 1");
  refuses(R"({"if":{},"then":false})", no, "then");
  refuses(R"({"$ref":"other.json"})", no, "other.json");
  refuses(R"-({"type":"string","pattern":"^(?!a)"})-", no, "lookahead");
  refuses(R"({"type":"number","minimum":0.5})", no, "minimum");
  refuses(R"({"anyOf":[{"$ref":"#"},{"type":"null"}]})", no, "left recursion");
  refuses(R"({"$schema":"http://json-schema.org/draft-04/schema#"})", no, "$schema");
  const auto wrong = StatusCode::kInvalidArgument;
  refuses("{", wrong, "JSON schema");
  refuses("3", wrong, "JSON schema");
  refuses("false", wrong, "no text");
  refuses(R"({"type":"strin"})", wrong, "/type");
  refuses(R"({"properties":{"a":3}})", wrong, "/properties/a");
  refuses(R"({"$ref":"#/definitions/x"})", wrong, "nothing is at");
  refuses(R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})", wrong,
          "no text");
  refuses(R"({"type":"string","maxLength":1000000000})", StatusCode::kResourceExhausted,
          "repetition");
}

TEST(JsonSchema, HostileSchemas) {
  std::string deep;
  for (int i = 0; i < 5000; ++i) deep += R"({"items":)";
  refuses(deep + "true" + std::string(5000, '}'), StatusCode::kInvalidArgument, "JSON schema");
  // Each level merges the one below in two ways.
  std::string doubling = R"({"$defs":{"a0":{"type":"object"})";
  for (int i = 1; i < 60; ++i) {
    const std::string below = R"({"$ref":"#/$defs/a)" + std::to_string(i - 1) + R"("})";
    doubling += ",\"a" + std::to_string(i) + R"(":{"allOf":[)" + below + "," + below + "]}";
  }
  doubling += R"(},"$ref":"#/$defs/a59"})";
  EXPECT_FALSE(test::compile(GrammarKind::kJsonSchema, doubling).ok());
  refuses(R"({"allOf":[{"$ref":"#"}]})", StatusCode::kUnsupported, "$ref");
}

// The names of keywords that refusals point at.
std::string reason(const Status& status) {
  const std::string& message = status.message();
  const size_t end = message.find(": ", 12);
  const size_t start = message.rfind('/', end);
  return start == std::string::npos ? message : message.substr(start + 1, end - start - 1);
}

TEST(JsonSchemaSuite, NothingInvalidIsAllowed) {
  const std::vector<test::SuiteSchema> suite = test::schema_suite();
  if (suite.empty()) GTEST_SKIP() << "no ../shared/data/json-schema-test-suite";
  int compiled = 0;
  int invalid = 0;
  int valid = 0;
  int allowed = 0;
  std::map<std::string, int> refused;
  for (const test::SuiteSchema& schema : suite) {
    const auto grammar = test::compile(GrammarKind::kJsonSchema, schema.schema.dump());
    if (!grammar.ok()) {
      ++refused[reason(grammar.status())];
      continue;
    }
    ++compiled;
    for (const test::SuiteInstance& instance : schema.instances) {
      bool accepted = test::accepts(*grammar, instance.data.dump());
      if (!instance.valid) {
        ++invalid;
        EXPECT_FALSE(accepted) << schema.name << "\n" << schema.schema << "\n" << instance.data;
        continue;
      }
      ++valid;
      // Members in the schema's order may be in alphabetical order.
      accepted |= test::accepts(*grammar, nlohmann::json(instance.data).dump());
      allowed += accepted ? 1 : 0;
    }
  }
  std::printf("schemas: %d of %zu compiled; instances: %d invalid, all refused; %d of %d valid\n",
              compiled, suite.size(), invalid, allowed, valid);
  for (const auto& [why, count] : refused) std::printf("  refused: %4d %s\n", count, why.c_str());
  EXPECT_GE(5 * static_cast<size_t>(compiled), 2 * suite.size());
  EXPECT_GT(10 * allowed, 9 * valid);
}

}  // namespace
}  // namespace aerie
