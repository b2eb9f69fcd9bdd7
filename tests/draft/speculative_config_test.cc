#include "draft/speculative_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace aerie {
namespace {

using testing::AllOf;
using testing::HasSubstr;

SpeculativeConfig json(const std::string& text) {
  const auto config = parse_speculative_json(text);
  EXPECT_TRUE(config.ok()) << text << ": " << config.status().message();
  return config.ok() ? *config : SpeculativeConfig{};
}

SpeculativeConfig spec(const std::string& text) {
  const auto config = parse_speculative_spec(text);
  EXPECT_TRUE(config.ok()) << text << ": " << config.status().message();
  return config.ok() ? *config : SpeculativeConfig{};
}

void expect_error(const Expected<SpeculativeConfig>& config, const std::string& text,
                  const std::vector<std::string>& parts) {
  SCOPED_TRACE(text);
  ASSERT_FALSE(config.ok());
  const Status status = config.status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  for (const std::string& part : parts) EXPECT_THAT(status.message(), HasSubstr(part));
  EXPECT_EQ(status.message().find('\n'), std::string::npos);
  EXPECT_FALSE(status.message().ends_with('.'));
}

void bad_json(const std::string& text, const std::vector<std::string>& parts) {
  expect_error(parse_speculative_json(text), text, parts);
}

void bad_spec(const std::string& text, const std::vector<std::string>& parts) {
  expect_error(parse_speculative_spec(text), text, parts);
}

void expect_equal(const SpeculativeConfig& a, const SpeculativeConfig& b) {
  EXPECT_EQ(a.method, b.method);
  EXPECT_EQ(a.num_speculative_tokens, b.num_speculative_tokens);
  EXPECT_EQ(a.prompt_lookup_max, b.prompt_lookup_max);
  EXPECT_EQ(a.prompt_lookup_min, b.prompt_lookup_min);
  EXPECT_EQ(a.model, b.model);
}

TEST(SpeculativeJson, Ngram) {
  const auto config =
      json(R"({"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4,)"
           R"( "prompt_lookup_min": 2})");
  expect_equal(config, {DraftMethod::kNgram, 5, 4, 2, ""});
  EXPECT_EQ(config.tokens(), 5);
}

TEST(SpeculativeJson, DraftModel) {
  const auto config =
      json(R"({"method": "draft_model", "model": "draft.gguf", "num_speculative_tokens": 7})");
  expect_equal(config, {DraftMethod::kDraftModel, 7, 0, 0, "draft.gguf"});
}

TEST(SpeculativeJson, DefaultsStayUnset) {
  const auto ngram = json(R"({"method": "ngram"})");
  expect_equal(ngram, {DraftMethod::kNgram, 0, 0, 0, ""});
  EXPECT_EQ(ngram.tokens(), 10);
  EXPECT_EQ(json(R"({"method": "draft_model", "model": "m"})").tokens(), 5);
  EXPECT_EQ(json(R"({"method": "none"})").tokens(), 0);
}

TEST(SpeculativeJson, ModelAloneNamesTheMethod) {
  expect_equal(json(R"({"model": "draft.gguf"})"),
               {DraftMethod::kDraftModel, 0, 0, 0, "draft.gguf"});
  expect_equal(json(R"({"model": "[ngram]", "prompt_lookup_max": 2})"),
               {DraftMethod::kNgram, 0, 2, 0, ""});
  expect_equal(json(R"({"method": "ngram", "model": "[ngram]"})"),
               {DraftMethod::kNgram, 0, 0, 0, ""});
}

TEST(SpeculativeJson, OrderAndSpaceDoNotMatter) {
  expect_equal(json("\n{ \"prompt_lookup_min\" :64 ,\"prompt_lookup_max\":64, \"method\":"
                    "\"ngram\"}\t"),
               {DraftMethod::kNgram, 0, 64, 64, ""});
}

