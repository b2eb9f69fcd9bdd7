#include "measure/passes/verify_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "tests/measure/models.h"

namespace aerie::measure::verify_test {

using nlohmann::json;
using testing::HasSubstr;

VerifyOptions small(const std::string& model) {
  VerifyOptions options;
  options.engine.model = model;
  options.rows = {4, 2, 4};
  options.contexts = {100, 30};
  options.engine.threads = 1;
  options.repeats = 2;
  options.memory_mib = 8;
  return options;
}

TEST(VerifyBench, MeasuresEveryContextAndNumberOfRows) {
  const MadeModel model("tiny", DType::kQ4_0);
  const auto report = bench_verify(small(model.path()));
  ASSERT_TRUE(report.ok()) << report.status().message();
  std::vector<std::pair<int, int>> order;
  for (const VerifyPoint& p : report->points) {
    order.emplace_back(p.context, p.rows);
    EXPECT_GT(p.median_ms, 0.0);
    EXPECT_GT(p.floor_ms, 0.0);
    EXPECT_GT(p.bandwidth_share, 0.0);
    EXPECT_LE(p.spread_ms.lowest, p.median_ms);
    EXPECT_GE(p.spread_ms.highest, p.median_ms);
    if (p.rows == 1) {
      EXPECT_EQ(p.ratio, 1.0);
    }
  }
  EXPECT_THAT(order, testing::ElementsAre(std::pair(30, 1), std::pair(30, 2), std::pair(30, 4),
                                          std::pair(100, 1), std::pair(100, 2), std::pair(100, 4)));
  EXPECT_GT(report->limits.bandwidth, 0.0);
  EXPECT_GT(report->limits.dot(kernels::Dot::kFloat), 0.0);
}

TEST(VerifyBench, ReadsPromptsOfAModelWithoutAFile) {
  VerifyOptions options = small("tiny, made");
  MakeModelOptions made;
  made.shape = "tiny";
  options.engine.make_file = [made](ThreadPool& pool) { return random_model(made, pool); };
  options.prompts = {600, 20};  // more than a pass has rows
  const auto report = bench_verify(options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->model, "tiny, made");
  EXPECT_EQ(report->points.size(), 6u);
  ASSERT_EQ(report->prompts.size(), 2u);
  const PromptPoint& p = report->prompts[0];
  EXPECT_EQ(p.tokens, 600);
  EXPECT_NEAR(p.tokens_per_second * p.median_ms, 600e3, 1.0);
  EXPECT_GT(p.operations, 0.0);
  EXPECT_LE(p.spread_ms.lowest, p.median_ms);
  EXPECT_THAT(to_text(*report), HasSubstr("TFLOP/s\n     600"));
  const json out = json::parse(to_json(*report))["prompts"];
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[1]["tokens"], 20);
  EXPECT_EQ(out[1]["tokens_per_second"], report->prompts[1].tokens_per_second);
}

TEST(VerifyBench, HoldsADeviceToItsOwnMemory) {
  VerifyOptions options = small("tiny, emulated");
  MakeModelOptions made;
  made.shape = "tiny";
  made.layers = 1;
  options.engine.make_file = [made](ThreadPool& pool) { return random_model(made, pool); };
  options.engine.device = "emulated";
  options.rows = {2};
  options.contexts = {5};
  options.repeats = 1;
  const auto report = bench_verify(options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_THAT(report->limits.device, HasSubstr("emulated"));
  EXPECT_GT(report->limits.bandwidth, 0.0);
  EXPECT_EQ(report->limits.dot(kernels::Dot::kFloat), 0.0);
  EXPECT_GT(report->points[1].floor_ms, 0.0);
  EXPECT_THAT(to_text(*report),
              testing::AllOf(HasSubstr("; computed by emulated"), HasSubstr("\ncopied ")));
  const json out = json::parse(to_json(*report));
  EXPECT_EQ(out["device"], report->limits.device);
  EXPECT_EQ(out["peak"].size(), 0u);
}

TEST(VerifyBench, CountsExperts) {
  const MadeModel model("tiny-experts", DType::kQ4_0);
  const auto report = bench_verify(small(model.path()));
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->experts, 8);
  for (const VerifyPoint& p : report->points) {
    EXPECT_GE(p.experts, 2.0);
    EXPECT_LE(p.experts, std::min(8.0, 2.0 * p.rows));
    if (p.rows == 1) {
      EXPECT_EQ(p.experts, 2.0);
    }
  }
  EXPECT_THAT(to_text(*report), HasSubstr("of 8 experts"));
  EXPECT_EQ(json::parse(to_json(*report))["points"][0]["experts"], 2.0);
}

TEST(VerifyBench, WritesWhatIsPromised) {
  const MadeModel model("tiny", DType::kF16);
  const auto report = bench_verify(small(model.path()));
  ASSERT_TRUE(report.ok()) << report.status().message();
  const json out = json::parse(to_json(*report), nullptr, false);
  ASSERT_TRUE(out.is_object());
  EXPECT_EQ(out["model"], model.path());
  EXPECT_EQ(out["threads"], 1);
  EXPECT_EQ(out["isa"], kernels::isa_name(kernels::best_isa()));
  EXPECT_FALSE(out["processor"].get<std::string>().empty());
  EXPECT_THAT(out["date"].get<std::string>(), testing::MatchesRegex("20..-..-..T..:..:..Z"));
  EXPECT_GT(out["bandwidth"], 0.0);
  EXPECT_GT(out["peak"]["f32"], 0.0);
  EXPECT_TRUE(out["round_trip"].is_null() || out["round_trip"] > 0.0);
  ASSERT_EQ(out["points"].size(), 6u);
  const std::set<std::string> expected = {"rows",     "context",   "median_ms",
                                          "floor_ms", "spread",    "ratio",
                                          "to_floor", "bandwidth", "bandwidth_share"};
  for (const json& point : out["points"]) {
    std::set<std::string> keys;
    for (const auto& [key, value] : point.items()) keys.insert(key);
    EXPECT_EQ(keys, expected);
    EXPECT_LE(point["spread"]["lowest"], point["spread"]["highest"]);
  }
  const std::string text = to_text(*report);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4 + 6);
}

TEST(VerifyBench, RefusesWhatCannotBe) {
  const MadeModel model("tiny", DType::kQ4_0);
  const auto refusal = [](const VerifyOptions& options) {
    const auto report = bench_verify(options);
    EXPECT_FALSE(report.ok());
    EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument);
    return report.status().message();
  };
  VerifyOptions options = small(model.path());
  options.rows = {0};
  EXPECT_THAT(refusal(options), HasSubstr("--rows 0: give 1 to"));
  options = small(model.path());
  options.contexts = {-1};
  EXPECT_THAT(refusal(options), HasSubstr("--context -1: give 1 to"));
  options = small(model.path());
  options.prompts = {0};
  EXPECT_THAT(refusal(options), HasSubstr("--prompt 0: give 1 to"));
  options = small(model.path());
  options.repeats = 0;
  EXPECT_THAT(refusal(options), HasSubstr("--repeat 0: give 1 to"));
  options = small(model.path());
  options.memory_mib = -1;
  EXPECT_THAT(refusal(options), HasSubstr("--memory -1: give 1 to"));
  options = small(model.path());
  options.contexts = {1021};
  EXPECT_THAT(refusal(options), HasSubstr("1025 positions"));
}

}  // namespace aerie::measure::verify_test
