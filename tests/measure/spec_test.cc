#include "measure/spec/spec_bench.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "measure/spec/spec_report.h"
#include "measure/spec/spec_simulation.h"
#include "measure/spec/sweep_bench.h"
#include "tests/report/markup.h"
#include "tests/testing/tiny_model.h"

namespace aerie::measure::spec_test {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

// A tiny model with a chat template, and prompts; both go when the object does.
class SpecBench : public testing::Test {
 protected:
  SpecBench() {
    test::TinySpec spec;
    spec.tokenizer = true;
    spec.vocab = test::kByteVocab;
    EXPECT_TRUE(test::tiny_gguf(spec).write(model_).ok());
    std::ofstream(prompts_) << "{\"category\": \"writing\", \"turns\": [\"Once\", \"And then\"]}\n"
                               "{\"category\": \"qa\", \"turns\": [\"Who is it?\"]}\n"
                               "{\"task_id\": \"x/0\", \"prompt\": \"def f(a, b):\"}\n"
                               "{\"category\": \"qa\", \"turns\": [\"Where is it?\"]}\n";
  }
  ~SpecBench() override {
    std::remove(model_.c_str());
    std::remove(prompts_.c_str());
  }

  SpecOptions options() const {
    SpecOptions o;
    o.engine.model = model_;
    o.engine.threads = 1;
    o.datasets = {prompts_};
    o.max_tokens = 40;
    o.repeats = 1;
    o.pass_rows = {};
    return o;
  }
  SpeculativeConfig ngram() const { return parse_speculative_spec("ngram").value(); }
  // Drafts what the target says.
  SpeculativeConfig itself() const {
    return parse_speculative_spec("draft_model:num_speculative_tokens=3,model=" + model_).value();
  }
  static SpecReport run(const SpecOptions& options) {
    auto report = bench_spec(options);
    EXPECT_TRUE(report.ok()) << report.status().message();
    return report.ok() ? std::move(*report) : SpecReport();
  }
  static std::string refusal(const SpecOptions& options) {
    const auto report = bench_spec(options);
    EXPECT_FALSE(report.ok());
    EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument) << report.status().message();
    return report.status().message();
  }

  const std::string model_ = fmt::format("{}spec_{}.gguf", testing::TempDir(), getpid());
  const std::string prompts_ = fmt::format("{}spec_{}.jsonl", testing::TempDir(), getpid());
};

TEST_F(SpecBench, RunsEveryMethodAtEveryTemperature) {
  SpecOptions o = options();
  o.methods = {itself(), SpeculativeConfig(), ngram()};
  o.temperatures = {0.0, 0.9};
  o.repeats = 2;
  int calls = 0;
  o.progress = [&](int done, int of) {
    EXPECT_EQ(done, calls++ % 8 + 1);
    EXPECT_EQ(of, 8);
  };
  const SpecReport report = run(o);
  EXPECT_EQ(calls, 16);
  EXPECT_EQ(report.prompts, 4);
  EXPECT_EQ(report.turns_left_out, 0);
  EXPECT_TRUE(report.chat_template);
  EXPECT_FALSE(report.interrupted);
  ASSERT_EQ(report.methods.size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    const MethodFigures& m = report.methods[i];
    EXPECT_EQ(m.temperature, i < 3 ? 0.0 : 0.9);
    EXPECT_EQ(m.all.replies, 5);
    EXPECT_EQ(m.all.tokens, report.methods[i - i % 3].all.tokens);  // the same replies
    EXPECT_GT(m.all.tokens_per_second, 0.0);
    EXPECT_GT(m.all.stages.of(Stage::kVerify), 0.0);
    EXPECT_EQ(m.all.stages.of(Stage::kPrefill), 0.0);
    EXPECT_GT(m.all.ms_per_token_p50, 0.0);
    EXPECT_GE(m.all.ms_per_token_p99, m.all.ms_per_token_p50);
    ASSERT_EQ(m.tasks.size(), 3u);
    EXPECT_EQ(m.tasks[0].task, kMultiTurn);
    EXPECT_EQ(m.tasks[0].figures.replies, 2);
    EXPECT_EQ(m.tasks[1].task, "qa");
    EXPECT_EQ(m.tasks[1].figures.replies, 2);
  }
  const Figures& plain = report.methods[0].all;
  EXPECT_EQ(report.methods[0].method, "none");
  EXPECT_EQ(plain.speedup.value, 1.0);
  EXPECT_EQ(plain.mean_accepted_length, 1.0);
  EXPECT_EQ(plain.drafted, 0);
  for (const size_t i : {size_t{1}, size_t{4}}) {
    const Figures& drafted = report.methods[i].all;
    EXPECT_THAT(report.methods[i].method, HasSubstr("draft_model"));
    EXPECT_GT(drafted.mean_accepted_length, 3.0);
    EXPECT_EQ(drafted.n_alpha, (std::vector<double>{1.0, 1.0, 1.0}));
    EXPECT_GT(drafted.speedup.value, 0.0);
    EXPECT_GT(drafted.stages.of(Stage::kDraft), 0.0);
  }
  EXPECT_EQ(report.methods[2].method, "ngram:gate=0");
  EXPECT_EQ(report.methods[2].to_use, "ngram");
  EXPECT_GT(report.methods[2].all.drafted, 0);
}