TEST(SpeculativeJson, NotAnObject) {
  for (const char* text :
       {"", " ", "{", "{\"method\"}", "{\"method\":\"ngram\",}", "nul", "{\"method\":\"ngram\"} x",
        "{'method':'ngram'}", "\xff", "{\"method\":\"\xff\"}"}) {
    bad_json(text, {"not valid JSON at byte"});
  }
  bad_json("[]", {"must be an object, not a list"});
  bad_json("\"ngram\"", {"must be an object, not \"ngram\""});
  bad_json("null", {"must be an object, not null"});
  bad_json("3", {"must be an object, not 3"});
  bad_json(std::string(100000, '['), {"not valid JSON"});
}

TEST(SpeculativeJson, MissingMethod) {
  bad_json("{}", {"no method", "none, ngram or draft_model", "'model'"});
  bad_json(R"({"num_speculative_tokens": 3})", {"no method"});
}

TEST(SpeculativeJson, WrongMethod) {
  bad_json(R"({"method": "eagle9"})", {"unknown method 'eagle9'", "none, ngram or draft_model"});
  bad_json(R"({"method": ""})", {"unknown method ''"});
  bad_json(R"({"method": "NGRAM"})", {"unknown method 'NGRAM'"});
  bad_json(R"({"method": 3})", {"'method' must be a string, not 3"});
  bad_json(R"({"method": null})", {"'method' must be a string, not null"});
}

TEST(SpeculativeJson, UnknownKeyListsTheAllowedOnes) {
  bad_json(R"({"method": "ngram", "ngram_size": 3})",
           {"unknown key 'ngram_size'",
            "method ngram takes prompt_lookup_max, prompt_lookup_min, num_speculative_tokens"});
  bad_json(R"({"model": "m", "tokens": 3})",
           {"unknown key 'tokens'", "method draft_model takes model, num_speculative_tokens"});
  bad_json(R"({"method": "none", "x": 3})", {"unknown key 'x'", "method none takes no keys"});
}

TEST(SpeculativeJson, MessagesAreOneLine) {
  bad_json(R"({"method": "a\nb"})", {"unknown method 'a b'"});
  bad_json(R"({"method": "ngram", "\r\n": 1})", {"unknown key '  '"});
}

TEST(SpeculativeJson, KeyOfAnotherMethod) {
  bad_json(R"({"method": "draft_model", "model": "m", "prompt_lookup_max": 3})",
           {"'prompt_lookup_max' does not go with method draft_model", "takes model, num_spec"});
  bad_json(R"({"method": "ngram", "model": "m"})",
           {"'model' does not go with method ngram", "takes prompt_lookup_max"});
  bad_json(R"({"method": "none", "num_speculative_tokens": 3})",
           {"'num_speculative_tokens' does not go with method none"});
  bad_json(R"({"method": "none", "model": "m"})", {"'model' does not go with method none"});
  bad_json(R"({"method": "draft_model", "model": "[ngram]"})",
           {"[ngram] does not go with method draft_model"});
}

TEST(SpeculativeJson, WrongType) {
  for (const char* value : {"\"5\"", "5.0", "5.5", "true", "null", "[5]", "{}", "1e1", "1e30"}) {
    bad_json(std::string(R"({"method": "ngram", "num_speculative_tokens": )") + value + "}",
             {"'num_speculative_tokens' must be a whole number, not "});
  }
  for (const char* value : {"5", "true", "null", "[\"m\"]", "{}"}) {
    bad_json(std::string(R"({"method": "draft_model", "model": )") + value + "}",
             {"'model' must be a string, not "});
    bad_json(std::string(R"({"model": )") + value + "}", {"'model' must be a string, not "});
  }
}

