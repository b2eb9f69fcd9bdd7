#include "measure/tune/tune.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>

#include "measure/models/make_head.h"
#include "measure/tune/drafters_at_hand.h"
#include "model/import/hugging_face_file.h"
#include "tests/testing/tiny_model.h"

namespace aerie::measure::tune_test {

using testing::HasSubstr;

MethodFigures figures(const std::string& method, double speedup, double length, int64_t drafted) {
  MethodFigures out;
  out.method = method + ":gate=0";
  out.to_use = method;
  out.temperature = 0.5;
  out.all.tokens = 1000;
  out.all.speedup.value = speedup;
  out.all.mean_accepted_length = length;
  out.all.drafted = drafted;
  return out;
}

class Choose : public testing::Test {
 protected:
  ProfileChoice choose_of(std::initializer_list<MethodFigures> all, int batch) {
    std::vector<const MethodFigures*> pointers;
    for (const MethodFigures& one : all) pointers.push_back(&one);
    return choose(pointers, batch, cost_, 100);
  }
  // A row more costs a tenth of the first one.
  const PassCost cost_{{{1, 1.0, 0.0}, {101, 11.0, 0.0}}};
  const MethodFigures none_ = figures("none", 1.0, 1.0, 0);
};

TEST_F(Choose, WhatIsFastestIsBestForOneSequence) {
  const ProfileChoice choice =
      choose_of({none_, figures("a", 1.2, 3.0, 0), figures("b", 1.4, 2.0, 0)}, 1);
  EXPECT_EQ(choice.speculate, "b");
  EXPECT_EQ(choice.speedup, 1.4);
  EXPECT_TRUE(choice.measured);
  EXPECT_EQ(choice.temperature, 0.5);
}

TEST_F(Choose, PlainDecodingIsBestUnlessSomethingPays) {
  const ProfileChoice choice = choose_of({none_, figures("a", 1.01, 1.1, 2000)}, 1);
  EXPECT_EQ(choice.speculate, "none");
  EXPECT_EQ(choice.speedup, 1.0);
  EXPECT_THAT(choice.why, HasSubstr("plain decoding is best: a comes nearest"));
  EXPECT_EQ(choose_of({none_}, 1).speculate, "none");
}

TEST_F(Choose, WhatManySequencesGainIsReckoned) {
  // 500 rounds of 2 tokens and 2 nodes: 4 sequences take 12 rows rather than 4.
  const ProfileChoice few = choose_of({none_, figures("a", 1.5, 2.0, 1000)}, 4);
  EXPECT_FALSE(few.measured);
  EXPECT_NEAR(few.speedup, 2.0 * 1.3 / 2.1, 1e-9);
  // And 40 take 120 rather than 40: that is no gain any more.
  EXPECT_EQ(choose_of({none_, figures("a", 1.5, 2.0, 1000)}, 40).speculate, "none");
  // What takes fewer nodes then wins.
  const auto both = {none_, figures("a", 1.5, 2.0, 1000), figures("b", 1.3, 1.6, 312)};
  EXPECT_EQ(choose_of(both, 1).speculate, "a");
  EXPECT_EQ(choose_of(both, 40).speculate, "b");
}

// Each load keeps the candidate that is the best for it.
TEST_F(Choose, SurvivorsAreTheBestForAnyLoad) {
  const std::vector<MethodFigures> all = {none_, figures("deep", 1.5, 2.0, 1000),
                                          figures("deeper", 1.45, 2.1, 3000),
                                          figures("flat", 1.2, 1.6, 312)};
  std::vector<const MethodFigures*> pointers;
  for (const MethodFigures& one : all) pointers.push_back(&one);
  EXPECT_EQ(survivors(pointers, 1, {1}, cost_, 100), std::vector<size_t>({1}));
  EXPECT_EQ(survivors(pointers, 2, {1}, cost_, 100), std::vector<size_t>({1, 2}));
  EXPECT_EQ(survivors(pointers, 2, {1, 40}, cost_, 100), std::vector<size_t>({1, 3}));
  EXPECT_EQ(survivors(pointers, 9, {1}, cost_, 100).size(), 3u);
}

class Tune : public testing::Test {
 protected:
  Tune() {
    std::filesystem::create_directories(folder_);
    EXPECT_TRUE(test::tiny_gguf(tiny()).write(model_).ok());
    std::ofstream(prompts_) << "{\"prompt\": \"one two one two\"}\n{\"prompt\": \"abc\"}\n";
  }
  ~Tune() override { std::filesystem::remove_all(folder_); }
  static test::TinySpec tiny() {
    test::TinySpec spec;
    spec.tokenizer = true;
    spec.vocab = test::kByteVocab;
    return spec;
  }
  TuneOptions options() const {
    TuneOptions o;
    o.spec.engine.model = model_;
    o.spec.engine.threads = 1;
    o.spec.datasets = {prompts_};
    o.spec.max_tokens = 24;
    o.spec.repeats = 1;
    o.spec.pass_repeats = 1;
    o.spec.temperatures = {0.0, 1.0};
    o.depths = {2};
    o.batches = {1, 4};
    return o;
  }

