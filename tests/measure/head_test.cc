#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/engine.h"
#include "measure/models/make_head.h"
#include "measure/passes/head_bench.h"
#include "model/import/hugging_face_file.h"
#include "tests/measure/models.h"

namespace aerie::measure::head_test {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

// A folder that goes when the test ends.
struct TemporaryFolder {
  std::string path = testing::TempDir() + "bench_head";
  ~TemporaryFolder() { fs::remove_all(path); }
};

ModelConfig config_of(const std::string& model) {
  const auto file = open_model_file(model);
  return read_model_config(**file).value();
}

// What the engine says with a head of each kind is what it says without.
TEST(MakeHead, EveryKindDraftsInTheEngine) {
  const MadeModel model("tiny", DType::kQ8_0);
  EngineOptions options;
  options.model = model.path();
  options.threads = 2;
  Request request;
  request.prompt = {1, 2, 3, 4, 5};
  request.max_tokens = 24;
  request.ignore_eos = true;
  const auto plain = Engine::open(options).value()->generate(request, nullptr).value();
  for (const std::string_view kind : head_kinds()) {
    SCOPED_TRACE(kind);
    const TemporaryFolder folder;
    MakeHeadOptions make;
    make.kind = kind;
    make.output = folder.path;
    make.draft_vocab = 100;
    ASSERT_TRUE(make_head(make, config_of(model.path())).ok());
    const std::string method(method_of_kind(kind));
    options.speculation = parse_speculative_spec(method + ":gate=0,model=" + folder.path).value();
    auto engine = Engine::open(options);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    const Generation fast = (*engine)->generate(request, nullptr).value();
    EXPECT_EQ(fast.tokens, plain.tokens);
    EXPECT_GT(fast.stats.drafted, 0);
  }
}

TEST(MakeHead, UnknownKindsAreNamed) {
  MakeHeadOptions make;
  make.kind = "eagle9";
  const Status status = make_head(make, {}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), testing::AllOf(HasSubstr("eagle9"), HasSubstr("mlp_speculator")));
}

TEST(HeadBench, MeasuresPassesAndTreesOfEveryKind) {
  const MadeModel model("tiny", DType::kQ8_0);
  HeadBenchOptions options;
  options.model = model.path();
  options.context = 40;
  options.draft_vocab = 200;
  options.threads = 1;
  options.repeats = 2;
  options.memory_mib = -1;
  EXPECT_EQ(bench_heads(options).status().code(), StatusCode::kInvalidArgument);
  options.memory_mib = 8;
  options.type = "q8_0";
  const auto report = bench_heads(options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  std::set<std::string> kinds;
  for (const HeadPoint& p : report->points) {
    SCOPED_TRACE(p.kind + " " + p.pass);
    kinds.insert(p.kind);
    EXPECT_GT(p.bytes, 0.0);
    EXPECT_GT(p.operations, 0);
    EXPECT_GT(p.microseconds, 0.0);
    EXPECT_GT(p.allowed, 10.0 * p.operations);
    EXPECT_EQ(p.ratio > 0, p.kind == "peagle" && p.pass != "root, 1 depths");
  }
  EXPECT_EQ(kinds, std::set<std::string>(head_kinds().begin(), head_kinds().end()));
  ASSERT_EQ(report->trees.size(), 3u);
  for (const TreePoint& t : report->trees) {
    EXPECT_GT(t.passes_us, 0.0);
    EXPECT_GE(t.total_us, t.passes_us);
  }
  const json out = json::parse(to_json(*report), nullptr, false);
  EXPECT_EQ(out["passes"].size(), report->points.size());
  EXPECT_THAT(to_text(*report), HasSubstr("tree of 60"));
}

}  // namespace aerie::measure::head_test
