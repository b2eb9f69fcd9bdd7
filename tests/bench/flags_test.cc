// The command line of `aerie bench`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/bench/models.h"
#include "tools/bench.h"

namespace aerie {
namespace {

using testing::HasSubstr;

Status run(std::vector<std::string> words) {
  CLI::App app;
  const auto bench = add_bench_flags(app);
  std::reverse(words.begin(), words.end());  // as CLI11 wants them
  try {
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    return {StatusCode::kInvalidArgument, error.what()};
  }
  return bench();
}

std::string refusal(const std::vector<std::string>& words) {
  const Status status = run(words);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.message();
  return status.message();
}

TEST(BenchFlags, MakesAndVerifiesAModel) {
  const std::string model = testing::TempDir() + "bench_flags.gguf";
  const std::string figures = testing::TempDir() + "bench_flags.json";
  const Status made = run({"make-model", "--shape", "tiny", "--type", "Q5_1", model});
  ASSERT_TRUE(made.ok()) << made.message();
  const Status verified =
      run({"verify", "-m", model, "--rows", "1,2", "--context", "64,16", "--threads", "1",
           "--repeat", "1", "--cache-type", "q8", "--json", figures});
  EXPECT_TRUE(verified.ok()) << verified.message();
  std::ifstream file(figures);
  const auto json = nlohmann::json::parse(file, nullptr, false);
  EXPECT_EQ(json["points"].size(), 4u);
  EXPECT_EQ(json["cache_type"], "q8");
  std::remove(model.c_str());
  std::remove(figures.c_str());
}

TEST(BenchFlags, RefusesClearly) {
  EXPECT_THAT(refusal({}), HasSubstr("subcommand"));
  EXPECT_THAT(refusal({"make-model", "--shape", "huge", "x.gguf"}),
              HasSubstr("give one of smollm"));
  EXPECT_THAT(refusal({"make-model", "--shape", "tiny", "--type", "q9", "x.gguf"}),
              HasSubstr("no type 'q9': give one of f32"));
  EXPECT_THAT(refusal({"make-model", "x.gguf"}), HasSubstr("--shape"));
  EXPECT_THAT(refusal({"verify"}), HasSubstr("--model"));
  EXPECT_THAT(refusal({"verify", "-m", "x", "--rows", "1,two"}), HasSubstr("--rows"));
  EXPECT_THAT(refusal({"verify", "-m", "x", "--isa", "mmx"}), HasSubstr("--isa mmx"));
  EXPECT_THAT(refusal({"verify", "-m", "x", "--cache-type", "q4"}),
              HasSubstr("--cache-type q4: give f16 or q8"));
  EXPECT_THAT(refusal({"verify", "-m", "x", "--json", "/nowhere/x"}), HasSubstr("--json"));
  EXPECT_THAT(refusal({"kernels", "--types", "q4_0,q3"}), HasSubstr("no type 'q3'"));
  EXPECT_THAT(refusal({"decode", "-m", "x", "--speculate", "magic"}), HasSubstr("--speculate"));
}

}  // namespace
}  // namespace aerie