  std::string folder_ = fmt::format("{}aerie_tune_{}", testing::TempDir(), getpid());
  std::string model_ = folder_ + "/model.gguf", prompts_ = folder_ + "/prompts.jsonl";
  std::string profile_ = folder_ + "/profile.json";
};

TEST_F(Tune, ItsProfileServesTheEngine) {
  const auto report = tune(options());
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->profile.choices.size(), 4u);
  EXPECT_THAT(to_text(*report), HasSubstr("temperature"));
  std::vector<std::string> tried;
  for (const Tried& one : report->tried) tried.push_back(one.method);
  EXPECT_THAT(tried, testing::IsSupersetOf({"auto", "ngram:num_speculative_tokens=2", "lookahead",
                                            "ngram:num_matches=3,num_speculative_tokens=2",
                                            "early_exit:num_speculative_tokens=2"}));
  // In the last round, at both temperatures.
  EXPECT_EQ(report->spec.methods.size(), 2u * 7u);

  std::ofstream(profile_) << to_json(report->profile);
  EngineOptions engine_options = options().spec.engine;
  engine_options.speculation = auto_speculation();
  engine_options.profile = profile_;
  const auto engine = Engine::open(engine_options);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  ASSERT_NE((*engine)->parts().pass_cost(), nullptr);
  EXPECT_EQ((*engine)->parts().pass_cost()->points().size(), report->profile.pass_cost.size());
  EXPECT_EQ((*engine)->parts().pass_cost()->points()[0].seconds,
            report->profile.pass_cost[0].seconds);
}

TEST_F(Tune, FindsWhatLiesBesideTheModel) {
  const auto file = open_model_file(model_);
  ASSERT_TRUE(file.ok());
  MakeHeadOptions head;
  head.kind = "medusa";
  head.output = folder_ + "/heads/one";
  std::filesystem::create_directories(folder_ + "/heads");
  ASSERT_TRUE(make_head(head, read_model_config(**file).value()).ok());
  test::TinySpec small = tiny();
  small.layers = 1;
  ASSERT_TRUE(test::tiny_gguf(small).write(folder_ + "/small.gguf").ok());
  // What does not fit: another vocabulary, another shape, no model at all, and one too large.
  small.vocab += 1;
  ASSERT_TRUE(test::tiny_gguf(small).write(folder_ + "/other.gguf").ok());
  ModelConfig other = read_model_config(**file).value();
  other.hidden = 32;
  head.output = folder_ + "/heads/other";
  ASSERT_TRUE(make_head(head, other).ok());
  std::ofstream(folder_ + "/broken.gguf") << "nothing";
  test::TinySpec large = tiny();
  large.layers = 3;
  ASSERT_TRUE(test::tiny_gguf(large).write(folder_ + "/large.gguf").ok());

  const std::vector<int> depths = {2, 3};
  const auto found = candidates_at_hand(options().spec.engine, "", depths);
  ASSERT_TRUE(found.ok()) << found.status().message();
  std::vector<std::string> with_models;
  for (const SpeculativeConfig& one : *found) {
    const std::string name = to_string(one);
    if (name.find("model=") != std::string::npos) with_models.push_back(name);
  }
  std::vector<std::string> expected;
  for (const std::string& drafter :
       {"medusa:model=" + folder_ + "/heads/one", "draft_model:model=" + folder_ + "/small.gguf"}) {
    expected.push_back("auto," + drafter);
    for (const std::string shape : {"", ",topk=4", ",min_probability=0.2"}) {
      for (const int depth : depths) {
        expected.push_back(fmt::format("{},num_speculative_tokens={}{}", drafter, depth, shape));
      }
    }
  }
  EXPECT_THAT(with_models, testing::UnorderedElementsAreArray(expected));

  // And it is among what is tried.
  const auto report = tune(options());
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_TRUE(std::ranges::any_of(
      report->tried, [](const Tried& tried) { return tried.method.starts_with("medusa:model="); }));
}

