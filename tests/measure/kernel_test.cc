#include "measure/passes/kernel_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

namespace aerie::measure::kernel_test {

using nlohmann::json;
using testing::HasSubstr;

KernelOptions small() {
  KernelOptions options;
  options.types = {DType::kQ4_K, DType::kBF16};
  options.rows = {1, 3};
  options.threads = 1;
  options.repeats = 1;
  options.memory_mib = 2;
  return options;
}

TEST(KernelBench, MeasuresEveryTypePlaceAndNumberOfRows) {
  const auto report = bench_kernels(small());
  ASSERT_TRUE(report.ok()) << report.status().message();
  ASSERT_EQ(report->points.size(), 2u * 2 * 2);
  EXPECT_GT(report->copy_bandwidth, 0.0);
  for (size_t i = 0; i < report->points.size(); ++i) {
    const KernelPoint& p = report->points[i];
    EXPECT_EQ(p.type, i < 4 ? DType::kQ4_K : DType::kBF16);
    EXPECT_EQ(p.from, i % 4 < 2 ? WeightsFrom::kMemory : WeightsFrom::kCache);
    EXPECT_EQ(p.rows, i % 2 == 0 ? 1 : 3);
    EXPECT_GT(p.gigabytes, 0.0);
    EXPECT_GT(p.bandwidth_share, 0.0);
    EXPECT_GT(p.peak_share, 0.0);
  }
  // Two figures of one measurement: an operation for so many bytes of weights.
  const KernelPoint& floats = report->points[7];
  EXPECT_NEAR(floats.gigaoperations / floats.gigabytes, 2.0 * 3 / 2, 1e-6);
}

TEST(KernelBench, WritesWhatIsPromised) {
  KernelOptions options = small();
  options.types = {DType::kQ4_0};
  const auto report = bench_kernels(options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  const json out = json::parse(to_json(*report), nullptr, false);
  ASSERT_TRUE(out.is_object());
  EXPECT_FALSE(out.contains("model"));
  EXPECT_EQ(out["threads"], 1);
  EXPECT_GT(out["copy_bandwidth"], 0.0);
  ASSERT_EQ(out["points"].size(), 4u);
  EXPECT_EQ(out["points"][0]["type"], "q4_0");
  EXPECT_EQ(out["points"][0]["from"], "memory");
  EXPECT_EQ(out["points"][3]["from"], "cache");
  EXPECT_EQ(out["points"][3]["rows"], 3);
  for (const char* key : {"gb_per_s", "gop_per_s", "bandwidth_share", "peak_share"}) {
    EXPECT_GT(out["points"][2][key], 0.0) << key;
  }
}

TEST(KernelBench, RefusesWhatCannotBe) {
  const auto refusal = [](const KernelOptions& options) {
    const auto report = bench_kernels(options);
    EXPECT_FALSE(report.ok());
    EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument);
    return report.status().message();
  };
  KernelOptions options = small();
  options.rows = {1, -2};
  EXPECT_THAT(refusal(options), HasSubstr("--rows -2: give 1 to"));
  options = small();
  options.repeats = 0;
  EXPECT_THAT(refusal(options), HasSubstr("--repeat 0: give 1 to"));
  options = small();
  options.memory_mib = int64_t{1} << 40;
  EXPECT_THAT(refusal(options), HasSubstr("--memory"));
}

}  // namespace aerie::measure::kernel_test
