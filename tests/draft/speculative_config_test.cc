#include "draft/speculative_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace aerie::speculative_config_test {

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

// One method; 0 and "" for what is not given.
SpeculativeConfig made(const char* method, int tokens, int longest, int shortest,
                       const std::string& model) {
  MethodConfig config;
  config.method = find_method(method);
  if (tokens != 0) config.numbers["num_speculative_tokens"] = tokens;
  if (longest != 0) config.numbers["prompt_lookup_max"] = longest;
  if (shortest != 0) config.numbers["prompt_lookup_min"] = shortest;
  if (!model.empty()) config.texts["model"] = model;
  return {{config}, Combination::kFirst};
}

void expect_equal(const SpeculativeConfig& a, const SpeculativeConfig& b) {
  EXPECT_EQ(a.combination, b.combination);
  ASSERT_EQ(a.methods.size(), b.methods.size());
  for (size_t i = 0; i < a.methods.size(); ++i) {
    EXPECT_EQ(a.methods[i].method, b.methods[i].method);
    EXPECT_EQ(a.methods[i].numbers, b.methods[i].numbers);
    EXPECT_EQ(a.methods[i].texts, b.methods[i].texts);
  }
}

const std::string& model_of(const SpeculativeConfig& config) {
  return config.methods.at(0).text("model");
}

TEST(SpeculativeJson, Ngram) {
  const auto config =
      json(R"({"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4,)"
           R"( "prompt_lookup_min": 2})");
  expect_equal(config, made("ngram", 5, 4, 2, ""));
  EXPECT_EQ(config.tokens(), 5);
}

TEST(SpeculativeJson, DraftModel) {
  const auto config =
      json(R"({"method": "draft_model", "model": "draft.gguf", "num_speculative_tokens": 7})");
  expect_equal(config, made("draft_model", 7, 0, 0, "draft.gguf"));
}

TEST(SpeculativeJson, DefaultsStayUnset) {
  const auto ngram = json(R"({"method": "ngram"})");
  expect_equal(ngram, made("ngram", 0, 0, 0, ""));
  EXPECT_EQ(ngram.tokens(), 10);
  EXPECT_EQ(json(R"({"method": "draft_model", "model": "m"})").tokens(), 5);
  EXPECT_EQ(json(R"({"method": "none"})").tokens(), 0);
}

TEST(SpeculativeJson, ModelAloneNamesTheMethod) {
  expect_equal(json(R"({"model": "draft.gguf"})"), made("draft_model", 0, 0, 0, "draft.gguf"));
  expect_equal(json(R"({"model": "[ngram]", "prompt_lookup_max": 2})"), made("ngram", 0, 2, 0, ""));
  expect_equal(json(R"({"method": "ngram", "model": "[ngram]"})"), made("ngram", 0, 0, 0, ""));
}

TEST(SpeculativeJson, OrderAndSpaceDoNotMatter) {
  expect_equal(json("\n{ \"prompt_lookup_min\" :64 ,\"prompt_lookup_max\":64, \"method\":"
                    "\"ngram\"}\t"),
               made("ngram", 0, 64, 64, ""));
}

TEST(SpeculativeJson, NotAnObject) {
  for (const char* text :
       {"", " ", "{", "{\"method\"}", "{\"method\":\"ngram\",}", "nul", "{\"method\":\"ngram\"} x",
        "{'method':'ngram'}", "\xff", "{\"method\":\"\xff\"}"}) {
    bad_json(text, {"not valid JSON at byte"});
  }
  bad_json("\"ngram\"", {"must be an object or a list of objects, not \"ngram\""});
  bad_json("null", {"must be an object or a list of objects, not null"});
  bad_json("3", {"must be an object or a list of objects, not 3"});
  bad_json(std::string(100000, '['), {"not valid JSON"});
}

TEST(SpeculativeJson, MissingMethod) {
  bad_json("{}", {"no method", "(none, auto, ngram, ", "'model'"});
  bad_json(R"({"num_speculative_tokens": 3})", {"no method"});
}