// A drafter that remembers replies would otherwise know the very reply that it is measured on.
TEST_F(SpecBench, RepetitionsBeginWithNothingLearned) {
  SpecOptions o = options();
  o.methods = {parse_speculative_spec("suffix:suffix_decoding_spec_offset=8").value()};
  const double once = run(o).methods[1].all.mean_accepted_length;
  o.repeats = 3;
  EXPECT_EQ(run(o).methods[1].all.mean_accepted_length, once);
}

// The first reply stands in the history of the second turn: with it, the context is too short.
TEST_F(SpecBench, RepliesBecomeHistory) {
  SpecOptions o = options();
  o.selection.limit = 1;
  o.max_tokens = 40;
  // "<|im_start|>user\nAnd then<|im_end|>\n" and the like around the turns, a byte a token.
  const int without_reply = 60;
  o.engine.context = 200;
  const int both = run(o).methods[0].all.replies;
  EXPECT_EQ(both, 2);
  o.engine.context = without_reply + o.max_tokens;
  const SpecReport report = run(o);
  EXPECT_EQ(report.methods[0].all.replies, 1);
  EXPECT_EQ(report.turns_left_out, 1);
  EXPECT_THAT(to_text(report), HasSubstr("1 later turns left out"));
}

TEST_F(SpecBench, MeasuresPasses) {
  SpecOptions o = options();
  o.selection.limit = 1;
  o.methods = {itself()};
  o.pass_rows = {1, 2};
  o.pass_repeats = 1;
  o.pass_context = 32;
  const SpecReport report = run(o);
  ASSERT_EQ(report.passes.points.size(), 3u);  // and the rows of the method
  EXPECT_EQ(report.passes.points[2].rows, 4);
  EXPECT_THAT(to_text(report), HasSubstr("behind 32 positions"));
  EXPECT_THAT(to_html(report), HasSubstr("Time of a pass"));
}

TEST_F(SpecBench, WritesWhatIsPromised) {
  SpecOptions o = options();
  o.methods = {ngram()};
  const SpecReport report = run(o);
  const json out = json::parse(to_json(report), nullptr, false);
  ASSERT_TRUE(out.is_object());
  EXPECT_EQ(out["synthetic"], false);
  EXPECT_EQ(out["verify"], "exact");
  EXPECT_EQ(out["seed"], 1);
  ASSERT_EQ(out["methods"].size(), 2u);
  const json& method = out["methods"][1];
  EXPECT_EQ(method["method"], "ngram:gate=0");
  EXPECT_EQ(method["temperature"], 0.0);
  for (const json* figures : {&method, &method["without_looped"], &method["tasks"][0]}) {
    for (const char* key :
         {"replies", "looped", "tokens", "tokens_per_second", "speedup", "speedup_with_prompt",
          "mean_accepted_length", "expected_accepted_length", "acceptance_rate", "alpha",
          "per_position_acceptance", "n_alpha", "drafted_tokens", "accepted_tokens",
          "wasted_tokens", "stage_seconds", "ms_per_token"}) {
      EXPECT_TRUE(figures->contains(key)) << key;
    }
  }
  for (const char* stage : {"draft", "verify", "sample", "commit", "other"}) {
    EXPECT_TRUE(method["stage_seconds"].contains(stage)) << stage;
  }
  EXPECT_LE(method["speedup"]["low_95"], method["speedup"]["high_95"]);
  EXPECT_EQ(method["drafted_tokens"].get<int>(),
            method["accepted_tokens"].get<int>() + method["wasted_tokens"].get<int>());
  // A task of one prompt has no interval.
  EXPECT_TRUE(method["tasks"][0]["speedup"]["low_95"].is_null());
  EXPECT_GE(method["ms_per_token"]["p99"], method["ms_per_token"]["p50"]);
  EXPECT_THAT(to_text(report), HasSubstr("all ids are those of plain decoding"));
}

