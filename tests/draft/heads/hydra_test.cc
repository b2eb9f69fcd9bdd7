// What files of Hydra's heads may hold, and what is refused. What heads compute: golden_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/draft/heads/head_folder.h"

namespace aerie::test::hydra_test {

using ::testing::ElementsAre;

constexpr StatusCode kInvalid = StatusCode::kInvalidData;
constexpr StatusCode kMissing = StatusCode::kNotFound;
constexpr StatusCode kOther = StatusCode::kInvalidArgument;  // of another model
constexpr int kHidden = 32, kVocab = 96, kTargetLayers = 3;  // of the goldens' target
constexpr const char* kMethod = "hydra";

TEST(HydraHead, IsWhatItsTensorsSay) {
  HeadFolder folder("hydra", kMethod);
  for (const char* key : {"hydra_num_heads", "hydra_num_layers", "grounded_heads",
                          "hidden_state_offset", "hydra_head_arch"}) {
    folder.config.erase(key);
  }
  auto head = folder.load();
  ASSERT_TRUE(head.ok()) << head.status().message();
  EXPECT_EQ((*head)->max_depth(), 4);
  EXPECT_EQ((*head)->outputs_of_root(), 1);
  EXPECT_EQ((*head)->hidden(), 4 * kHidden);
  EXPECT_EQ((*head)->vocab(), kVocab);
  EXPECT_EQ((*head)->cache_config().layers, 0);
  EXPECT_THAT((*head)->tap_layers(), ElementsAre(kTargetLayers));
  HeadSettings shallow;
  shallow.depth = 2;
  head = folder.load(shallow);
  ASSERT_TRUE(head.ok()) << head.status().message();
  EXPECT_EQ((*head)->max_depth(), 2);
  EXPECT_EQ((*head)->hidden(), 2 * kHidden);
  // Its own embedding need not be there.
  folder.remove("input_embed_fn.weight");
  EXPECT_TRUE(folder.load().ok());
}

TEST(HydraHead, UngroundedDraftAllDepthsAtOnce) {
  HeadFolder folder("hydra-ungrounded", kMethod);
  const auto head = folder.load();
  ASSERT_TRUE(head.ok()) << head.status().message();
  EXPECT_EQ((*head)->outputs_of_root(), 4);
  EXPECT_EQ((*head)->hidden(), 0);
}

TEST(HydraHead, OffsetTapsAnEarlierLayer) {
  HeadFolder folder("hydra-2-layers-offset", kMethod);
  const auto head = folder.load();
  ASSERT_TRUE(head.ok()) << head.status().message();
  EXPECT_THAT((*head)->tap_layers(), ElementsAre(kTargetLayers - 1));
  folder.config["hidden_state_offset"] = 4;
  folder.expect_refused(kInvalid, "key 'hidden_state_offset' is 4");
}

TEST(HydraHead, PrefixHasACacheOfItsOwn) {
  HeadFolder folder("hydra-prefix", kMethod);
  auto head = folder.load();
  ASSERT_TRUE(head.ok()) << head.status().message();
  EXPECT_EQ((*head)->cache_config().layers, 1);
  // As transformers writes it now.
  folder.remove("prefix_embeding_layer.layers.0.self_attn.rotary_emb.inv_freq");
  EXPECT_TRUE(folder.load().ok());
  folder.remove("prefix_embeding_layer.norm.weight");
  folder.expect_refused(kMissing, "'prefix_embeding_layer.norm.weight'");
}

TEST(HydraHead, OfAnotherModelIsRefused) {
  HeadFolder folder("hydra", kMethod);
  folder.reshape("hydra_mlp.0.0.linear.weight", {48, 96});
  folder.expect_refused(kOther, "its hidden size is 48, and the target's is 32");
  HeadFolder wide("hydra", kMethod);
  wide.reshape("hydra_lm_head.2.weight", {97, kHidden});
  wide.expect_refused(kOther, "the number of rows of hydra_lm_head.2.weight is 97");
}

TEST(HydraHead, TensorsThatDoNotFitTheConfigurationAreRefused) {
  HeadFolder folder("hydra", kMethod);
  folder.config["hydra_num_heads"] = 5;
  folder.expect_refused(kInvalid, "key 'hydra_num_heads' is 5, and there are 4");
  folder.config["hydra_num_heads"] = 4;
  folder.config["hydra_num_layers"] = 2;
  folder.expect_refused(kInvalid, "key 'hydra_num_layers' is 2, and there are 1");
  folder.config["hydra_num_layers"] = 1;
  folder.config["grounded_heads"] = false;
  folder.expect_refused(kInvalid, "'hydra_mlp.0.0.linear.weight' has shape");
  folder.config["grounded_heads"] = true;
  folder.config["hydra_head_arch"] = "cross-attn";
  folder.expect_refused(StatusCode::kUnsupported, "is 'cross-attn'; mlp and prefix-mlp");
  folder.config["hydra_head_arch"] = "prefix-mlp";
  folder.expect_refused(kMissing, "'blk.0.attn_norm.weight'");
  folder.config["hydra_head_arch"] = "mlp";
  folder.remove("hydra_mlp.3.0.res_connection.weight");
  folder.expect_refused(kMissing, "'hydra_mlp.3.0.res_connection.weight'");

  HeadFolder prefix("hydra-prefix", kMethod);
  prefix.config["hydra_head_arch"] = "mlp";
  prefix.expect_refused(StatusCode::kUnsupported, "prefix_embeding_layer.");
  HeadFolder none("hydra", kMethod);
  none.tensors.clear();
  none.add("x", {1});
  none.expect_refused(kInvalid, "has 0 heads (hydra_lm_head) of 0 blocks");
}

TEST(HydraHead, VocabularyCanBePruned) {
  HeadSettings pruned;
  pruned.vocabulary = {1, 5, 90};
  HeadFolder folder("hydra", kMethod);
  const auto head = folder.load(pruned);
  ASSERT_TRUE(head.ok()) << head.status().message();
  EXPECT_EQ((*head)->vocab(), 3);
  EXPECT_THAT((*head)->target_ids(), ElementsAre(1, 5, 90));
}

}  // namespace aerie::test::hydra_test
