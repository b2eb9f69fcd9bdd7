// What files of MLPSpeculator may hold, and what is refused. What heads compute: golden_test.cc.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/draft/heads/head_folder.h"

namespace aerie::test::mlp_speculator_test {

using ::testing::ElementsAre;

constexpr StatusCode kInvalid = StatusCode::kInvalidData;
constexpr StatusCode kOther = StatusCode::kInvalidArgument;  // of another model
constexpr int kHidden = 32, kVocab = 96, kTargetLayers = 3;  // of the goldens' target
constexpr const char* kMethod = "mlp_speculator";

TEST(MlpSpeculatorHead, IsWhatItsConfigurationSays) {
  HeadFolder folder("mlp-speculator", kMethod);
  const auto head = folder.load();
  ASSERT_TRUE(head.ok()) << head.status().message();
  EXPECT_EQ((*head)->max_depth(), 3);
  EXPECT_EQ((*head)->outputs_of_root(), 1);
  EXPECT_EQ((*head)->hidden(), 40);
  EXPECT_EQ((*head)->feature_width(), kHidden);
  EXPECT_EQ((*head)->vocab(), kVocab);
  EXPECT_EQ((*head)->cache_config().layers, 0);
  EXPECT_THAT((*head)->tap_layers(), ElementsAre(kTargetLayers));
}

TEST(MlpSpeculatorHead, OfAnotherModelIsRefused) {
  HeadFolder folder("mlp-speculator", kMethod);
  folder.config["emb_dim"] = 48;
  folder.expect_refused(kOther, "emb_dim is 48, and the target's hidden size is 32");
  folder.config["emb_dim"] = kHidden;
  folder.config["vocab_size"] = 97;
  folder.expect_refused(kOther, "vocab_size is 97, and the target's vocabulary is 96");
}

TEST(MlpSpeculatorHead, ConfigurationsOutOfRangeAreRefused) {
  HeadFolder folder("mlp-speculator", kMethod);
  for (const int64_t steps : {int64_t{0}, int64_t{-1}, int64_t{65}, int64_t{1} << 40}) {
    folder.config["n_predict"] = steps;
    folder.expect_refused(kInvalid, "key 'n_predict' is " + std::to_string(steps));
  }
  folder.config["n_predict"] = "3";
  folder.expect_refused(kInvalid, "n_predict");
  folder.config.erase("n_predict");
  folder.expect_refused(StatusCode::kNotFound, "n_predict");
  folder.config["n_predict"] = 3;
  folder.config["inner_dim"] = -40;
  folder.expect_refused(kInvalid, "key 'inner_dim' is -40");
  folder.config["inner_dim"] = 40;
  folder.config["scale_input"] = 1;
  folder.expect_refused(kInvalid, "scale_input");
}

TEST(MlpSpeculatorHead, TensorsThatDoNotFitTheConfigurationAreRefused) {
  for (const char* name : {"speculator.emb.1.weight", "speculator.head.2.weight",
                           "speculator.ln.0.bias", "speculator.proj.2.weight"}) {
    HeadFolder folder("mlp-speculator", kMethod);
    folder.remove(name);
    // Not the target's table or matrix instead.
    folder.expect_refused(StatusCode::kNotFound, std::string(name).substr(11));
    folder.add(name, {7, 5});
    folder.expect_refused(std::string(name).find("head") != std::string::npos ? kOther : kInvalid,
                          std::string(name).substr(11));
  }
  HeadFolder more("mlp-speculator", kMethod);
  more.config["n_predict"] = 4;
  more.expect_refused(StatusCode::kNotFound, "'proj.3.weight'");
  HeadFolder fewer("mlp-speculator", kMethod);
  fewer.config["n_predict"] = 2;
  fewer.expect_refused(StatusCode::kUnsupported, "has no place");
}

TEST(MlpSpeculatorHead, TiedFilesMayHaveAllNames) {
  HeadFolder folder("mlp-speculator-tied", kMethod);
  for (int i = 1; i < 4; ++i) {
    const std::string at = fmt::format(".{}.", i);
    folder.add("speculator.emb" + at + "weight", {kVocab, 40});
    folder.add("speculator.head" + at + "weight", {kVocab, 40});
    folder.add("speculator.ln" + at + "weight", {40});
    folder.add("speculator.ln" + at + "bias", {40});
    if (i > 1) folder.add("speculator.proj" + at + "weight", {40, 40});
  }
  const auto head = folder.load();
  ASSERT_TRUE(head.ok()) << head.status().message();
  EXPECT_EQ((*head)->max_depth(), 4);
  folder.add("speculator.proj.4.weight", {40, 40});
  folder.expect_refused(StatusCode::kUnsupported, "'speculator.proj.4.weight' has no place");
}

TEST(MlpSpeculatorHead, VocabularyCanBePruned) {
  HeadSettings pruned;
  pruned.vocabulary = {1, 5, 90};
  HeadFolder folder("mlp-speculator", kMethod);
  const auto head = folder.load(pruned);
  ASSERT_TRUE(head.ok()) << head.status().message();
  EXPECT_EQ((*head)->vocab(), 3);
  EXPECT_THAT((*head)->target_ids(), ElementsAre(1, 5, 90));
}

}  // namespace aerie::test::mlp_speculator_test
