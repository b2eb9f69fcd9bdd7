#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/grammar/grammars.h"
#include "tests/tokenizer/vocabularies.h"

namespace aerie::schema_test {

using test::accepts;

auto schema(std::string_view text) {
  return test::compile(GrammarKind::kJsonSchema, text);
}

Status refusal(std::string_view text) {
  return test::refusal(GrammarKind::kJsonSchema, text);
}

void expect_texts(std::string_view text, const std::vector<std::string>& valid,
                  const std::vector<std::string>& invalid) {
  const auto grammar = schema(text);
  for (const std::string& document : valid) {
    EXPECT_TRUE(accepts(grammar, document)) << text << "\n" << document;
  }
  for (const std::string& document : invalid) {
    EXPECT_FALSE(accepts(grammar, document)) << text << "\n" << document;
  }
}

TEST(Schema, OwnSchemasCompileAndGiveJson) {
  std::mt19937 random(3);
  const auto schemas = nlohmann::ordered_json::parse(test::read_file("tests/grammar/schemas.json"));
  for (const auto& text : schemas) {
    const auto grammar = schema(text.dump());
    ASSERT_NE(grammar, nullptr);
    for (int i = 0; i < 20; ++i) {
      const std::string document = test::random_output(grammar, test::toy(), random);
      EXPECT_FALSE(nlohmann::json::parse(document, nullptr, false).is_discarded()) << document;
      EXPECT_TRUE(accepts(grammar, document)) << document;
    }
  }
}

TEST(Schema, PropertiesInOrder) {
  expect_texts(
      R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"},"c":{}},
          "required":["b"],"additionalProperties":false})",
      {R"({"b":"x"})", R"({"a":1,"b":"","c":[]})", "{ \"a\": 1,\n  \"b\": \"x\"\n}"},
      {"{}", R"({"a":1})", R"({"b":"x","a":1})", R"({"b":"x","d":1})", R"({"b":"x","b":"y"})",
       R"({"a":1.5,"b":""})", R"({"a":1,"b":"",})"});
  expect_texts(R"({"properties":{"a":{"type":"integer"}},"type":"object"})",
               {R"({"a":1,"x":null})", R"({"x":{},"aa":2,"":3})"},
               {R"({"x":1,"a":"no"})", R"({"x":1,"\u0061":"no"})"});
}

TEST(Schema, KeywordsConstrainTheirOwnTypes) {
  expect_texts(R"({"minLength":2})", {"1", "[]", "{}", "null", "\"ab\"", "\"\\u00e9x\""},
               {"\"\"", "\"a\"", "\"\\n\""});
  expect_texts(R"({"minimum":5,"type":["integer","string"]})", {"5", "\"\"", "17"},
               {"4", "5.5", "-6", "null"});
}

TEST(Schema, Numbers) {
  expect_texts(R"({"type":"integer","minimum":-12,"maximum":105})",
               {"-12", "-1", "0", "9", "10", "99", "100", "105"},
               {"-13", "106", "-0", "00", "010", "1.0", "1e1", "200", "-20"});
  expect_texts(R"({"type":"number","exclusiveMinimum":0.5,"maximum":2})",
               {"0.500001", "0.6", "1", "1.999999", "2", "2.0"},
               {"0.5", "0", "2.000001", "3", "-1"});
  expect_texts(R"({"type":"integer","multipleOf":6})", {"0", "-12", "600"}, {"-3", "601"});
  expect_texts(R"({"type":"number"})", {"1e99", "-0.5E-3", "123456789012345678"},
               {"1e100", "1.", ".5", "+1", "01", "1234567890123456789"});
}

TEST(Schema, StringsOfPatternsAndLengths) {
  expect_texts(R"({"type":"string","pattern":"^a\"+$","maxLength":3})", {R"("a\"")", R"("a\"\"")"},
               {R"("a")", R"("a\"\"\"")", R"("a"")"});
  expect_texts(R"({"type":"string","pattern":"b"})", {"\"b\"", "\"abc\"", "\"\\n\\\\b\""},
               {"\"\"", "\"\\b\"", "\"a\""});
  expect_texts(R"({"type":"string","format":"date"})", {"\"2024-02-29\"", "\"1999-12-31\""},
               {"\"2023-02-29\"", "\"2100-02-29\"", "\"2024-13-01\"", "\"2024-04-31\""});
}

