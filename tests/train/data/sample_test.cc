#include "engine/samples/sample.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace aerie::train::sample_test {

using testing::HasSubstr;

Sample make() {
  Sample sample;
  sample.id = "12-3";
  sample.prompt = 12;
  sample.index = 3;
  sample.source = "a \"file\".jsonl:7 (é)";
  sample.temperature = 0.7;
  sample.seed = std::numeric_limits<uint64_t>::max();
  sample.finish = FinishReason::kStop;
  sample.tokens = {5, 0, 99, 1, 1, 2, 3};
  sample.mask = {0, 0, 1, 1, 0, 0, 1};
  return sample;
}

TEST(Sample, ThereAndBack) {
  const Sample sample = make();
  const std::string line = to_line(sample);
  EXPECT_THAT(line, HasSubstr("\"replies\":[[2,4],[6,7]]"));
  const auto back = parse_sample(line, "x", 100);
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(back->id, sample.id);
  EXPECT_EQ(back->prompt, 12);
  EXPECT_EQ(back->index, 3);
  EXPECT_EQ(back->source, sample.source);
  EXPECT_EQ(back->temperature, 0.7);
  EXPECT_EQ(back->seed, sample.seed);
  EXPECT_EQ(back->finish, FinishReason::kStop);
  EXPECT_EQ(back->tokens, sample.tokens);
  EXPECT_EQ(back->mask, sample.mask);
  EXPECT_EQ(generated_tokens(*back), 3);
  EXPECT_EQ(to_line(*back), line);
}

TEST(Sample, RefusesBrokenLines) {
  const std::string line = to_line(make());
  const auto refusal = [&](const std::string& from, const std::string& to, int vocab = 100) {
    std::string broken = line;
    const size_t at = broken.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    broken.replace(at, from.size(), to);
    const auto sample = parse_sample(broken, "f:9", vocab);
    EXPECT_FALSE(sample.ok()) << broken;
    EXPECT_EQ(sample.ok() ? StatusCode::kOk : sample.status().code(), StatusCode::kInvalidData);
    return sample.status().message();
  };
  EXPECT_THAT(refusal("{\"id\"", "\"id\""), HasSubstr("f:9"));
  EXPECT_THAT(refusal("12-3", "12-4"), HasSubstr("'id'"));
  EXPECT_THAT(refusal("\"prompt\":12", "\"prompt\":-12"), HasSubstr("'prompt'"));
  EXPECT_THAT(refusal("\"index\":3", "\"index\":3000000000"), HasSubstr("'index'"));
  EXPECT_THAT(refusal("\"seed\":", "\"seed\":-"), HasSubstr("seed"));
  EXPECT_THAT(refusal("0.7", "\"0.7\""), HasSubstr("'temperature'"));
  EXPECT_THAT(refusal("stop", "none"), HasSubstr("'finish'"));
  EXPECT_THAT(refusal("99", "100"), HasSubstr("outside the vocabulary of 100"));
  EXPECT_THAT(refusal("99", "-1"), HasSubstr("has -1"));
  EXPECT_THAT(refusal("99", "99", 99), HasSubstr("has 99"));
  for (const char* replies : {"[[2,4],[6,8]]", "[[0,4]]", "[[4,4]]", "[[4,3]]", "[[2,4],[3,5]]",
                              "[[2,4,5]]", "[[-2,4]]", "[2,4]", "[]", "7"}) {
    EXPECT_THAT(refusal("[[2,4],[6,7]]", replies), HasSubstr("'replies'")) << replies;
  }
  for (const char* key :
       {"id", "prompt", "index", "source", "temperature", "seed", "finish", "replies", "tokens"}) {
    EXPECT_THAT(refusal(fmt::format("\"{}\":", key), "\"other\":"), HasSubstr(key));
  }
}

}  // namespace aerie::train::sample_test
