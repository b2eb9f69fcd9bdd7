// `aerie speedup` with a target of a few thousand weights: everything, in seconds.
#include "train/speedup/speedup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/files.h"
#include "engine/engine.h"
#include "engine/profile.h"
#include "format/json.h"
#include "report/prompt_set.h"
#include "tests/train/data/data_folder.h"
#include "train/data/dataset.h"
#include "train/speedup/speedup_plan.h"
#include "train/speedup/speedup_prompts.h"
#include "train/speedup/speedup_state.h"

namespace aerie::train::speedup_test {

using test::Scratch;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kPrompts = 64;

// A model, prompts and what is said.
struct Speedup {
  Speedup() {
    options.model = test::write_target(scratch);
    options.out = scratch.path("speedup");
    options.prompts = {test::write_prompts(scratch, "prompts.jsonl", kPrompts)};
    options.budget = 20.0;
    options.threads = 1;
    options.command = "aerie speedup -m target.gguf";
    options.cancel = &cancel;
    options.say = [this](const std::string& line) {
      said += line + "\n";
      if (!stop_at.empty() && line.starts_with(stop_at)) cancel = true;
    };
  }

  std::string path(const std::string& name) const { return options.out + "/" + name; }

  // Runs it. Where it begins, a machine with much else to do may ask for a larger budget.
  Expected<SpeedupEnd> go() {
    auto end = speedup(options);
    if (end.ok() || end.status().message().find("give at least") == std::string::npos) return end;
    options.budget = 60.0;
    said.clear();
    return speedup(options);
  }
  // The same, and expects this end.
  void ends(SpeedupEnd as) {
    const auto end = go();
    ASSERT_TRUE(end.ok()) << end.status().message() << "\n" << said;
    ASSERT_EQ(*end, as) << said;
  }