TEST_F(SpecBench, ThePageHoldsEverythingItself) {
  SpecOptions o = options();
  o.methods = {ngram(), itself()};
  o.temperatures = {0.0, 1.0};
  const std::string page = to_html(run(o));
  expect_balanced(page);
  for (const char* outside : {"<script", "<link", "src=", "href=", "url(", "@import"}) {
    EXPECT_THAT(page, Not(HasSubstr(outside)));
  }
  for (const char* there : {"Speed-up over plain decoding, temperature 0", "temperature 1",
                            "Tokens per round", "n-α", kMultiTurn, "expected", "<table>"}) {
    EXPECT_THAT(page, HasSubstr(there));
  }
}

TEST_F(SpecBench, EndsWhenItIsTold) {
  SpecOptions o = options();
  o.methods = {ngram()};
  std::atomic<bool> cancel = false;
  o.cancel = &cancel;
  o.progress = [&](int done, int) { cancel = done == 2; };
  const SpecReport report = run(o);
  EXPECT_TRUE(report.interrupted);
  EXPECT_EQ(report.prompts, 2);
  EXPECT_EQ(report.methods[0].all.replies, 3);  // whole prompts only
  EXPECT_THAT(to_text(report), HasSubstr("INTERRUPTED"));
  EXPECT_EQ(json::parse(to_json(report), nullptr, false)["interrupted"], true);
}

TEST_F(SpecBench, OtherRulesKeepTheIdsAtTemperature0) {
  SpecOptions o = options();
  o.methods = {itself()};
  o.engine.rule = VerifyRule::kRejection;
  o.temperatures = {0.0, 1.0};
  EXPECT_THAT(to_text(run(o)), HasSubstr("at temperature 0 all ids"));
}

TEST_F(SpecBench, RefusesWhatCannotBe) {
  SpecOptions o = options();
  o.max_tokens = 1;
  EXPECT_THAT(refusal(o), HasSubstr("--max-tokens 1: give 2 to"));
  o = options();
  o.repeats = 0;
  EXPECT_THAT(refusal(o), HasSubstr("--repeat 0"));
  o = options();
  o.temperatures = {0.5, -1.0};
  EXPECT_THAT(refusal(o), HasSubstr("--temperature -1"));
  o.temperatures = {};
  EXPECT_THAT(refusal(o), HasSubstr("--temperature"));
  o = options();
  o.methods = {ngram(), itself(), ngram()};
  EXPECT_THAT(refusal(o), HasSubstr("--method ngram:gate=0 is given twice"));
  o.methods = {SpeculativeConfig(), SpeculativeConfig()};
  EXPECT_THAT(refusal(o), HasSubstr("--method none is given twice"));
  o = options();
  o.engine.context = 60;
  EXPECT_THAT(refusal(o), testing::AllOf(HasSubstr(".jsonl:1"), HasSubstr("--ctx")));
}

// --- Depths ------------------------------------------------------------------------------------

