// What files of recurrent drafters may hold, and what is refused. What they compute:
// golden_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/draft/heads/head_folder.h"

namespace aerie::test::redrafter_test {

using ::testing::ElementsAre;

constexpr StatusCode kInvalid = StatusCode::kInvalidData;
constexpr StatusCode kMissing = StatusCode::kNotFound;
constexpr StatusCode kOther = StatusCode::kInvalidArgument;  // of another model
constexpr int kHidden = 32, kVocab = 96, kTargetLayers = 3;  // of the goldens' target
constexpr const char* kMethod = "redrafter";

TEST(RedrafterHead, IsWhatItsConfigurationSays) {
  HeadFolder folder("redrafter", kMethod);
  const auto head = folder.load();
  ASSERT_TRUE(head.ok()) << head.status().message();
  EXPECT_EQ((*head)->outputs_of_root(), 1);
  EXPECT_EQ((*head)->hidden(), 2 * kHidden);
  EXPECT_EQ((*head)->feature_width(), kHidden);
  EXPECT_EQ((*head)->vocab(), kVocab);
  EXPECT_EQ((*head)->cache_config().layers, 0);
  EXPECT_THAT((*head)->tap_layers(), ElementsAre(kTargetLayers));
}

TEST(RedrafterHead, OfAnotherModelIsRefused) {
  HeadFolder folder("redrafter", kMethod);
  folder.config["hidden_size"] = 48;
  folder.expect_refused(kOther, "hidden_size is 48, and the target's is 32");
  folder.config["hidden_size"] = kHidden;
  folder.config["vocab_size"] = 97;
  folder.expect_refused(kOther, "vocab_size is 97, and the target's vocabulary is 96");
}

TEST(RedrafterHead, ConfigurationsOutOfRangeAreRefused) {
  HeadFolder folder("redrafter", kMethod);
  folder.config["exit_dim"] = 0;
  folder.expect_refused(kInvalid, "key 'exit_dim' is 0");
  folder.config["exit_dim"] = int64_t{1} << 40;
  folder.expect_refused(kInvalid, "key 'exit_dim' is 1099511627776");
  folder.config["exit_dim"] = 2 * kHidden;
  folder.config["num_draft_layers"] = -1;
  folder.expect_refused(kInvalid, "key 'num_draft_layers' is -1");
  folder.config["num_draft_layers"] = 2;
  folder.config["rnn"] = "yes";
  folder.expect_refused(kInvalid, "rnn");
  folder.config.erase("rnn");
  folder.expect_refused(kMissing, "rnn");
}

TEST(RedrafterHead, TensorsThatDoNotFitTheConfigurationAreRefused) {
  HeadFolder folder("redrafter", kMethod);
  folder.config["rnn"] = false;
  folder.expect_refused(StatusCode::kUnsupported, "rnn_");
  folder.config["rnn"] = true;
  folder.config["num_draft_layers"] = 3;
  folder.expect_refused(kMissing, "'lm_head.2.linear.weight'");
  folder.config["num_draft_layers"] = 1;
  // Not the target's matrix instead of one that is missing.
  folder.expect_refused(kMissing, "'lm_head.1.weight'");
  folder.config["num_draft_layers"] = 2;
  folder.config["exit_dim"] = 48;
  folder.expect_refused(kMissing, "'input_proj.weight'");
  folder.config["exit_dim"] = 2 * kHidden;
  folder.reshape("rnn_u.weight", {kHidden, kHidden + 1});
  folder.expect_refused(kInvalid, "'rnn_u.weight' has shape");

  HeadFolder projected("redrafter-input-proj", kMethod);
  projected.config["exit_dim"] = 2 * kHidden;
  projected.expect_refused(kInvalid, "'lm_head.0.linear.weight' has shape");
  HeadFolder sum("redrafter-sum", kMethod);
  sum.config["rnn"] = true;
  sum.expect_refused(kMissing, "'rnn_w.weight'");
}

TEST(RedrafterHead, VocabularyCanBePruned) {
  HeadSettings pruned;
  pruned.vocabulary = {1, 5, 90};
  HeadFolder folder("redrafter", kMethod);
  const auto head = folder.load(pruned);
  ASSERT_TRUE(head.ok()) << head.status().message();
  EXPECT_EQ((*head)->vocab(), 3);
  EXPECT_THAT((*head)->target_ids(), ElementsAre(1, 5, 90));
}

}  // namespace aerie::test::redrafter_test
