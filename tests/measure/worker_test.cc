#include "measure/worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "tests/measure/models.h"

namespace aerie::measure::worker_test {

using nlohmann::json;
using testing::HasSubstr;

std::vector<json> answers(const std::string& requests) {
  const MadeModel model("tiny", DType::kQ4_0);
  WorkerOptions options;
  options.model = model.path();
  options.rows = 4;
  options.positions = 100;
  options.threads = 1;
  std::istringstream in(requests);
  std::ostringstream out;
  const Status status = run_worker(options, in, out);
  EXPECT_TRUE(status.ok()) << status.message();
  std::vector<json> all;
  std::istringstream lines(out.str());
  for (std::string line; std::getline(lines, line);) {
    all.push_back(json::parse(line, nullptr, false));
    EXPECT_TRUE(all.back().is_object()) << line;
  }
  return all;
}

TEST(BenchWorker, AnswersEveryRequest) {
  const std::vector<json> all = answers(
      "{\"do\": \"fill\", \"context\": 70}\n"
      "{\"do\": \"pass\", \"rows\": 4, \"seconds\": 0.001, \"flash\": 1}\n"
      "{\"do\": \"prompt\", \"tokens\": 99}\n"
      "{\"do\": \"decode\", \"context\": 90, \"tokens\": 9}\n"
      "{\"do\": \"pass\", \"rows\": 1}\n"
      "{\"do\": \"fill\", \"context\": 96}\n"
      "{\"do\": \"limits\"}\n");
  ASSERT_EQ(all.size(), 8u);
  EXPECT_EQ(all[0], json({{"ready", true}}));
  EXPECT_EQ(all[1], json::object());
  for (const size_t i : {2u, 3u, 4u, 5u}) {
    ASSERT_TRUE(all[i].contains("ms")) << all[i];
    EXPECT_GT(all[i]["ms"], 0.0);
  }
  EXPECT_EQ(all[6], json::object());
  EXPECT_GT(all[7]["bandwidth"], 0.0);
  EXPECT_GT(all[7]["f32"], 0.0);
}

TEST(BenchWorker, SaysWhatCannotBeAnsweredAndGoesOn) {
  const std::vector<json> all = answers(
      "not json\n"
      "[]\n"
      "{\"do\": 3}\n"
      "{\"do\": \"dance\"}\n"
      "{\"do\": \"pass\", \"rows\": 1}\n"
      "{\"do\": \"fill\", \"context\": 97}\n"
      "{\"do\": \"fill\", \"context\": 1.5}\n"
      "{\"do\": \"prompt\", \"tokens\": 100}\n"
      "{\"do\": \"decode\", \"context\": 90, \"tokens\": 10}\n"
      "{\"do\": \"decode\", \"context\": 90}\n"
      "{\"do\": \"fill\", \"context\": 3}\n"
      "{\"do\": \"pass\", \"rows\": 5}\n");
  ASSERT_EQ(all.size(), 13u);
  for (size_t i = 1; i < all.size(); ++i) {
    EXPECT_EQ(all[i].contains("error"), i != 11) << i << all[i];
  }
  EXPECT_THAT(all[5]["error"], HasSubstr("'fill' comes first"));
  EXPECT_EQ(all[6]["error"], "'context' must be 1 to 96");
  EXPECT_EQ(all[8]["error"], "'tokens' must be 1 to 99");
  EXPECT_EQ(all[12]["error"], "'rows' must be 1 to 4");
}

TEST(BenchWorker, RefusesOptionsThatCannotBe) {
  WorkerOptions options;
  options.rows = 100;
  options.positions = 100;
  std::istringstream in;
  std::ostringstream out;
  EXPECT_EQ(run_worker(options, in, out).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(out.str(), "");
}

}  // namespace aerie::measure::worker_test