TEST(Schema, UnknownKeywordsSayNothing) {
  expect_texts(
      R"({"type":"string","format":"regex","maxLenght":1,"links":[],"self":{"vendor":"x"}})",
      {"\"ab\""}, {"1"});
  expect_texts(R"({"$schema":"http://example.com/own#","type":"integer"})", {"1"}, {"\"\""});
}

TEST(Schema, OlderDrafts) {
  expect_texts(
      R"({"$schema":"http://json-schema.org/draft-04/schema#","id":"http://x.org/a#","type":"object",
          "properties":{"n":{"type":"integer","minimum":3,"exclusiveMinimum":true,"maximum":9,"exclusiveMaximum":false},
                        "m":{"$ref":"http://x.org/a#/definitions/m","type":"null"}},
          "definitions":{"m":{"type":"boolean"}}})",
      {R"({"n":4})", R"({"n":9})", R"({"m":true})"},
      {R"({"n":3})", R"({"n":10})", R"({"m":null})"});
  expect_texts(
      R"({"$schema":"https://json-schema.org/draft/2019-09/schema","items":[{"type":"null"}],
                   "additionalItems":false,"$ref":"#/$defs/a","$defs":{"a":{"minItems":1}}})",
      {"[null]"}, {"[]", "[null,1]"});
}

TEST(Schema, Not) {
  expect_texts(R"({"not":{"required":["a"]}})", {"{}", R"({"b":1})"}, {"1", R"({"a":1})"});
  expect_texts(
      R"({"type":"object","properties":{"a":{"type":"integer"}},"not":{"properties":{"a":{"minimum":3}},"required":["a"]}})",
      {"{}", R"({"a":2})"}, {R"({"a":3})"});
  expect_texts(R"({"not":{"enum":["a",1,2.5,null,true]}})",
               {"\"b\"", "2", "0", "2.6", "false", "[]", "{}", "\"\""},
               {"\"a\"", "1", "2.5", "null", "true"});
  expect_texts(R"({"type":"string","not":{"pattern":"^a"}})", {"\"\"", "\"ba\""},
               {"\"a\"", "\"ab\""});
  expect_texts(R"({"not":{"anyOf":[{"type":"integer"},{"type":"object"},{"minLength":2}]}})",
               {"\"a\"", "\"\""}, {"1", "1.5", "null", "{}", "\"ab\""});
  expect_texts(R"({"not":{"not":{"type":"integer","maximum":4}}})", {"4"}, {"5", "null"});
  expect_texts(R"({"type":"number","not":{"multipleOf":1}})", {"1.5"}, {"1"});
  expect_texts(R"({"not":{"$ref":"#/$defs/a"},"$defs":{"a":{"type":["string","null"]}}})", {"1"},
               {"\"\"", "null"});
}

TEST(Schema, Conditions) {
  const char* text =
      R"({"type":"object","properties":{"country":{"enum":["US","NL"]},"code":{"type":"string"}},"required":["country","code"],
          "if":{"properties":{"country":{"const":"US"}}},
          "then":{"properties":{"code":{"pattern":"^[0-9]{5}$"}}},
          "else":{"properties":{"code":{"pattern":"^[0-9]{4}[A-Z]{2}$"}}}})";
  expect_texts(text, {R"({"country":"US","code":"12345"})", R"({"country":"NL","code":"1234AB"})"},
               {R"({"country":"US","code":"1234AB"})", R"({"country":"NL","code":"12345"})"});
  expect_texts(R"({"if":{"type":"integer"},"then":{"minimum":3}})", {"3", "\"\"", "2.5"}, {"2"});
  // Of the condition's opposite nothing can be told: what is written is what both branches allow.
  expect_texts(R"({"type":"object","additionalProperties":{"type":"integer"},
                   "if":{"propertyNames":{"maxLength":1}},
                   "then":{"maxProperties":1},"else":{"minProperties":1}})",
               {"{}", R"({"a":1})", R"({"long":1})"}, {R"({"a":1,"b":1})"});
}