TEST(SpeculativeJson, WrongMethod) {
  bad_json(R"({"method": "eagle9"})", {"unknown method 'eagle9'", "it is none, auto, ngram, "});
  bad_json(R"({"method": ""})", {"unknown method ''"});
  bad_json(R"({"method": "NGRAM"})", {"unknown method 'NGRAM'"});
  bad_json(R"({"method": 3})", {"'method' must be a string, not 3"});
  bad_json(R"({"method": null})", {"'method' must be a string, not null"});
}

TEST(SpeculativeJson, UnknownKeyListsTheAllowedOnes) {
  bad_json(R"({"method": "ngram", "ngram_size": 3})",
           {"unknown key 'ngram_size'",
            "method ngram takes prompt_lookup_max, prompt_lookup_min, num_matches, "
            "num_speculative_tokens"});
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
  expect_equal(spec("ngram"), made("ngram", 0, 0, 0, ""));
  expect_equal(spec("ngram:prompt_lookup_max=4,num_speculative_tokens=8"),
               made("ngram", 8, 4, 0, ""));
  expect_equal(spec("draft_model:model=draft.gguf,num_speculative_tokens=5"),
               made("draft_model", 5, 0, 0, "draft.gguf"));
}

TEST(SpeculativeSpec, ModelPathsMayHoldAnything) {
  EXPECT_EQ(model_of(spec("draft_model:model=/a:b/c=d.gguf")), "/a:b/c=d.gguf");
  EXPECT_EQ(model_of(spec("draft_model:num_speculative_tokens=2,model=C:=")), "C:=");
  EXPECT_EQ(model_of(spec("draft_model:model= x ")), " x ");
  EXPECT_EQ(model_of(spec("draft_model:model=5")), "5");
  EXPECT_EQ(model_of(spec(R"(draft_model:model=a\,b\\c\d.gguf)")), R"(a,b\c\d.gguf)");
}

