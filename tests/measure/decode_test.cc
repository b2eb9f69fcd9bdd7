#include "measure/passes/decode_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/measure/models.h"

namespace aerie::measure::decode_test {

using nlohmann::json;
using testing::HasSubstr;

DecodeOptions small(const std::string& model) {
  DecodeOptions options;
  options.engine.model = model;
  options.engine.threads = 1;
  options.contexts = {40, 20};
  options.tokens = 8;
  options.repeats = 2;
  options.memory_mib = 8;
  return options;
}

TEST(DecodeBench, MeasuresPromptsAndPlainDecoding) {
  const MadeModel model("tiny", DType::kQ8_0);
  const auto report = bench_decode(small(model.path()));
  ASSERT_TRUE(report.ok()) << report.status().message();
  const json out = json::parse(to_json(*report), nullptr, false);
  ASSERT_TRUE(out.is_object());
  EXPECT_EQ(out["model"], model.path());
  EXPECT_EQ(out["speculate"], "none");
  EXPECT_EQ(out["tokens"], 8);
  ASSERT_EQ(out["points"].size(), 2u);
  EXPECT_EQ(out["points"][0]["context"], 40);
  EXPECT_EQ(out["points"][1]["context"], 20);
  for (const json& point : out["points"]) {
    EXPECT_FALSE(point.contains("speculative"));
    for (const char* what : {"prompt", "plain"}) {
      const json& speed = point[what];
      EXPECT_GT(speed["spread"]["lowest"], 0.0);
      EXPECT_LE(speed["spread"]["lowest"], speed["tokens_per_second"]);
      EXPECT_GE(speed["spread"]["highest"], speed["tokens_per_second"]);
    }
  }
}

TEST(DecodeBench, MeasuresADrafterBesidePlainDecoding) {
  const MadeModel model("tiny", DType::kQ8_0);
  DecodeOptions options = small(model.path());
  // Drafts exactly what the target says.
  options.engine.speculation =
      parse_speculative_spec("draft_model:num_speculative_tokens=3,model=" + model.path()).value();
  const auto report = bench_decode(options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  for (const DecodePoint& point : report->points) {
    EXPECT_GT(point.speculative.median, 0.0);
    EXPECT_GT(point.speedup, 0.0);
    EXPECT_GT(point.accepted_length, 2.0);
  }
  EXPECT_THAT(to_text(*report), HasSubstr("draft_model"));
  EXPECT_TRUE(json::parse(to_json(*report), nullptr, false)["points"][0].contains("speculative"));
}

// On a device it is said, too, where a pass's time goes.
TEST(DecodeBench, TakesADevicesRoundsApart) {
  const MadeModel model("tiny", DType::kQ8_0);
  DecodeOptions options = small(model.path());
  options.engine.device = "emulated";
  options.contexts = {20};
  options.tokens = 4;
  options.engine.speculation =
      parse_speculative_spec("draft_model:num_speculative_tokens=2,model=" + model.path()).value();
  const auto report = bench_decode(options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  const DecodePoint& point = report->points.at(0);
  for (const RoundTimes& times : {point.plain_round, point.round}) {
    EXPECT_GT(times.verify, 0.0);
    EXPECT_GT(times.device, 0.0);
    EXPECT_NEAR(times.draft + times.verify + times.rest, times.all, 1e-6 * times.all);
  }
  EXPECT_GT(point.round.draft, point.plain_round.draft);
  EXPECT_THAT(to_text(*report), HasSubstr("the device itself"));
  EXPECT_TRUE(json::parse(to_json(*report), nullptr, false)["points"][0].contains("round_us"));
}

TEST(DecodeBench, RefusesWhatCannotBe) {
  const MadeModel model("tiny", DType::kQ8_0);
  const auto refusal = [](const DecodeOptions& options) {
    const auto report = bench_decode(options);
    EXPECT_FALSE(report.ok());
    return report.status().message();
  };
  DecodeOptions options = small(model.path());
  options.contexts = {0};
  EXPECT_THAT(refusal(options), HasSubstr("--context 0: give 1 to"));
  options = small(model.path());
  options.tokens = 1;
  EXPECT_THAT(refusal(options), HasSubstr("--tokens 1: give 2 to"));
  options = small(model.path());
  options.contexts = {1020};
  EXPECT_THAT(refusal(options), HasSubstr("a context of 1028"));
  options = small(model.path());
  options.memory_mib = 65537;
  EXPECT_THAT(refusal(options), HasSubstr("--memory 65537: give 1 to 65536"));
  options = small(model.path());
  options.text_file = "/nowhere/text";
  EXPECT_THAT(refusal(options), HasSubstr("--text /nowhere/text"));
  options.text_file = testing::TempDir();
  EXPECT_THAT(refusal(options), HasSubstr("cannot be read"));
  options.text_file = "/dev/null";
  EXPECT_FALSE(bench_decode(options).ok());
}

}  // namespace aerie::measure::decode_test
