#include "measure/spec/tune.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

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

class Tune : public testing::Test {
 protected:
  Tune() {
    test::TinySpec spec;
    spec.tokenizer = true;
    spec.vocab = test::kByteVocab;
    EXPECT_TRUE(test::tiny_gguf(spec).write(model_).ok());
    std::ofstream(prompts_) << "{\"prompt\": \"one two one two\"}\n{\"prompt\": \"abc\"}\n";
  }
  ~Tune() override {
    for (const std::string& path : {model_, prompts_, profile_}) std::remove(path.c_str());
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

  std::string model_ = fmt::format("{}aerie_tune_{}.gguf", testing::TempDir(), getpid());
  std::string prompts_ = model_ + ".jsonl", profile_ = model_ + ".json";
};

TEST_F(Tune, ItsProfileServesTheEngine) {
  const auto report = tune(options());
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->profile.choices.size(), 4u);
  EXPECT_THAT(to_text(*report), HasSubstr("temperature"));
  // Plain decoding, auto and the three methods that need no prediction.
  EXPECT_EQ(report->spec.methods.size(), 2u * 5u);

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
  o.batches = {};
  EXPECT_EQ(tune(o).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace aerie::measure::tune_test