TEST_F(Tune, WhatCannotBeOpenedIsNoted) {
  TuneOptions o = options();
  o.spec.temperatures = {0.0};
  o.spec.methods = {parse_speculative_spec("ngram").value(),
                    parse_speculative_spec("medusa:model=" + folder_).value()};
  const auto report = tune(o);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_TRUE(std::ranges::any_of(report->tried, [](const Tried& tried) {
    return tried.method.starts_with("medusa") && !tried.error.empty();
  }));
  EXPECT_FALSE(report->profile.choices.empty());
}

TEST_F(Tune, LittleTimeTriesLess) {
  TuneOptions o = options();
  o.spec.temperatures = {0.0};
  o.depths = {1, 2, 3, 4, 5, 6, 7, 8};
  o.minutes = 1e-6;
  const auto report = tune(o);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_GT(report->left_out, 0u);
  EXPECT_LE(report->tried.size(), 6u);
  EXPECT_THAT(to_text(*report), HasSubstr("--minutes"));
}

TEST_F(Tune, AnInterruptedOneHasNoChoices) {
  const std::atomic<bool> cancel{true};
  TuneOptions o = options();
  o.spec.cancel = &cancel;
  const auto report = tune(o);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_TRUE(report->spec.interrupted);
  EXPECT_TRUE(report->profile.choices.empty());
}

// What was chosen drafts where nobody says what does.
TEST_F(Tune, ItsChoiceIsWhatDrafts) {
  const auto report = tune(options());
  ASSERT_TRUE(report.ok()) << report.status().message();
  Profile profile = report->profile;
  profile.choices = {{0.0, 1, "ngram:num_speculative_tokens=3", 1.0, true, ""},
                     {1.0, 1, "none", 1.0, true, ""}};
  EngineOptions engine_options = options().spec.engine;
  engine_options.speculation = auto_speculation();
  engine_options.profile = profile_;
  const auto opened = [&]() {
    std::ofstream(profile_) << to_json(profile);
    const auto engine = Engine::open(engine_options);
    return engine.ok() ? to_string((*engine)->parts().options.speculation)
                       : engine.status().message();
  };
  EXPECT_EQ(opened(), "auto");
  engine_options.profile_use.emplace();
  EXPECT_EQ(opened(), "ngram:num_speculative_tokens=3");
  engine_options.profile_use->usual = 1.0;
  EXPECT_EQ(opened(), "none");
  engine_options.profile_use->asked = 0.1;
  EXPECT_EQ(opened(), "ngram:num_speculative_tokens=3");
  profile.choices[0].speculate = "magic";
  EXPECT_THAT(opened(), testing::AllOf(HasSubstr(profile_), HasSubstr("magic")));
  profile.key.threads = 2;
  EXPECT_EQ(opened(), "auto");
}

TEST_F(Tune, RefusesWhatCannotBe) {
  TuneOptions o = options();
  o.depths = {0};
  EXPECT_THAT(tune(o).status().message(), HasSubstr("--depths 0"));
  o = options();
  o.batches = {1000};
  EXPECT_THAT(tune(o).status().message(), HasSubstr("--batches 1000"));
  o = options();
  o.minutes = 0.0;
  EXPECT_THAT(tune(o).status().message(), HasSubstr("--minutes 0"));
  o = options();
  o.batches = {};
  EXPECT_EQ(tune(o).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace aerie::measure::tune_test