TEST(SpeculativeJson, OutOfRange) {
  for (const char* key : {"num_speculative_tokens", "prompt_lookup_max", "prompt_lookup_min"}) {
    for (const char* value : {"0", "-1", "65", "2147483648", "4294967297", "18446744073709551615",
                              "-9223372036854775808"}) {
      bad_json(std::string("{\"method\": \"ngram\", \"") + key + "\": " + value + "}",
               {std::string("'") + key + "' must be 1 to 64, not " + value});
    }
  }
  EXPECT_EQ(json(R"({"method": "ngram", "num_speculative_tokens": 64})").tokens(), 64);
  EXPECT_EQ(json(R"({"method": "ngram", "num_speculative_tokens": 1})").tokens(), 1);
}

TEST(SpeculativeJson, LookupBoundsAreInOrder) {
  bad_json(R"({"method": "ngram", "prompt_lookup_max": 2, "prompt_lookup_min": 3})",
           {"'prompt_lookup_min' 3 is above 'prompt_lookup_max' 2"});
  bad_json(R"({"method": "ngram", "prompt_lookup_min": 4})",
           {"'prompt_lookup_min' 4 is above 'prompt_lookup_max' 3, its default"});
  json(R"({"method": "ngram", "prompt_lookup_min": 3})");
  json(R"({"method": "ngram", "prompt_lookup_max": 1})");
}

TEST(SpeculativeJson, ModelMustBeAFileName) {
  bad_json(R"({"model": ""})", {"'model' is empty"});
  bad_json(R"({"method": "draft_model"})", {"needs 'model'"});
  bad_json(R"({"model": "a\u0000b"})", {"zero byte"});
}

TEST(SpeculativeJson, KeyGivenTwice) {
  bad_json(R"({"method": "ngram", "method": "none"})", {"'method' is given twice"});
  bad_json(R"({"method": "ngram", "prompt_lookup_max": 1, "prompt_lookup_max": 1})",
           {"'prompt_lookup_max' is given twice"});
}

TEST(SpeculativeSpec, Methods) {
  expect_equal(spec("none"), {});
  expect_equal(spec("ngram"), {DraftMethod::kNgram, 0, 0, 0, ""});
  expect_equal(spec("ngram:prompt_lookup_max=4,num_speculative_tokens=8"),
               {DraftMethod::kNgram, 8, 4, 0, ""});
  expect_equal(spec("draft_model:model=draft.gguf,num_speculative_tokens=5"),
               {DraftMethod::kDraftModel, 5, 0, 0, "draft.gguf"});
}

TEST(SpeculativeSpec, ModelPathsMayHoldAnything) {
  EXPECT_EQ(spec("draft_model:model=/a:b/c=d.gguf").model, "/a:b/c=d.gguf");
  EXPECT_EQ(spec("draft_model:num_speculative_tokens=2,model=C:=").model, "C:=");
  EXPECT_EQ(spec("draft_model:model= x ").model, " x ");
  EXPECT_EQ(spec("draft_model:model=5").model, "5");
  EXPECT_EQ(spec(R"(draft_model:model=a\,b\\c\d.gguf)").model, R"(a,b\c\d.gguf)");
}

TEST(SpeculativeSpec, WrongMethod) {
  for (const char* text : {"", "ngrams", " ngram", "Ngram", "draft.gguf", ":", "[ngram]"}) {
    bad_spec(text, {"unknown method", "none, ngram or draft_model"});
  }
}

TEST(SpeculativeSpec, WrongItems) {
  for (const char* text : {"ngram:", "ngram:prompt_lookup_max", "ngram:prompt_lookup_max=4,",
                           "ngram:,prompt_lookup_max=4", "ngram:=4", "none:"}) {
    bad_spec(text, {"is not of the form key=value", "takes "});
  }
  bad_spec("ngram:prompt_lookup_max=", {"'prompt_lookup_max' has an empty value"});
  bad_spec("draft_model:model=", {"'model' has an empty value"});
  bad_spec("draft_model", {"needs 'model'"});
  bad_spec("draft_model:model=a,model=a", {"'model' is given twice"});
  bad_spec("ngram:prompt_lookup_max=1,num_speculative_tokens=3,prompt_lookup_max=2",
           {"'prompt_lookup_max' is given twice"});
}