TEST(SpeculativeSpec, WrongMethod) {
  for (const char* text : {"", "ngrams", " ngram", "Ngram", "draft.gguf", ":", "[ngram]"}) {
    bad_spec(text, {"unknown method", "it is none, auto, ngram, "});
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

TEST(SpeculativeSpec, Fractions) {
  const SpeculativeConfig config = spec("suffix:suffix_decoding_max_spec_factor=1.5");
  EXPECT_EQ(config.methods[0].number("suffix_decoding_max_spec_factor"), 1.5);
  EXPECT_EQ(config.methods[0].number("suffix_decoding_min_token_prob"), 0.1);
  EXPECT_EQ(to_string(config), "suffix:suffix_decoding_max_spec_factor=1.5");
  expect_equal(json(R"({"method": "suffix", "suffix_decoding_max_spec_factor": 1.5})"), config);
  for (const char* value : {"x", "1.5x", "0x1", "+1"}) {
    bad_spec(std::string("suffix:suffix_decoding_min_token_prob=") + value, {"must be a number"});
  }
  for (const char* value : {"nan", "inf", "-1", "1.001", "1e300", "0"}) {
    bad_spec(std::string("suffix:suffix_decoding_min_token_prob=") + value,
             {"must be 0.001 to 1, not"});
  }
}

TEST(SpeculativeSpec, ToStringIsTheShortForm) {
  EXPECT_EQ(to_string({}), "none");
  EXPECT_EQ(to_string(made("ngram", 0, 0, 0, "")), "ngram");
  EXPECT_EQ(to_string(made("ngram", 8, 4, 0, "")),
            "ngram:prompt_lookup_max=4,num_speculative_tokens=8");
  EXPECT_EQ(to_string(made("draft_model", 5, 0, 0, "draft.gguf")),
            "draft_model:model=draft.gguf,num_speculative_tokens=5");
}

TEST(SpeculativeSpec, ToStringParsesBack) {
  std::mt19937 random(1);
  const std::string letters = "ab,\\=:/. \"{}\n";
  for (int repeat = 0; repeat < 2000; ++repeat) {
    const auto number = [&] { return random() % 3 == 0 ? 0 : 1 + static_cast<int>(random() % 64); };
    const auto one = [&] {
      if (random() % 2 == 0) {
        const int longest = number();
        const auto most = longest == 0 ? 3u : unsigned(longest);
        return made("ngram", number(), longest, static_cast<int>(random() % (most + 1)), "");
      }
      std::string model;
      const size_t length = 1 + random() % 12;
      while (model.size() < length) model += letters[random() % letters.size()];
      return made("draft_model", number(), 0, 0, model);
    };
    SpeculativeConfig config = one();
    while (random() % 2 == 0 && config.methods.size() < 8) {
      config.methods.push_back(one().methods.front());
    }
    if (random() % 2 == 0) config.combination = Combination::kMerge;
    SCOPED_TRACE(to_string(config));
    expect_equal(spec(to_string(config)), config);
  }
}

TEST(SpeculativeSpec, MethodsAreGatedUnlessOneSaysNo) {
  EXPECT_TRUE(spec("ngram").gated());
  EXPECT_TRUE(spec("ngram:gate=1,suffix").gated());
  EXPECT_TRUE(json(R"({"method": "ngram", "gate": true})").gated());
  EXPECT_FALSE(spec("ngram:gate=0,suffix").gated());
  EXPECT_FALSE(json(R"({"method": "ngram", "gate": 0})").gated());
  EXPECT_FALSE(spec("merge,ngram,suffix:gate=0").gated());
  EXPECT_FALSE(spec("none").gated());
  EXPECT_FALSE(spec("auto,suffix").gated());
  EXPECT_EQ(to_string(spec("ngram:gate=0,num_speculative_tokens=3")),
            "ngram:num_speculative_tokens=3,gate=0");
  bad_spec("auto,ngram:gate=0", {"'gate' does not go with auto"});
  bad_spec("ngram:gate=2", {"'gate' must be true or false"});

  SpeculativeConfig config = spec("ngram,suffix");
  config.open_gate();
  EXPECT_EQ(to_string(config), "ngram:gate=0,suffix:gate=0");
  EXPECT_EQ(to_string(config.with_default_gate()), "ngram,suffix");
  config = spec("ngram:gate=1");
  config.open_gate();
  EXPECT_TRUE(config.gated());
  config = spec("auto");
  config.open_gate();
  EXPECT_EQ(to_string(config), "auto");
}

TEST(SpeculativeJson, SeveralMethods) {
  SpeculativeConfig both = made("ngram", 8, 0, 0, "");
  both.methods.push_back(made("draft_model", 0, 0, 0, "draft.gguf").methods.front());
  const std::string list =
      R"([{"method": "ngram", "num_speculative_tokens": 8}, {"model": "draft.gguf"}])";
  expect_equal(json(list), both);
  expect_equal(json(R"({"methods": )" + list + "}"), both);
  expect_equal(json(R"({"combine": "first", "methods": )" + list + "}"), both);
  EXPECT_EQ(both.tokens(), 8);
  both.combination = Combination::kMerge;
  expect_equal(json(R"({"combine": "merge", "methods": )" + list + "}"), both);
  EXPECT_EQ(both.tokens(), 13);

  bad_json("[]", {"the list of methods is empty"});
  bad_json("[3]", {"a method must be an object, not 3"});
  bad_json("[[]]", {"a method must be an object, not a list"});
  bad_json(R"([{"method": "none"}])", {"'none' is plain decoding"});
  bad_json(R"({"methods": 3})", {"'methods' must be a list, not 3"});
  bad_json(R"({"methods": [], "model": "x"})", {"unknown key 'model' beside 'methods'"});
  bad_json(R"({"methods": [{}], "combine": "best"})", {"'combine' must be", "not \"best\""});
  bad_json(R"([{"method": "ngram", "method": "ngram"}])", {"'method' is given twice"});
  std::string many = "[";
  for (int i = 0; i < 9; ++i) many += R"({"method": "ngram"},)";
  many.back() = ']';
  bad_json(many, {"more than 8 methods"});
}

TEST(SpeculativeSpec, SeveralMethods) {
  SpeculativeConfig both = made("ngram", 8, 0, 0, "");
  both.methods.push_back(made("draft_model", 3, 0, 0, "a,b").methods.front());
  expect_equal(spec(R"(ngram:num_speculative_tokens=8,draft_model:model=a\,b,)"
                    "num_speculative_tokens=3"),
               both);
  both.combination = Combination::kMerge;
  expect_equal(spec(R"(merge,ngram:num_speculative_tokens=8,draft_model:model=a\,b,)"
                    "num_speculative_tokens=3"),
               both);
  SpeculativeConfig same = made("ngram", 0, 0, 0, "");
  same.methods.push_back(same.methods.front());
  expect_equal(spec("ngram,ngram"), same);
  bad_spec("ngram,none", {"'none' is plain decoding"});
  bad_spec("none,ngram", {"'none' is plain decoding"});
  bad_spec("merge", {"'merge' is followed by"});
  bad_spec("merge,none", {"'none' is plain decoding"});
  bad_spec("ngram,eagle9:model=x", {"unknown method 'eagle9'"});
  bad_spec("ngram,prompt_lookup_max=4", {"unknown method 'prompt_lookup_max=4'"});
  bad_spec("ngram,", {"unknown method ''"});
}

// "auto" has every method that needs no more than the target; methods after it are added, or take
// the place of its own.
TEST(SpeculativeSpec, Auto) {
  const SpeculativeConfig bare = auto_speculation();
  EXPECT_EQ(bare.combination, Combination::kAuto);
  EXPECT_TRUE(bare.enabled());
  EXPECT_EQ(to_string(bare), "auto");
  for (const MethodConfig& method : bare.methods) {
    for (const MethodKey& key : method.method->keys) EXPECT_FALSE(key.required) << key.name;
  }
  expect_equal(spec("auto"), bare);
  expect_equal(json(R"({"method": "auto"})"), bare);

  const SpeculativeConfig more = spec("auto,draft_model:model=a.gguf");
  EXPECT_EQ(more.methods.size(), bare.methods.size() + 1);
  EXPECT_EQ(more.methods.back(), made("draft_model", 0, 0, 0, "a.gguf").methods.front());
  EXPECT_EQ(to_string(more), "auto,draft_model:model=a.gguf");
  expect_equal(json(R"({"combine": "auto", "methods": [{"model": "a.gguf"}]})"), more);

  const SpeculativeConfig other = spec("auto,ngram:num_speculative_tokens=3");
  EXPECT_EQ(other.methods.size(), bare.methods.size());
  EXPECT_EQ(other.methods.back(), made("ngram", 3, 0, 0, "").methods.front());
  EXPECT_EQ(to_string(other), "auto,ngram:num_speculative_tokens=3");
  expect_equal(spec(to_string(other)), other);

  bad_spec("auto,none", {"'none' is plain decoding"});
  bad_spec("auto,auto", {"'auto' takes no settings of its own and comes first"});
  bad_spec("auto:margin=3", {"'auto' takes no settings of its own and comes first"});
  bad_json(R"({"method": "auto", "model": "x"})", {"'auto' takes no settings of its own"});
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

TEST(SpeculativeSpec, TreesOfDraftModels) {
  const SpeculativeConfig own =
      spec("draft_model:model=m,num_steps=5,topk=4,num_speculative_tokens=7");
  // SGLang's names; its number of draft tokens counts the root.
  const SpeculativeConfig other = spec(
      "draft_model:model=m,speculative_num_steps=5,speculative_eagle_topk=4,"
      "speculative_num_draft_tokens=8");
  EXPECT_EQ(to_string(own), to_string(other));
  EXPECT_EQ(other.tokens(), 7);
  EXPECT_EQ(spec("draft_model:model=m,tree=eagle").tokens(), 25);
  EXPECT_EQ(spec("draft_model:model=m,tree=medusa").tokens(), 63);
  EXPECT_EQ(spec("draft_model:model=m,tree=medusa,num_speculative_tokens=9").tokens(), 9);
  bad_spec("draft_model:model=m,tree=beech", {"tree", "eagle or medusa", "beech"});
  bad_spec("draft_model:model=m,vocabulary=some", {"vocabulary", "intersection", "some"});
  bad_spec("draft_model:model=m,num_draft_tokens=1", {"num_draft_tokens", "2 to 65"});
  bad_spec("draft_model:model=m,topk=2,speculative_eagle_topk=2",
           {"'speculative_eagle_topk' says again what 'topk' says"});
  bad_spec("ngram:speculative_eagle_topk=2", {"does not go with method ngram"});
}

}  // namespace aerie::speculative_config_test
