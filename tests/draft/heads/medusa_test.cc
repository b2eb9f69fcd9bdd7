// What files of Medusa's heads may hold, and what is refused. What heads compute: golden_test.cc.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "draft/heads/feature_network.h"
#include "tests/draft/heads/head_folder.h"

namespace aerie::test::medusa_test {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr StatusCode kInvalid = StatusCode::kInvalidData;
constexpr StatusCode kOther = StatusCode::kInvalidArgument;  // of another model
constexpr int kHidden = 32, kVocab = 96, kTargetLayers = 3;  // of the goldens' target

TEST(MedusaHead, IsWhatItsTensorsSay) {
  HeadFolder folder("medusa", "medusa");
  folder.config.erase("medusa_num_heads");
  auto head = folder.load();
  ASSERT_TRUE(head.ok()) << head.status().message();
  EXPECT_EQ((*head)->outputs_of_root(), 4);
  EXPECT_EQ((*head)->vocab(), kVocab);
  EXPECT_EQ((*head)->feature_width(), kHidden);
  EXPECT_EQ((*head)->hidden(), 0);
  EXPECT_EQ((*head)->cache_config().layers, 0);
  EXPECT_THAT((*head)->tap_layers(), ElementsAre(kTargetLayers));
  EXPECT_THAT((*head)->target_ids(), IsEmpty());
  // Published configurations say too few.
  folder.config["medusa_num_heads"] = 2;
  head = folder.load();
  ASSERT_TRUE(head.ok()) << head.status().message();
  EXPECT_EQ((*head)->outputs_of_root(), 4);
  // No more than a draft is deep.
  HeadSettings shallow;
  shallow.depth = 3;
  head = folder.load(shallow);
  ASSERT_TRUE(head.ok()) << head.status().message();
  EXPECT_EQ((*head)->outputs_of_root(), 3);
}

TEST(MedusaHead, OfAnotherModelIsRefused) {
  HeadFolder folder("medusa", "medusa");
  folder.reshape("0.0.linear.weight", {48, 48});
  folder.expect_refused(kOther, "its hidden size is 48, and the target's is 32");
  HeadFolder wide("medusa", "medusa");
  wide.reshape("2.1.weight", {97, kHidden});
  wide.expect_refused(kOther, "the number of rows of 2.1.weight is 97");
}

// One output matrix of a pruned vocabulary and others of the whole one would not fit one buffer.
TEST(MedusaHead, OutputMatricesAreOfTheSameTokens) {
  for (const char* pruned : {"0.1.weight", "2.1.weight"}) {
    HeadFolder mixed("medusa", "medusa");
    mixed.add("d2t", {10}, "I64");
    mixed.reshape(pruned, {10, kHidden});
    mixed.expect_refused(kInvalid, "output matrices");
  }
}

TEST(MedusaHead, TensorsThatDoNotFitTogetherAreRefused) {
  HeadFolder missing("medusa", "medusa");
  missing.remove("2.1.weight");
  missing.expect_refused(kInvalid, "has 4 heads and 2 output matrices; '2.1.weight' is missing");
  HeadFolder shape("medusa", "medusa");
  shape.reshape("1.0.linear.bias", {31});
  shape.expect_refused(kInvalid, "'1.0.linear.bias'");
  HeadFolder gap("medusa-2-layers", "medusa");
  gap.remove("1.1.linear.weight");
  gap.expect_refused(StatusCode::kNotFound, "'1.1.linear.weight'");
  HeadFolder extra("medusa", "medusa");
  extra.add("0.0.norm.weight", {kHidden});
  extra.expect_refused(StatusCode::kUnsupported, "'0.0.norm.weight' has no place");
  HeadFolder integers("medusa", "medusa");
  integers.remove("3.0.linear.weight");
  integers.add("3.0.linear.weight", {kHidden, kHidden}, "I64");
  integers.expect_refused(StatusCode::kUnsupported, "'3.0.linear.weight'");
  HeadFolder none("medusa", "medusa");
  none.tensors.clear();
  none.add("x.linear.weight", {kHidden, kHidden});
  none.expect_refused(StatusCode::kNotFound, "has no Medusa heads");
}

TEST(MedusaHead, ConfigurationsThatSayMoreThanThereIsAreRefused) {
  HeadFolder folder("medusa", "medusa");
  folder.config["medusa_num_heads"] = 5;
  folder.expect_refused(kInvalid, "medusa_num_heads is 5, and there are 4");
  folder.config["medusa_num_heads"] = "4";
  folder.expect_refused(kInvalid, "medusa_num_heads");
  folder.config["medusa_num_heads"] = 4;
  folder.config["medusa_num_layers"] = int64_t{1} << 40;
  folder.expect_refused(kInvalid, "medusa_num_layers is 1099511627776, and there are 1");
}

TEST(MedusaHead, TooManyHeadsAreRefused) {
  HeadFolder folder("medusa-shared-output", "medusa");
  for (int i = 4; i <= kMostHeadDepth; ++i) {
    folder.add(fmt::format("{}.0.linear.weight", i), {kHidden, kHidden});
  }
  folder.expect_refused(kInvalid, fmt::format("has more than {} heads", kMostHeadDepth));
}

TEST(MedusaHead, InAModelWhatIsNotTheHeadsIsPassedOver) {
  HeadFolder folder("medusa-in-model", "medusa");
  folder.add("model.layers.0.mlp.experts.3.weight", {4});
  const auto head = folder.load();
  ASSERT_TRUE(head.ok()) << head.status().message();
  EXPECT_EQ((*head)->outputs_of_root(), 4);
  folder.add("medusa_head.0.0.norm.weight", {kHidden});
  folder.expect_refused(StatusCode::kUnsupported, "'medusa_head.0.0.norm.weight' has no place");
}

TEST(MedusaHead, TokenMapIsChecked) {
  HeadFolder folder("medusa-vllm-bias-map", "medusa");
  const auto head = folder.load();
  ASSERT_TRUE(head.ok()) << head.status().message();
  const auto ids = (*head)->target_ids();
  EXPECT_EQ(ids.size(), 40u);
  EXPECT_TRUE(std::ranges::is_sorted(ids));

  std::vector<int64_t> tokens(40);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int64_t>(i);
  constexpr const char* kDifferent = "are not different ones of the target's 96";
  for (const int64_t bad : {int64_t{-1}, int64_t{kVocab}, int64_t{1} << 40, int64_t{7}}) {
    tokens[3] = bad;
    folder.set("token_map", tokens);
    folder.expect_refused(kInvalid, kDifferent);
  }
  tokens.resize(39);
  folder.set("token_map", tokens);
  folder.expect_refused(kInvalid, "truncated_vocab_size is 40, and token_map has 39 tokens");
  folder.config.erase("truncated_vocab_size");
  folder.expect_refused(kOther, "the number of rows of lm_heads.0.weight is 40");
  folder.remove("token_map");
  folder.add("token_map", {40});
  folder.expect_refused(StatusCode::kUnsupported, "'token_map'");
  folder.remove("token_map");
  folder.config["truncated_vocab_size"] = 40;
  folder.expect_refused(kInvalid, "truncated_vocab_size is 40, and token_map has 0 tokens");
}

TEST(MedusaHead, VocabularyIsPrunedOnce) {
  HeadSettings pruned;
  pruned.vocabulary = {1, 5, 90};
  HeadFolder mapped("medusa-vllm-one-output", "medusa");
  mapped.expect_refused(kOther, "its vocabulary is pruned already", pruned);
  for (const char* name : {"medusa", "medusa-shared-output"}) {
    HeadFolder folder(name, "medusa");
    const auto head = folder.load(pruned);
    ASSERT_TRUE(head.ok()) << head.status().message();
    EXPECT_EQ((*head)->vocab(), 3);
    EXPECT_THAT((*head)->target_ids(), ElementsAre(1, 5, 90));
  }
}

}  // namespace aerie::test::medusa_test