TEST(Schema, Dependencies) {
  for (const char* keyword : {"dependencies", "dependentRequired"}) {
    expect_texts(R"({"type":"object","properties":{"a":{},"b":{}},"additionalProperties":false,")" +
                     std::string(keyword) + R"(":{"a":["b"]}})",
                 {"{}", R"({"b":1})", R"({"a":1,"b":1})"}, {R"({"a":1})"});
  }
  expect_texts(
      R"({"type":"object","properties":{"a":{},"b":{"type":"integer"}},"dependentSchemas":{"a":{"properties":{"b":{"minimum":5}}}}})",
      {R"({"b":1})", R"({"a":1,"b":5})", R"({"a":1})"}, {R"({"a":1,"b":4})"});
}

TEST(Schema, Identifiers) {
  expect_texts(R"({"$id":"http://x.org/a/root.json","$ref":"sub/b.json#/$defs/c",
                   "$defs":{"b":{"$id":"sub/b.json","$defs":{"c":{"$ref":"../d.json"}}},
                            "d":{"$id":"/a/d.json","$anchor":"here","type":"integer"}}})",
               {"1"}, {"null"});
  expect_texts(
      R"({"$ref":"urn:x:a#here","$defs":{"d":{"$id":"urn:x:a","$defs":{"e":{"$anchor":"here","type":"null"}}}}})",
      {"null"}, {"1"});
  // As written by generators: the identifier has begun another schema, but the document is meant.
  expect_texts(
      R"({"properties":{"a":{"$id":"/properties/a","$ref":"#/$defs/b"}},"$defs":{"b":{"type":"integer"}},
                   "required":["a"],"type":"object"})",
      {R"({"a":1})"}, {R"({"a":null})"});
}

TEST(Schema, OneOfThatOverlaps) {
  expect_texts(R"({"oneOf":[{"type":"integer"},{"minimum":2}]})", {"1", "2.5", "\"\""},
               {"2", "3", "1.5"});
  expect_texts(R"({"type":"object","oneOf":[{"required":["a"]},{"required":["b"]}]})",
               {R"({"a":1})", R"({"b":1})"}, {"{}", R"({"a":1,"b":1})"});
}

TEST(Schema, UniqueListedItems) {
  expect_texts(
      R"({"type":"array","uniqueItems":true,"minItems":1,"maxItems":2,"items":{"enum":["a","b","c"]}})",
      {R"(["a"])", R"(["a","c"])", R"(["b","c"])"},
      {"[]", R"(["a","a"])", R"(["a","b","c"])", R"(["d"])"});
}

TEST(Schema, UniqueItemsOfSmallRanges) {
  expect_texts(
      R"({"type":"array","uniqueItems":true,"items":{"type":"integer","minimum":-1.5,"maximum":2}})",
      {"[]", "[-1,0,1,2]", "[0,2]"}, {"[0,0]", "[-2]", "[3]", "[1.5]"});
  expect_texts(R"({"type":"array","uniqueItems":true,"items":{"type":["boolean","null"]}})",
               {"[]", "[null,true]", "[false,true]"}, {"[true,true]", "[null,null]", "[1]"});
}

TEST(Schema, Contains) {
  expect_texts(R"({"type":"array","contains":{"const":1}})", {"[1]", "[2,1]", "[1,[],1]"},
               {"[]", "[2]", "[[1]]", "1"});
  expect_texts(
      R"({"type":"array","items":{"type":"integer"},"maxItems":4,"contains":{"minimum":5},"minContains":2,"maxContains":3})",
      {"[5,5]", "[1,5,6]", "[5,5,5,1]"},
      {"[5]", "[5,5,5,5]", "[5,5,1,1,1]", "[1,2]", "[5,5,\"\"]"});
  expect_texts(R"({"type":"array","prefixItems":[{"type":"string"}],"contains":{"type":"null"}})",
               {R"(["",null])"}, {"[null]", R"([""])"});
  expect_texts(
      R"({"type":"array","allOf":[{"contains":{"const":"a"}},{"contains":{"const":"b"}}],"maxItems":2})",
      {R"(["a","b"])", R"(["b","a"])"}, {R"(["a","a"])", R"(["a"])", R"(["a","b","c"])"});
  expect_texts(R"({"type":"array","items":{"enum":[1,2]},"not":{"contains":{"const":2}}})",
               {"[]", "[1,1]"}, {"[2]", "[1,2]"});
  // Draft 7 has no other number than one or more.
  const char* old =
      R"({"$schema":"http://json-schema.org/draft-07/schema#","type":"array","contains":{"const":1},"maxContains":1})";
  expect_texts(old, {"[1,1]", "[1]"}, {"[]", "[2]"});
  expect_texts(R"({"enum":[[1],[2],[1,1]],"contains":{"const":1},"maxContains":1})", {"[1]"},
               {"[2]", "[1,1]"});
}

