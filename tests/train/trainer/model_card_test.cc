// How many drafted tokens a model card recommends.
#include "train/run/model_card.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tests/train/temporary_folder.h"
#include "train/run/curves.h"

namespace aerie::train::model_card_test {

using test::TemporaryFolder;

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Of a drafter of which so many rounds, by depth, accepted a token; none: it was not measured.
std::string card(const std::string& speculate, const std::optional<std::vector<double>>& accepted) {
  CardFacts facts;
  facts.method = "p-eagle";
  facts.base_model = "Target";
  facts.base_model_path = "target.gguf";
  facts.speculate = speculate;
  Evaluation evaluation;
  if (accepted) {
    evaluation.acceptance.emplace();
    evaluation.acceptance->per_position = *accepted;
  }
  return model_card(facts, RunState(), evaluation);
}

TEST(ModelCard, RecommendsWhatMeasuredAcceptanceSupports) {
  const std::string head = "eagle3:model={},num_speculative_tokens=8";
  EXPECT_THAT(card(head, {{0.609, 0.127, 0.019, 0.003, 0.0, 0.0, 0.0, 0.0}}),
              AllOf(HasSubstr("--speculate 'eagle3:model=FOLDER,num_speculative_tokens=2'"),
                    HasSubstr("trained to draft 8 tokens in a round. Those behind number 2 "),
                    HasSubstr("| 8 | 0.000 |")));
  EXPECT_THAT(card(head, {{0.05, 0.01}}), HasSubstr("num_speculative_tokens=1'"));
  EXPECT_THAT(card("early_exit:exit_layer=2,num_speculative_tokens=4", {{0.5, 0.3, 0.2, 0.09}}),
              HasSubstr("'early_exit:exit_layer=2,num_speculative_tokens=3'"));
  EXPECT_THAT(card("mtp:model={},num_speculative_tokens=3,feature_normed=false", {{0.3, 0.02, 0}}),
              AllOf(HasSubstr("num_speculative_tokens=1"), HasSubstr("feature_normed=0")));
}

TEST(ModelCard, RecommendsAllWhereNothingSpeaksAgainstIt) {
  const std::string head = "eagle3:model={},num_speculative_tokens=3";
  const auto whole =
      AllOf(HasSubstr("'eagle3:model=FOLDER,num_speculative_tokens=3'"), Not(HasSubstr("behind")));
  EXPECT_THAT(card(head, {{0.6, 0.4, 0.1}}), whole);
  EXPECT_THAT(card(head, {{0.6, 0.4}}), whole);  // a third one was not measured
  EXPECT_THAT(card(head, std::nullopt), whole);
}

// A method may call a figure of its own "acceptance", a number, where nothing was measured by
// depth.
TEST(RunReport, AFigureOfThatNameIsNoShareByDepth) {
  TemporaryFolder scratch;
  const std::vector<Json> lines = {
      {{"step", 3}, {"evaluation", {{"loss", 1.5}, {"acceptance", 0.25}}}}};
  const std::string curves = scratch.path() + "/curves.html";
  ASSERT_TRUE(write_curves(curves, "distill", lines).ok());
  CardFacts facts;
  facts.base_model_path = "target.gguf";
  facts.speculate = "draft_model:model={}";
  TrainResult result;
  result.state.best = -1.5;
  result.state.best_step = 3;
  EXPECT_THAT(run_report(facts, "run", result, lines), HasSubstr("draft_model:model=run/best"));
}

}  // namespace aerie::train::model_card_test