TEST_F(SpecBench, SweepsDepths) {
  SweepOptions o;
  o.spec = options();
  o.spec.methods = {itself(), ngram()};
  o.spec.methods[0] = parse_speculative_spec("draft_model:model=" + model_).value();
  o.spec.temperatures = {0.0, 1.0};
  o.depths = {4, 1};
  const auto report = bench_sweep(o);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->spec.methods.size(), 2u * (1 + 2 * 2));
  ASSERT_EQ(report->rows.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    const SweepRow& row = report->rows[i];
    EXPECT_EQ(row.temperature, i < 2 ? 0.0 : 1.0);
    ASSERT_EQ(row.figures.size(), 2u);
    for (const Figures& f : row.figures) {
      EXPECT_LE(f.speedup.value, row.figures[static_cast<size_t>(row.best)].speedup.value);
    }
    if (i % 2 == 0) {
      EXPECT_EQ(row.method, "draft_model:model=" + model_ + ",gate=0");
      EXPECT_EQ(row.figures[0].n_alpha.size(), 4u);
      EXPECT_EQ(row.figures[1].n_alpha.size(), 1u);
      EXPECT_GT(row.figures[0].mean_accepted_length, 3.5);
      EXPECT_GT(row.figures[1].mean_accepted_length, 1.5);
      EXPECT_LE(row.figures[1].mean_accepted_length, 2.0);
    } else {
      EXPECT_EQ(row.method, "ngram:gate=0");
    }
  }
  const json out = json::parse(to_json(*report), nullptr, false);
  EXPECT_EQ(out["depths"], json({4, 1}));
  ASSERT_EQ(out["sweep"].size(), 4u);
  EXPECT_EQ(out["sweep"][1]["speedup"].size(), 2u);
  EXPECT_EQ(out["sweep"][1]["best_depth"], report->rows[1].best == 0 ? 4 : 1);
  EXPECT_EQ(out["methods"].size(), 10u);
  const std::string text = to_text(*report);
  const auto gains =
      std::count_if(report->rows.begin(), report->rows.end(), [](const SweepRow& row) {
        return row.figures[static_cast<size_t>(row.best)].speedup.value >= 1.0;
      });
  EXPECT_EQ(std::count(text.begin(), text.end(), '*'), 1 + gains);
  const std::string page = to_html(*report);
  expect_balanced(page);
  EXPECT_THAT(page, HasSubstr("by depth"));
}

TEST(Sweep, WhatTheMachineAllowsIsReckonedFromTheFloorsOfPasses) {
  VerifyReport passes;
  for (const auto& [rows, floor] : {std::pair(1, 4.0), std::pair(3, 5.0), std::pair(5, 8.0)}) {
    VerifyPoint& point = passes.points.emplace_back();
    point.rows = rows;
    point.floor_ms = floor;
  }
  Figures figures;
  figures.tokens = 200;  // in 100 rounds
  figures.mean_accepted_length = 2.0;
  figures.drafted = 200;
  EXPECT_NEAR(roofline_speedup(figures, passes), 2.0 * 4.0 / 5.0, 1e-9);
  figures.drafted = 300;  // 4 rows: between 3 and 5
  EXPECT_NEAR(roofline_speedup(figures, passes), 2.0 * 4.0 / 6.5, 1e-9);
  figures.drafted = 9000;  // beyond what was measured
  EXPECT_NEAR(roofline_speedup(figures, passes), 2.0 * 4.0 / 8.0, 1e-9);
  figures.tokens = 0;
  EXPECT_EQ(roofline_speedup(figures, passes), 0.0);
}

TEST_F(SpecBench, SweepRefusesWhatCannotBe) {
  const auto refused = [](const SweepOptions& o) {
    const auto report = bench_sweep(o);
    EXPECT_FALSE(report.ok());
    EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument);
    return report.status().message();
  };
  SweepOptions o;
  o.spec = options();
  EXPECT_THAT(refused(o), HasSubstr("--method"));
  o.spec.methods = {SpeculativeConfig()};
  EXPECT_THAT(refused(o), HasSubstr("--method none"));
  o.spec.methods = {itself()};
  EXPECT_THAT(refused(o), HasSubstr("leave its num_speculative_tokens to --depths"));
  o.spec.methods = {ngram()};
  o.depths = {2, 65};
  EXPECT_THAT(refused(o), HasSubstr("--depths 65: give 1 to 64"));
  o.depths = {2, 2};
  EXPECT_THAT(refused(o), HasSubstr("--depths 2 is given twice"));
  o.depths = {};
  EXPECT_THAT(refused(o), HasSubstr("--depths"));
}

// --- Simulated acceptance ----------------------------------------------------------------------

class Simulation : public SpecBench {
 protected:
  SimulationOptions simulation() const {
    SimulationOptions o;
    o.engine.model = model_;
    o.acceptance = {0.8, 0.5};
    o.draft_cost = 0.25;
    o.context = 32;
    o.repeats = 2;
    o.engine.threads = 1;
    return o;
  }
};