TEST(Schema, Unevaluated) {
  expect_texts(R"({"type":"object","$ref":"#/$defs/base","properties":{"b":{"type":"null"}},
                   "unevaluatedProperties":false,"$defs":{"base":{"properties":{"a":{"type":"integer"}}}}})",
               {"{}", R"({"b":null,"a":1})"}, {R"({"c":1})", R"({"a":null})"});
  expect_texts(
      R"({"type":"object","required":["kind"],"oneOf":[
          {"properties":{"kind":{"const":"a"},"x":{"type":"integer"}}},
          {"properties":{"kind":{"const":"b"},"y":{"type":"integer"}}}],"unevaluatedProperties":false})",
      {R"({"kind":"a","x":1})", R"({"kind":"b","y":1})"},
      {R"({"kind":"a","y":1})", R"({"kind":"b","x":1})", R"({"kind":"a","z":1})"});
  // What "not" says, and what stands beside the schema, evaluates nothing.
  expect_texts(R"({"type":"object","unevaluatedProperties":false,
                   "not":{"not":{"properties":{"a":{"type":"integer"}}}}})",
               {"{}"}, {R"({"a":1})"});
  expect_texts(
      R"({"allOf":[{"properties":{"a":true}},{"type":"object","unevaluatedProperties":false}]})",
      {"{}"}, {R"({"a":1})"});
  expect_texts(R"({"type":"object","if":{"properties":{"a":{"const":1}},"required":["a"]},
                   "then":{"properties":{"b":true}},"unevaluatedProperties":false})",
               {"{}", R"({"a":1,"b":2})"}, {R"({"b":2})", R"({"a":2})"});
  expect_texts(
      R"({"type":"array","allOf":[{"prefixItems":[{"type":"integer"}]}],"unevaluatedItems":{"type":"null"}})",
      {"[]", "[1]", "[1,null,null]"}, {"[null]", "[1,1]"});
  expect_texts(
      R"({"type":"array","contains":{"type":"integer"},"unevaluatedItems":{"type":"null"}})",
      {"[1]", "[null,1,2]"}, {"[null]", "[1,true]"});
  expect_texts(
      R"({"enum":[{"a":1},{"b":1}],"allOf":[{"properties":{"a":true}}],"unevaluatedProperties":false})",
      {R"({"a":1})"}, {R"({"b":1})"});
}

TEST(Schema, MultiplesOfFractions) {
  expect_texts(R"({"type":"number","multipleOf":0.01})", {"0", "19.99", "-0.5", "3", "1.50"},
               {"0.001", "1.005", "1e2"});
  expect_texts(R"({"multipleOf":0.25,"minimum":-1,"exclusiveMaximum":1.6})",
               {"-1", "1.5", "0.25", "-0.75", "1.50"}, {"1.75", "0.3", "-1.25", "0.2"});
  expect_texts(R"({"multipleOf":1.5})", {"1.5", "3", "4.5", "-6.0"}, {"1", "2.5", "3.5"});
  expect_texts(R"({"type":"integer","multipleOf":1.5})", {"3", "0", "-6"}, {"1", "4", "1.5"});
  expect_texts(R"({"allOf":[{"multipleOf":0.5},{"multipleOf":0.2}]})", {"1", "2"}, {"0.5", "0.2"});
  expect_texts(R"({"enum":[0.3,0.35],"multipleOf":0.1})", {"0.3"}, {"0.35"});
}

TEST(Schema, DynamicReferences) {
  expect_texts(
      R"({"$dynamicAnchor":"node","type":"object","properties":{"next":{"$dynamicRef":"#node"}},
                   "additionalProperties":false})",
      {"{}", R"({"next":{"next":{}}})"}, {R"({"next":1})"});
  // The root's comes before the one beside it.
  expect_texts(R"({"$id":"http://x.org/a","$ref":"list","$defs":{
                   "list":{"$id":"list","type":"array","items":{"$dynamicRef":"#item"},
                           "$defs":{"item":{"$dynamicAnchor":"item"}}},
                   "item":{"$dynamicAnchor":"item","type":"integer"}}})",
               {"[1]"}, {"[null]"});
  expect_texts(R"({"$schema":"https://json-schema.org/draft/2019-09/schema","$recursiveAnchor":true,
                   "type":"array","items":{"$recursiveRef":"#"}})",
               {"[]", "[[],[[]]]"}, {"[1]"});
}

