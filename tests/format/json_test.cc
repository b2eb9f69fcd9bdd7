// JSON: what is written is what is read, broken and hostile texts are refused with their place.
#include "format/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace aerie::json_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace std::string_literals;  // NOLINT: "..."s

Json parsed(std::string_view text) {
  auto value = parse_json(text, "x.json");
  EXPECT_TRUE(value.ok()) << value.status().message();
  return value.ok() ? *std::move(value) : Json();
}

void expect_invalid(std::string_view text, const std::string& message) {
  const Status status = parse_json(text, "x.json").status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidData) << text.substr(0, 100);
  EXPECT_THAT(status.message(), HasSubstr(message));
  EXPECT_TRUE(status.message().starts_with("x.json: ")) << status.message();
  EXPECT_LT(status.message().size(), 400u);
}

std::string nested(int depth, const std::string& open, const std::string& close) {
  std::string text;
  for (int i = 0; i < depth; ++i) text += open;
  text += "1";
  for (int i = 0; i < depth; ++i) text += close;
  return text;
}

TEST(Json, ValuesOfEveryKind) {
  const std::string text =
      R"({"b":[1,-2,0.5,1e3,true,false,null,[],{}],"a":{"":"\u00e4\ud83d\ude00\n"},"c":"z"})";
  const Json value = parsed(text);
  EXPECT_EQ(value, Json::parse(text)) << "as the library's own reader has it";
  EXPECT_EQ(value.begin().key(), "b") << "the file's order";
  EXPECT_EQ(value["a"][""], "ä😀\n");
  EXPECT_EQ(parsed(" 7 "), 7);
  EXPECT_EQ(parsed("\xEF\xBB\xBF[1]"), Json({1})) << "a byte order mark";
  EXPECT_TRUE(parsed("18446744073709551615").is_number_unsigned());
  EXPECT_TRUE(parsed("-9223372036854775808").is_number_integer());
  EXPECT_EQ(parsed("18446744073709551616"), 18446744073709551616.0);
}

TEST(Json, TreesHaveALimit) {
  constexpr size_t kMost = size_t{1} << 20;
  const auto limited = [](const std::string& element, int count) {
    std::string text = "[";
    for (int i = 0; i < count; ++i) text += element + ",";
    return parse_json(text + "1]", "x", kMost).status();
  };
  EXPECT_TRUE(limited("1", 30000).ok());
  EXPECT_TRUE(limited("\"" + std::string(100000, 'a') + "\"", 20).ok()) << "texts are not counted";
  for (const char* element : {"1", "\"\"", "[]", "{}", R"({"a":1})"}) {
    const Status status = limited(element, 40000);
    EXPECT_EQ(status.code(), StatusCode::kInvalidData) << element;
    EXPECT_THAT(status.message(), HasSubstr("more than 1 MiB")) << element;
  }
}

TEST(Json, SyntaxErrorsHaveAPlace) {
  expect_invalid("", "is empty, not JSON");
  expect_invalid("  ", "line 1, column 3: ");
  expect_invalid("{\"a\": 1,\n \"b\": tru}", "line 2, column 10: ");
  expect_invalid("{\"a\": tru}", "invalid literal");
  expect_invalid("[1,]", "line 1, column 4: ");
  expect_invalid("[1] 2", "line 1, column 5: ");
  expect_invalid("{\"a\" 1}", "line 1, column 6: ");
  expect_invalid("[1", "unexpected end of input");
  expect_invalid("{1:2}", "expected string literal");
  expect_invalid("[NaN]", "invalid literal");
  expect_invalid("[1] // note", "line 1, column 5: ");
  expect_invalid("[1e999]", "number overflow");
  expect_invalid("[1.]", "after '.'");
  expect_invalid("\"a\nb\"", "control character");
  expect_invalid("<!DOCTYPE html>", "line 1, column 1: ");
  expect_invalid("version https://git-lfs.github.com/spec/v1\n", "git lfs pull");
}

TEST(Json, OtherBytes) {
  expect_invalid("{}\0{"s, "line 1, column 3: a NUL byte");
  expect_invalid("\"\0\""s, "column 2: a NUL byte");
  expect_invalid("\"\xFF\"", "ill-formed UTF-8");
  expect_invalid("\"\xC0\x80\"", "ill-formed UTF-8");  // overlong
  expect_invalid("\"\xED\xA0\x80\"", "ill-formed UTF-8");
  expect_invalid("{\"\xC3\":1}", "ill-formed UTF-8");
  expect_invalid("\"\\ud800\"", "surrogate");
  expect_invalid("\"\\udc00\"", "surrogate");
  expect_invalid("\x1b[2J", "<U+001B>");
}

TEST(Json, DuplicateKeys) {
  expect_invalid(R"({"a":1,"b":2,"a":3})", "key 'a' occurs twice");
  expect_invalid(R"({"m":[0,{"v":{"x":{},"y":1,"x":1}}]})", "key 'm.v.x' occurs twice");
  expect_invalid(R"({"a":1,"\u0061":3})", "key 'a' occurs twice");
  EXPECT_EQ(parsed(R"([{"a":1},{"a":2}])").size(), 2u);
}

