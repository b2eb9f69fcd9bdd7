// What files of EAGLE heads may hold, and what is refused. What heads compute: golden_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/draft/heads/head_folder.h"
#include "tests/draft/heads/head_rows.h"

namespace aerie::test::eagle_test {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr StatusCode kOther = StatusCode::kInvalidArgument;  // of another model
constexpr int kHidden = 32, kVocab = 96, kTargetLayers = 8;  // of the goldens' target
constexpr const char* kNorm = "layers.0.input_layernorm.weight";

TEST(EagleHead, ReadsTheFinalHiddenState) {
  HeadFolder folder("eagle", "eagle");
  const auto head = folder.load();
  ASSERT_TRUE(head.ok()) << head.status().message();
  EXPECT_THAT((*head)->tap_layers(), ElementsAre(kTargetLayers));
  EXPECT_EQ((*head)->feature_width(), kHidden);
  EXPECT_EQ((*head)->hidden(), kHidden);
  EXPECT_EQ((*head)->vocab(), kVocab);
  EXPECT_EQ((*head)->cache_config().layers, 1);
  EXPECT_EQ((*head)->outputs_of_root(), 1);
  EXPECT_THAT((*head)->target_ids(), IsEmpty());
  HeadSettings settings;
  settings.tap_layers = {2};
  folder.expect_refused(kOther, "leave out tap_layers", settings);
}

// Names in the ways in which they are published; the numbers are the same.
TEST(EagleHead, TakesScaledRotaryEmbedding) {
  HeadFolder folder("eagle", "eagle");
  folder.config["rope_scaling"] = {{"rope_type", "llama3"},
                                   {"factor", 8.0},
                                   {"low_freq_factor", 1.0},
                                   {"high_freq_factor", 4.0},
                                   {"original_max_position_embeddings", 64}};
  const auto head = folder.load();
  EXPECT_TRUE(head.ok()) << head.status().message();
}

TEST(EagleHead, TakesTheNamesOfOtherPackages) {
  HeadFolder folder("eagle", "eagle");
  const Floats plain = last_of(folder).logits;
  ASSERT_THAT(plain, SizeIs(kVocab));
  for (HeadTensor& tensor : folder.tensors) tensor.name = "model." + tensor.name;
  EXPECT_EQ(last_of(folder).logits, plain);
  HeadFolder packaged("eagle", "eagle");
  for (HeadTensor& tensor : packaged.tensors) {
    for (const auto& [from, to] : {std::pair<std::string, std::string>{"fc.", "fusion_fc."},
                                   {"layers.0.", "transformer."}}) {
      if (tensor.name.starts_with(from)) tensor.name.replace(0, from.size(), to);
    }
  }
  EXPECT_EQ(last_of(packaged).logits, plain);
}

TEST(EagleHead, EachPartCounts) {
  HeadFolder folder("eagle", "eagle");
  const Floats plain = last_of(folder).logits;
  // The embedding is a copy of the target's.
  folder.remove("embed_tokens.weight");
  EXPECT_EQ(last_of(folder).logits, plain);
  // An LM head of its own: here one that is not the target's.
  folder.add("lm_head.weight", {kVocab, kHidden});
  EXPECT_EQ(last_of(folder).logits, Floats(kVocab, 0.0f));
  folder.remove("lm_head.weight");
  folder.remove("fc.bias");
  EXPECT_NE(last_of(folder).logits, plain);
}

// Networks with the norms that EAGLE left out.
TEST(EagleHead, UsesNormsThatAreThere) {
  HeadFolder folder("eagle", "eagle");
  const Floats plain = last_of(folder).logits;
  add_floats(folder, kNorm, {kHidden}, Floats(kHidden, 1.0f));
  const Floats normed = last_of(folder).logits;
  EXPECT_NE(normed, plain);
  add_floats(folder, "norm.weight", {kHidden}, Floats(kHidden, 1.0f));
  EXPECT_NE(last_of(folder).logits, normed);
  // What is handed on is normed too: its mean square is 1.
  folder.remove(kNorm);
  const RowOutput run = last_of(folder);
  ASSERT_THAT(run.hidden, SizeIs(kHidden));
  double squares = 0.0;
  for (const float value : run.hidden) squares += double{value} * value;
  EXPECT_NEAR(squares / kHidden, 1.0, 0.02);
}

TEST(EagleHead, OfAnotherModelIsRefused) {
  HeadFolder folder("eagle", "eagle");
  folder.config["hidden_size"] = 64;
  folder.config["head_dim"] = 16;
  folder.expect_refused(kOther, "its hidden size is 64, and the target's is 32");
  HeadFolder small("eagle", "eagle");
  small.reshape("embed_tokens.weight", {kVocab - 1, kHidden});
  small.expect_refused(kOther, "the number of rows of embed_tokens.weight is 95");
  HeadFolder head("eagle", "eagle");
  head.add("lm_head.weight", {kVocab + 1, kHidden});
  head.expect_refused(kOther, "the number of rows of lm_head.weight is 97");
}

TEST(EagleHead, TensorsThatDoNotFitTogetherAreRefused) {
  HeadFolder layers("eagle", "eagle");
  layers.config["num_hidden_layers"] = 2;
  layers.expect_refused(StatusCode::kNotFound, "blk.1.attn_norm.weight");
  HeadFolder extra("eagle", "eagle");
  extra.add("layers.1.mlp.up_proj.weight", {48, kHidden});
  extra.expect_refused(StatusCode::kUnsupported, "'layers.1.mlp.up_proj.weight' has no place");
  // Implementations differ on what this one norms.
  HeadFolder norms("eagle", "eagle");
  norms.add("embedding_layernorm.weight", {kHidden});
  norms.expect_refused(StatusCode::kUnsupported, "'embedding_layernorm.weight' has no place");
  HeadFolder bias("eagle-static-tree", "eagle");
  bias.config["bias"] = true;
  bias.expect_refused(StatusCode::kNotFound, "fc.bias");
  HeadFolder biases("eagle", "eagle");
  biases.config["qkv_bias"] = true;
  biases.expect_refused(StatusCode::kNotFound, "attn_q.bias");
  HeadFolder wide("eagle", "eagle");
  wide.reshape("fc.weight", {kHidden, kHidden});
  wide.expect_refused(StatusCode::kInvalidData, "fc.weight");
  HeadFolder twice("eagle", "eagle");
  twice.add("model.fc.weight", {kHidden, 2 * kHidden});
  twice.expect_refused(StatusCode::kInvalidData, "as another one is");
}

// Beyond the positions that it was trained for a head looks back so far and no farther.
TEST(EagleHead, SlidesAWindowBeyondItsContext) {
  constexpr int kContext = 24;
  HeadFolder folder("eagle", "eagle");
  folder.config["max_position_embeddings"] = kContext;
  const Floats plain = last_of(folder, 60).logits;
  EXPECT_EQ(last_of(folder, 60, 60 - kContext - 1).logits, plain);
  EXPECT_NE(last_of(folder, 60, 60 - kContext).logits, plain);
  // One that was trained for all that can come sees everything.
  folder.config["max_position_embeddings"] = 4096;
  EXPECT_NE(last_of(folder, 60, 0).logits, last_of(folder, 60).logits);
}

}  // namespace aerie::test::eagle_test