TEST(Schema, RefusesByNameAndPlace) {
  const auto expect_refused = [](const char* text, const char* pointer,
                                 StatusCode code = StatusCode::kUnsupported) {
    GrammarSpec spec;
    spec.kind = GrammarKind::kJsonSchema;
    spec.text = text;
    spec.strict = true;
    const Status status = compile_grammar(spec, test::toy_trie()).status();
    EXPECT_EQ(status.code(), code) << text;
    EXPECT_TRUE(status.message().starts_with(std::string(pointer) + ":")) << status.message();
  };
  expect_refused(R"({"properties":{"a":{"disallow":"null"}}})", "#/properties/a/disallow");
  expect_refused(
      R"({"properties":{"a":{"uniqueItems":true,"contains":{"type":"null"},"items":{"enum":[null,true]}}}})",
      "#/properties/a/uniqueItems");
  expect_refused(R"({"type":"array","uniqueItems":true})", "#/uniqueItems");
  expect_refused(R"({"format":"regex"})", "#/format");
  expect_refused(R"({"multipleOf":0.10001})", "#/multipleOf");
  expect_refused(R"({"multipleOf":0.01,"maximum":100000000000000})", "#/multipleOf");
  expect_refused(R"({"not":{"propertyNames":{"maxLength":2}}})", "#/not");
  expect_refused(R"({"maxLenght":2})", "#/maxLenght");
  expect_refused(R"({"$ref":"http://localhost/x.json"})", "#/$ref");
  expect_refused(R"x({"pattern":"(?=a)"})x", "#/pattern");
  expect_refused(R"({"$id":"http://x.org/a","$ref":"b","$defs":{
                     "b":{"$id":"b","$dynamicRef":"#t","$defs":{"t":{"$dynamicAnchor":"t"}}},
                     "c":{"$id":"c","$defs":{"t":{"$dynamicAnchor":"t"}}}}})",
                 "#/$defs/b/$dynamicRef");
  expect_refused(R"({"type":"text"})", "#/type", StatusCode::kInvalidArgument);
  expect_refused(R"({"$ref":"#/nothing"})", "#/$ref", StatusCode::kInvalidArgument);
  expect_refused(R"({"$ref":"#"})", "#", StatusCode::kInvalidArgument);
  expect_refused(R"({"minLength":-1})", "#/minLength", StatusCode::kInvalidArgument);
  expect_refused(R"({"maxItems":1e9,"type":"array"})", "#/maxItems",
                 StatusCode::kResourceExhausted);
  for (const char* text :
       {"false", R"({"type":"integer","minimum":3,"maximum":2})",
        R"({"properties":{"a":{"$ref":"#"}},"required":["a"],"type":"object"})"}) {
    EXPECT_EQ(refusal(text).code(), StatusCode::kInvalidArgument) << text;
  }
  for (const char* text :
       {"", "{", "[]", "1", "{\"type\":\"object\",\"type\":\"array\"}", "\xFF"}) {
    EXPECT_EQ(refusal(text).code(), StatusCode::kInvalidArgument) << text;
  }
}

TEST(Schema, HostileSizes) {
  std::string deep = "{}";
  for (int i = 0; i < 100; ++i) deep = "{\"items\":" + deep + "}";
  EXPECT_FALSE(compile_grammar({GrammarKind::kJsonSchema, deep, {}}, test::toy_trie()).ok());
  std::string wide = "{\"allOf\":[";
  for (int i = 0; i < 20; ++i) wide += R"({"anyOf":[{"minLength":1},{"maxLength":9}]},)";
  wide += "{}]}";
  EXPECT_EQ(refusal(wide).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(refusal(R"({"pattern":"(a|b)*a(a|b){30}"})").code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(refusal(R"x({"pattern":"(((a{1000}){1000}){1000})"})x").code(),
            StatusCode::kResourceExhausted);
}

}  // namespace aerie::schema_test