TEST(Json, Depth) {
  EXPECT_TRUE(parse_json(nested(kMaxJsonDepth, "[", "]"), "x").ok());
  for (const int depth : {kMaxJsonDepth + 1, 100000}) {
    expect_invalid(nested(depth, "[", "]"), "nested more than 64 deep");
    expect_invalid(nested(depth, "{\"a\":", "}"), "nested more than 64 deep");
    expect_invalid(std::string(static_cast<size_t>(depth), '['), "nested more than 64 deep");
  }
}

TEST(Json, LongTextsInErrorsAreCut) {
  expect_invalid("[\"" + std::string(100000, 'x'), "missing closing quote");
  expect_invalid("{\"" + std::string(1000, 'k') + "\":1,\"" + std::string(1000, 'k') + "\":1}",
                 "occurs twice");
}

// An ordered object of the library takes quadratic time when it is filled by key.
TEST(Json, ManyKeysTakeLittleTime) {
  std::string text = "{\"k\":0";
  for (int i = 0; i < 300000; ++i) text += ",\"key" + std::to_string(i) + "\":" + std::to_string(i);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(parsed(text + "}").size(), 300001u);
  expect_invalid(text + ",\"k\":0}", "key 'k' occurs twice");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(Json, Files) {
  EXPECT_EQ(read_json("no/such.json").status().code(), StatusCode::kNotFound);
  const char* path = "../shared/data/tokenizers/gpt-neox-20b/tokenizer.json";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is absent";
  const auto value = read_json(path);
  ASSERT_TRUE(value.ok()) << value.status().message();
  EXPECT_EQ((*value)["model"]["vocab"].size(), 50254u);
}

class JsonObjects : public ::testing::Test {
 protected:
  Json json_ = parsed(R"({
    "int": 7, "minus": -1, "huge": 18446744073709551615, "float": 2.5, "yes": true, "no": null,
    "text": "t", "list": [1, 2], "texts": ["a", "b"], "mixed": [1, "b"],
    "inner": {"deep": {"x": "y"}}})");
  JsonObject object_ = JsonObject::view(json_, "c.json").value();

  template <typename T>
  static void expect_error(const Expected<T>& value, StatusCode code, const std::string& message) {
    EXPECT_EQ(value.status().code(), code);
    EXPECT_EQ(value.status().message(), message);
  }
};

TEST_F(JsonObjects, Values) {
  EXPECT_EQ(*object_.integer("int"), 7);
  EXPECT_EQ(*object_.integer("minus"), -1);
  EXPECT_EQ(*object_.number("int"), 7.0);
  EXPECT_EQ(*object_.number("float"), 2.5);
  EXPECT_TRUE(*object_.boolean("yes"));
  EXPECT_EQ(*object_.string("text"), "t");
  EXPECT_THAT(*object_.integers("list"), ElementsAre(1, 2));
  EXPECT_THAT(*object_.numbers("list"), ElementsAre(1.0, 2.0));
  EXPECT_THAT(*object_.strings("texts"), ElementsAre("a", "b"));
  EXPECT_EQ(*object_.object("inner")->object("deep")->string("x"), "y");
}

TEST_F(JsonObjects, NullAndAbsentAreTheSame) {
  EXPECT_TRUE(object_.has("int"));
  EXPECT_FALSE(object_.has("no"));
  EXPECT_FALSE(object_.has("none"));
  EXPECT_EQ(*object_.integer("no", 5), 5);
  EXPECT_EQ(*object_.number("none", 0.5), 0.5);
  EXPECT_TRUE(*object_.boolean("none", true));
  EXPECT_EQ(*object_.string("none", "f"), "f");
  EXPECT_EQ(*object_.integer("int", 5), 7);
  expect_error(object_.integer("no"), StatusCode::kNotFound, "c.json: there is no key 'no'");
}

TEST_F(JsonObjects, WrongKindsNameTheKey) {
  constexpr auto kInvalid = StatusCode::kInvalidData;
  expect_error(object_.integer("float"), kInvalid,
               "c.json: key 'float' is 2.5; an integer of 64 bits is wanted");
  expect_error(object_.integer("huge"), kInvalid,
               "c.json: key 'huge' is 18446744073709551615; an integer of 64 bits is wanted");
  expect_error(object_.integer("text", 5), kInvalid,
               "c.json: key 'text' is a string; an integer of 64 bits is wanted");
  expect_error(object_.boolean("int"), kInvalid, "c.json: key 'int' is 7; true or false is wanted");
  expect_error(object_.number("yes"), kInvalid,
               "c.json: key 'yes' is a boolean; a number is wanted");
  expect_error(object_.object("list"), kInvalid,
               "c.json: key 'list' is an array; an object is wanted");
  expect_error(object_.integers("mixed"), kInvalid,
               "c.json: key 'mixed[1]' is a string; an array of integers is wanted");
  expect_error(object_.strings("text"), kInvalid,
               "c.json: key 'text' is a string; an array of strings is wanted");
  expect_error(object_.object("inner")->object("deep")->integer("x"), kInvalid,
               "c.json: key 'inner.deep.x' is a string; an integer of 64 bits is wanted");
  expect_error(object_.object("inner")->string("a\nb"), StatusCode::kNotFound,
               "c.json: there is no key 'inner.a\\nb'");
  expect_error(JsonObject::view(json_["list"], "c.json"), kInvalid,
               "c.json: holds JSON of type array; an object is wanted");
}

}  // namespace aerie::json_test