  Scratch scratch;
  SpeedupOptions options;
  std::atomic<bool> cancel{false};
  std::string stop_at;  // the beginning of a line at which it is interrupted
  std::string said;
};

std::vector<std::string> features_in(const std::string& folder) {
  const auto paths = paths_in(folder, "features-", ".safetensors");
  EXPECT_TRUE(paths.ok()) << paths.status().message();
  return paths.ok() ? *paths : std::vector<std::string>();
}

TEST(SpeedupPlan, DividesTheBudget) {
  SpeedupSpeeds speeds;
  speeds.plain = 50.0;
  speeds.answering = 200.0;
  speeds.replies_at_a_time = 32;
  speeds.training = 1000.0;
  speeds.parameters = 10'000'000;
  speeds.seconds = 60.0;
  const auto plan = make_speedup_plan(7260.0, speeds, {3000, 1.25});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_DOUBLE_EQ(plan->data_seconds, 2520.0);
  EXPECT_DOUBLE_EQ(plan->training_seconds, 3600.0);
  EXPECT_NEAR(plan->evaluation_seconds, 1080.0, 1e-6);
  EXPECT_EQ(plan->replies, 1575);  // of 320 tokens
  EXPECT_EQ(plan->reply_tokens, 504'000);
  EXPECT_EQ(plan->trained_tokens, 3'600'000);
  EXPECT_EQ(plan->batch_tokens, 2048);
  EXPECT_GT(plan->evaluated_prompts, 10);
  EXPECT_GE(plan->held_out * 3000, plan->evaluated_prompts);
  EXPECT_EQ(make_speedup_plan(860.0, speeds, {3000, 1.25})->batch_tokens, 800);
  EXPECT_THAT(describe_plan(*plan, speeds, {3000, 1.25}, "OUT", false),
              AllOf(HasSubstr("1575 prompts of 3000"), HasSubstr("42 min"), HasSubstr("OUT"),
                    HasSubstr("computed while it trains")));
  EXPECT_THAT(describe_plan(*plan, speeds, {100, 1.25}, "OUT", true),
              AllOf(HasSubstr("more than once"), Not(HasSubstr("computed"))));
  speeds.feature_bytes = 1000;
  EXPECT_EQ(speedup_feature_bytes(*plan, speeds), 2 * 504'000'000);
}

TEST(SpeedupPlan, SaysWhichBudgetWouldDo) {
  SpeedupSpeeds speeds;
  speeds.plain = 2.0;
  speeds.answering = 10.0;
  speeds.replies_at_a_time = 32;
  speeds.training = 20.0;
  speeds.seconds = 30.0;
  const auto refused = make_speedup_plan(600.0, speeds, {100, 1.0});
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  const std::string why = refused.status().message();
  const size_t at = why.find("give at least ");
  ASSERT_NE(at, why.npos) << why;
  const double minutes = std::stod(why.substr(at + 14));
  EXPECT_GT(minutes, 10.0);
  EXPECT_TRUE(make_speedup_plan(60.0 * minutes, speeds, {100, 1.0}).ok());
  EXPECT_FALSE(make_speedup_plan(60.0 * (minutes - 1.0), speeds, {100, 1.0}).ok());
}

TEST(SpeedupPrompts, AreMixedAndReadBack) {
  const Scratch scratch;
  const std::string chats = test::write_prompts(scratch, "chats.jsonl", 40);
  const std::string texts =
      scratch.write("texts.jsonl", "{\"prompt\": \"def f(x):\"}\n{\"prompt\": \"def g(x):\"}\n");
  const auto prompts = mixed_prompts({chats, texts}, {texts});
  ASSERT_TRUE(prompts.ok()) << prompts.status().message();
  ASSERT_EQ(prompts->size(), 42U);
  const std::string file = scratch.write("mixed.jsonl", to_lines(*prompts));
  const auto read = read_prompts({file}, {});
  ASSERT_TRUE(read.ok()) << read.status().message();
  ASSERT_EQ(read->size(), prompts->size());
  int with_system = 0, plain = 0, in_place = 0;
  for (size_t i = 0; i < read->size(); ++i) {
    const Prompt& prompt = (*prompts)[i];
    EXPECT_EQ(prompt.number, static_cast<int>(i));
    EXPECT_EQ((*read)[i].turns, prompt.turns);
    EXPECT_EQ((*read)[i].system, prompt.system);
    EXPECT_EQ((*read)[i].chat, prompt.chat);
    EXPECT_EQ((*read)[i].task, prompt.task);
    with_system += prompt.system.empty() ? 0 : 1;
    plain += prompt.chat ? 0 : 1;
    in_place += prompt.name.ends_with(":" + std::to_string(i + 1)) ? 1 : 0;
  }
  EXPECT_EQ(with_system, 10);
  EXPECT_EQ(plain, 2);
  EXPECT_LT(in_place, 20);
  EXPECT_DOUBLE_EQ(mean_turns(*prompts, false), 1.0);
  EXPECT_GT(mean_turns(*prompts, true), 1.2);
  const auto held_out = held_out_prompts(*prompts, 0.3, 1024, 128);
  EXPECT_GT(held_out.size(), 2U);
  for (const Prompt& prompt : held_out) EXPECT_TRUE(is_held_out(prompt.number, 0.3));
  EXPECT_TRUE(held_out_prompts(*prompts, 0.3, 256, 128).empty());
}

TEST(SpeedupState, IsReadBackAndChecked) {
  const Scratch scratch;
  const std::string path = scratch.path("speedup.json");
  EXPECT_FALSE(read_speedup_state(path)->has_value());
  SpeedupState state;
  state.options = {{"model", "abc"}, {"budget", "7200 s"}};
  state.speeds = {.plain = 50.5,
                  .answering = 200.25,
                  .replies_at_a_time = 32,
                  .training = 1e3,
                  .bf16 = true,
                  .parameters = 12345678,
                  .layers = {1, 2, 30},
                  .feature_bytes = 3456,
                  .seconds = 40.0};
  state.stores_features = true;
  state.data_seconds = 12.5;
  state.replies = 99;
  state.answered = true;
  state.training_seconds = 77.0;
  ASSERT_TRUE(write_speedup_state(path, state).ok());
  const auto read = read_speedup_state(path);
  ASSERT_TRUE(read.ok()) << read.status().message();
  ASSERT_TRUE(read->has_value());
  EXPECT_EQ((*read)->options, state.options);
  EXPECT_EQ((*read)->speeds.parameters, state.speeds.parameters);
  EXPECT_EQ((*read)->speeds.answering, state.speeds.answering);
  EXPECT_TRUE((*read)->speeds.bf16);
  EXPECT_EQ((*read)->speeds.layers, state.speeds.layers);
  EXPECT_EQ((*read)->speeds.feature_bytes, 3456);
  EXPECT_TRUE((*read)->stores_features);
  EXPECT_EQ((*read)->replies, 99);
  EXPECT_TRUE((*read)->answered);
  EXPECT_FALSE((*read)->trained);
  EXPECT_EQ((*read)->training_seconds, 77.0);
  EXPECT_EQ(difference(state.options, state.options), "");
  EXPECT_EQ(difference(state.options, {{"model", "abc"}, {"budget", "60 s"}}),
            "budget 7200 s there, 60 s now");

  state.speeds.training = 0.0;
  ASSERT_TRUE(write_speedup_state(path, state).ok());
  EXPECT_EQ(read_speedup_state(path).status().code(), StatusCode::kInvalidData);
  scratch.write("speedup.json", "{\"options\": {}");
  EXPECT_EQ(read_speedup_state(path).status().code(), StatusCode::kInvalidData);
}

TEST(Speedup, MakesAHeadAndMeasuresIt) {
  Speedup run;
  run.options.intermediate = 32;
  run.options.type = DType::kQ4_0;
  ASSERT_NO_FATAL_FAILURE(run.ends(SpeedupEnd::kDone));
  EXPECT_THAT(run.said,
              AllOf(HasSubstr("1. Data:"), HasSubstr("2. Training:"), HasSubstr("3. Evaluation:"),
                    HasSubstr("aerie run -m "), HasSubstr("tokens/s with the time of answering")));

  const auto report = read_json(run.path("report.json"));
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_GT((*report)["data"]["samples"], 10);
  EXPECT_GE((*report)["training"]["steps"], 5);
  const double seconds =
      (*report)["data"]["seconds"].get<double>() + (*report)["training"]["seconds"].get<double>();
  EXPECT_NEAR((*report)["training"]["tokens_per_second_with_data"].get<double>() * seconds,
              (*report)["training"]["tokens"].get<double>(), 1.0);
  EXPECT_TRUE(features_in(run.path("data")).empty());
  const auto& methods = (*report)["evaluation"]["methods"];
  ASSERT_GE(methods.size(), 6U);  // plain, auto twice, the head at three depths
  const auto profile = read_profile(run.path("profile.json"));
  ASSERT_TRUE(profile.ok()) << profile.status().message();
  EXPECT_EQ((*report)["best"]["speculate"], profile->choices.front().speculate);
  if (profile->choices.front().speculate == "none") {
    EXPECT_THAT(run.said, HasSubstr("Plain decoding is best"));
  }
  const std::string card = test::read_file(run.path("head/README.md"));
  EXPECT_THAT(card, HasSubstr(run.options.command));
  const auto config = read_json(run.path("head/config.json"));
  ASSERT_TRUE(config.ok());
  EXPECT_EQ((*config)["transformer_layer_config"]["intermediate_size"], 32);
  EXPECT_EQ((*config)["quantization_config"]["config_groups"]["group_0"]["weights"]["num_bits"], 4);

  // What it says to type can be opened, and the head drafts.
  EngineOptions engine_options;
  engine_options.model = run.options.model;
  engine_options.threads = 1;
  engine_options.profile = run.path("profile.json");
  const auto speculation = parse_speculative_spec("auto,eagle3:model=" + run.path("head"));
  ASSERT_TRUE(speculation.ok()) << speculation.status().message();
  engine_options.speculation = *speculation;
  EXPECT_TRUE(Engine::open(engine_options).ok());

  run.said.clear();
  const auto again = speedup(run.options);
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(*again, SpeedupEnd::kDone);
  EXPECT_THAT(run.said, AllOf(HasSubstr("everything is there"), Not(HasSubstr("Measuring"))));
  run.options.intermediate = 64;
  EXPECT_THAT(speedup(run.options).status().message(), HasSubstr("feed-forward 32 there, 64 now"));
}

TEST(Speedup, GoesOnWhereItWasInterrupted) {
  Speedup run;
  run.stop_at = "Measured:";
  ASSERT_NO_FATAL_FAILURE(run.ends(SpeedupEnd::kInterrupted));
  EXPECT_FALSE(std::filesystem::exists(run.path("run")));

  run.cancel = false;
  run.stop_at = "1. Data:";
  ASSERT_NO_FATAL_FAILURE(run.ends(SpeedupEnd::kInterrupted));
  const auto answers = test::lines_in(run.path("data"));
  EXPECT_GT(answers.size(), 10U);
  // Of a kill between a sample and its features.
  const std::vector<std::string> features = features_in(run.path("data"));
  ASSERT_FALSE(features.empty());
  std::filesystem::remove(features.front());
  EXPECT_FALSE(std::filesystem::exists(run.path("head")));

  run.cancel = false;
  run.stop_at = "2. Training:";
  ASSERT_NO_FATAL_FAILURE(run.ends(SpeedupEnd::kInterrupted));
  EXPECT_TRUE(std::filesystem::exists(run.path("run/final/config.json")));
  EXPECT_FALSE(std::filesystem::exists(run.path("report.json")));
  const std::string log = test::read_file(run.path("run/log.jsonl"));

  run.cancel = false;
  run.stop_at.clear();
  ASSERT_NO_FATAL_FAILURE(run.ends(SpeedupEnd::kDone));
  EXPECT_EQ(test::lines_in(run.path("data")), answers);
  EXPECT_EQ(test::read_file(run.path("run/log.jsonl")), log);
  EXPECT_TRUE(std::filesystem::exists(run.path("profile.json")));
  EXPECT_EQ(run.said.find("Measuring"), run.said.rfind("Measuring"));  // once
}

TEST(Speedup, RefusesWhatCannotBe) {
  Speedup run;
  run.options.budget = 60.0;  // it is stopped long before; busy machines ask for more than others
  const auto refused = [&](const SpeedupOptions& options, StatusCode code, const char* why) {
    const auto end = speedup(options);
    EXPECT_EQ(end.status().code(), code) << end.status().message();
    EXPECT_THAT(end.status().message(), HasSubstr(why));
  };
  SpeedupOptions options = run.options;
  options.model = run.scratch.path("nothing.gguf");
  refused(options, StatusCode::kNotFound, "nothing.gguf");

  options = run.options;
  options.out = run.scratch.write("file", "") + "/out";
  refused(options, StatusCode::kInvalidArgument, "--out");

  options = run.options;
  options.budget = 0.05;
  refused(options, StatusCode::kInvalidArgument, "give at least");

  options = run.options;
  options.prompts.clear();
  refused(options, StatusCode::kInvalidArgument, "--prompts");

  options = run.options;
  options.prompts = {test::write_prompts(run.scratch, "two.jsonl", 2)};
  options.out = run.scratch.path("few");
  refused(options, StatusCode::kInvalidArgument, "--prompts");

  run.stop_at = "Measured:";
  ASSERT_NO_FATAL_FAILURE(run.ends(SpeedupEnd::kInterrupted));
  run.cancel = false;
  options = run.options;
  options.budget = 1000.0;
  refused(options, StatusCode::kInvalidArgument, "budget 60 s there, 1000 s now");
  options = run.options;
  options.prompts = {test::write_prompts(run.scratch, "others.jsonl", kPrompts - 1)};
  refused(options, StatusCode::kInvalidArgument, "other prompts");
}

}  // namespace aerie::train::speedup_test