TEST_F(Simulation, CombinesRatesWithMeasuredPasses) {
  const auto report = simulate_acceptance(simulation());
  ASSERT_TRUE(report.ok()) << report.status().message();
  ASSERT_EQ(report->points.size(), 3u);
  const double lengths[] = {1.0, 1.8, 2.2};
  for (size_t i = 0; i < 3; ++i) {
    const SimulationPoint& p = report->points[i];
    const auto drafted = static_cast<double>(i);
    EXPECT_EQ(p.drafted, static_cast<int>(i));
    EXPECT_DOUBLE_EQ(p.expected_length, lengths[i]);
    EXPECT_GT(p.pass_ms, 0.0);
    EXPECT_DOUBLE_EQ(p.speedup, lengths[i] / (0.25 * drafted + p.pass_ratio));
    EXPECT_DOUBLE_EQ(p.ideal, lengths[i] / (0.25 * drafted + 1.0));
    EXPECT_LE(p.speedup, report->points[static_cast<size_t>(report->best)].speedup);
  }
  EXPECT_EQ(report->points[0].speedup, 1.0);
}

TEST_F(Simulation, ReplaysDraftsThatAreRightSoOften) {
  SimulationOptions o = simulation();
  o.acceptance = {1.0, 0.5};
  o.draft_cost = 0.0;
  o.replay_tokens = 400;
  o.replay_repeats = 2;
  const auto report = simulate_acceptance(o);
  ASSERT_TRUE(report.ok()) << report.status().message();
  ASSERT_TRUE(report->replay.has_value());
  const ReplayReport& replay = *report->replay;
  ASSERT_EQ(replay.points.size(), 3u);
  EXPECT_GT(replay.plain_tokens_per_second, 0.0);
  // A depth's draft is full but at the reply's end; four deviations of some 300 rounds.
  EXPECT_NEAR(replay.points[0].drafted, 1.0, 0.02);
  EXPECT_NEAR(replay.points[0].accepted_length, 2.0, 0.02);
  EXPECT_NEAR(replay.points[1].drafted, 2.0, 0.03);
  EXPECT_NEAR(replay.points[1].accepted_length, 2.5, 0.12);
  EXPECT_EQ(replay.points[2].depth, 0);
  EXPECT_GE(replay.points[2].accepted_length, 1.0);
  EXPECT_LE(replay.points[2].drafted, 64.0);
  EXPECT_THAT(to_text(*report), HasSubstr("replayed: 400 tokens"));
  const json out = json::parse(to_json(*report), nullptr, false);
  EXPECT_EQ(out["replay"]["points"][2]["depth"], "auto");
}

TEST_F(Simulation, DraftingTakesTheTimeThatItIsGiven) {
  SimulationOptions o = simulation();
  o.acceptance = {0.0, 0.0};
  o.draft_cost = 4.0;
  o.replay_tokens = 40;
  o.replay_repeats = 2;
  const auto report = simulate_acceptance(o);
  ASSERT_TRUE(report.ok()) << report.status().message();
  // A round of a token takes 1 + 8 times a token's time at least.
  EXPECT_LT(report->replay->points[1].speedup, 0.2);
  EXPECT_GT(report->replay->points[2].speedup, report->replay->points[1].speedup);
}

TEST_F(Simulation, SaysThatItIsSynthetic) {
  const auto report = simulate_acceptance(simulation());
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_THAT(to_text(*report), HasSubstr("SYNTHETIC"));
  const json out = json::parse(to_json(*report), nullptr, false);
  EXPECT_EQ(out["synthetic"], true);
  EXPECT_THAT(out["note"].get<std::string>(), HasSubstr("SYNTHETIC"));
  EXPECT_EQ(out["points"].size(), 3u);
  const std::string page = to_html(*report);
  expect_balanced(page);
  EXPECT_THAT(page, HasSubstr("<p>SYNTHETIC"));
  EXPECT_THAT(page, HasSubstr(">SYNTHETIC: expected speed-up"));
}

TEST_F(Simulation, RefusesWhatCannotBe) {
  const auto refused = [](const SimulationOptions& o) {
    const auto report = simulate_acceptance(o);
    EXPECT_FALSE(report.ok());
    EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument);
    return report.status().message();
  };
  SimulationOptions o = simulation();
  o.acceptance = {};
  EXPECT_THAT(refused(o), HasSubstr("--simulate-acceptance: give 1 to 64"));
  o.acceptance = {0.5, 1.5};
  EXPECT_THAT(refused(o), HasSubstr("--simulate-acceptance 1.5"));
  o = simulation();
  o.draft_cost = -1.0;
  EXPECT_THAT(refused(o), HasSubstr("--draft-cost -1"));
  o = simulation();
  o.replay_tokens = 1;
  EXPECT_THAT(refused(o), HasSubstr("--replay 1"));
}

}  // namespace aerie::measure::spec_test