TEST(SpeculativeSpec, WrongKeys) {
  bad_spec("ngram:n=4", {"unknown key 'n'", "method ngram takes prompt_lookup_max"});
  bad_spec("ngram:method=ngram", {"unknown key 'method'"});
  bad_spec("ngram:model=m", {"'model' does not go with method ngram"});
  bad_spec("draft_model:model=a,prompt_lookup_min=1", {"'prompt_lookup_min' does not go with"});
  bad_spec("none:num_speculative_tokens=1", {"does not go with method none", "takes no keys"});
}

TEST(SpeculativeSpec, WrongNumbers) {
  for (const char* value : {"x", "5x", "5.0", " 5", "5 ", "+5", "0x5", "1e1", "--1"}) {
    bad_spec(std::string("ngram:num_speculative_tokens=") + value,
             {"'num_speculative_tokens' must be a whole number, not '" + std::string(value) + "'"});
  }
  for (const char* value : {"0", "-1", "65", "4294967297", "99999999999999999999999"}) {
    bad_spec(std::string("ngram:num_speculative_tokens=") + value,
             {"'num_speculative_tokens' must be 1 to 64, not "});
  }
  bad_spec("ngram:prompt_lookup_min=9", {"is above 'prompt_lookup_max' 3, its default"});
  bad_spec("ngram:prompt_lookup_min=9,prompt_lookup_max=8", {"9 is above 'prompt_lookup_max' 8"});
}

TEST(SpeculativeSpec, ToStringIsTheShortForm) {
  EXPECT_EQ(to_string({}), "none");
  EXPECT_EQ(to_string({DraftMethod::kNgram, 0, 0, 0, ""}), "ngram");
  EXPECT_EQ(to_string({DraftMethod::kNgram, 8, 4, 0, ""}),
            "ngram:prompt_lookup_max=4,num_speculative_tokens=8");
  EXPECT_EQ(to_string({DraftMethod::kDraftModel, 5, 0, 0, "draft.gguf"}),
            "draft_model:model=draft.gguf,num_speculative_tokens=5");
}

TEST(SpeculativeSpec, ToStringParsesBack) {
  std::mt19937 random(1);
  const std::string letters = "ab,\\=:/. \"{}\n";
  for (int repeat = 0; repeat < 2000; ++repeat) {
    SpeculativeConfig config;
    const auto number = [&] { return random() % 3 == 0 ? 0 : 1 + static_cast<int>(random() % 64); };
    if (repeat % 2 == 0) {
      config.method = DraftMethod::kNgram;
      config.num_speculative_tokens = number();
      config.prompt_lookup_max = number();
      const auto longest = config.prompt_lookup_max == 0 ? 3u : unsigned(config.prompt_lookup_max);
      config.prompt_lookup_min = static_cast<int>(random() % (longest + 1));
    } else {
      config.method = DraftMethod::kDraftModel;
      config.num_speculative_tokens = number();
      const size_t length = 1 + random() % 12;
      while (config.model.size() < length) config.model += letters[random() % letters.size()];
    }
    SCOPED_TRACE(to_string(config));
    expect_equal(spec(to_string(config)), config);
  }
}

TEST(SpeculativeSpec, NoTextIsTooStrange) {
  std::mt19937 random(2);
  const std::string letters = "ngram:=,\\{}\"[]0123456789model_";
  for (int repeat = 0; repeat < 20000; ++repeat) {
    std::string text = repeat % 2 == 0 ? "ngram:prompt_lookup_max=" : "{\"method\":\"ngram\",";
    const size_t length = random() % 20;
    for (size_t i = 0; i < length; ++i) text += letters[random() % letters.size()];
    const auto config =
        repeat % 2 == 0 ? parse_speculative_spec(text) : parse_speculative_json(text);
    EXPECT_TRUE(config.ok() || !config.status().message().empty());
  }
}

}  // namespace
}  // namespace aerie
