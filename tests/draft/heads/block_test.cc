// What files of heads that draft blocks may say, and what is refused. What heads compute:
// golden_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "format/json.h"
#include "tests/draft/heads/head_folder.h"

namespace aerie::test::block_test {

using ::testing::ElementsAre;

constexpr StatusCode kOther = StatusCode::kInvalidArgument;  // of another model
constexpr int kHidden = 32, kVocab = 96;                     // of the goldens' target

TEST(BlockHead, SaysWhatItTapsAndDrafts) {
  HeadFolder folder("dflash", "dflash");
  HeadSettings deep;
  deep.depth = 64;
  const auto head = folder.load(deep);
  ASSERT_TRUE(head.ok()) << head.status().message();
  EXPECT_THAT((*head)->tap_layers(), ElementsAre(2, 4));
  EXPECT_EQ((*head)->feature_width(), 2 * kHidden);
  EXPECT_EQ((*head)->block_depths(), 4) << "no more than it was trained for";
  EXPECT_FALSE((*head)->root_drafts());
  EXPECT_EQ((*head)->mask_token(), 2);
  EXPECT_EQ((*head)->cache_config().layers, 2);
  HeadSettings shallow;
  shallow.depth = 2;
  shallow.tap_layers = {0, 7};
  const auto other = folder.load(shallow);
  ASSERT_TRUE(other.ok()) << other.status().message();
  EXPECT_THAT((*other)->tap_layers(), ElementsAre(0, 7));
  EXPECT_EQ((*other)->block_depths(), 2);

  HeadFolder usual("dflash-usual-taps", "dflash");
  const auto third = usual.load();
  ASSERT_TRUE(third.ok()) << third.status().message();
  EXPECT_THAT((*third)->tap_layers(), ElementsAre(2, 4, 6)) << "spread over the layers";
  EXPECT_EQ((*third)->mask_token(), kVocab) << "a row of its own";

  HeadFolder from_root("dflash-from-root", "dflash");
  const auto fourth = from_root.load(deep);
  ASSERT_TRUE(fourth.ok()) << fourth.status().message();
  EXPECT_TRUE((*fourth)->root_drafts());
  EXPECT_EQ((*fourth)->block_depths(), 4);
  EXPECT_THAT((*fourth)->tap_layers(), ElementsAre(4, 7));
}

TEST(BlockHead, KeysMayStandAtTheTop) {
  HeadFolder folder("dflash", "dflash");
  for (const char* key : {"mask_token_id", "target_layer_ids"}) {
    folder.config[key] = folder.config["dflash_config"][key];
  }
  folder.config.erase("dflash_config");
  const auto head = folder.load();
  ASSERT_TRUE(head.ok()) << head.status().message();
  EXPECT_THAT((*head)->tap_layers(), ElementsAre(2, 4));
}

TEST(BlockHead, OfAnotherModelIsRefused) {
  HeadFolder deeper("dflash", "dflash");
  deeper.config["num_target_layers"] = 36;
  deeper.expect_refused(kOther, "is 36, and the target has 8");
  HeadFolder late("dflash", "dflash");
  late.config["dflash_config"]["target_layer_ids"] = {1, 7};
  late.expect_refused(kOther, "has 7, and of the target's 8 layers -1 to 6 can be tapped");
  HeadFolder wide("dflash", "dflash");
  wide.reshape("fc.weight", {kHidden, 4 * kHidden});
  wide.expect_refused(kOther, "is 128, and 2 taps of the target, 32 each, is 64");
  HeadFolder pruned("dflash-speculators", "dflash");
  pruned.remove("d2t");
  pruned.expect_refused(kOther, "the number of rows of lm_head.weight is 40");
}

TEST(BlockHead, WrongMasksAndBlocksAreRefused) {
  HeadFolder none("dflash", "dflash");
  none.config["dflash_config"].erase("mask_token_id");
  none.expect_refused(StatusCode::kNotFound, "mask_token_id");
  HeadFolder high("dflash", "dflash");
  high.config["dflash_config"]["mask_token_id"] = kVocab;
  high.expect_refused(kOther, "the token of its masks is 96, and there are embeddings of 96");
  HeadFolder text("dflash", "dflash");
  text.config["dflash_config"]["mask_token_id"] = "<|MASK|>";
  text.expect_refused(StatusCode::kInvalidData, "mask_token_id");
  HeadFolder empty("dflash", "dflash");
  empty.config["block_size"] = 1;
  empty.expect_refused(StatusCode::kInvalidData, "block_size");
  HeadFolder unsaid("dflash", "dflash");
  unsaid.config.erase("block_size");
  unsaid.expect_refused(StatusCode::kNotFound, "block_size");
  HeadFolder taps("dflash", "dflash");
  taps.config["dflash_config"]["target_layer_ids"] = Json::array();
  taps.expect_refused(StatusCode::kInvalidData, "target_layer_ids");
}

TEST(BlockHead, TensorsThatDoNotFitAreRefused) {
  HeadFolder norm("dflash", "dflash");
  norm.remove("hidden_norm.weight");
  norm.expect_refused(StatusCode::kNotFound, "hidden_norm.weight");
  HeadFolder layer("dflash", "dflash");
  layer.remove("layers.1.self_attn.k_proj.weight");
  layer.expect_refused(StatusCode::kNotFound, "blk.1.attn_k.weight");
  HeadFolder fewer("dflash", "dflash");
  fewer.config["num_hidden_layers"] = 1;
  fewer.expect_refused(StatusCode::kUnsupported, "has no place");
  HeadFolder mask("dflash", "dflash");
  mask.add("mask_embedding", {kHidden - 1});
  mask.expect_refused(StatusCode::kInvalidData, "mask_embedding");
  HeadFolder sinks("dflash", "dflash");
  sinks.add("layers.0.self_attn.attention_sink_bias", {2});
  sinks.expect_refused(StatusCode::kUnsupported, "attention_sink_bias' has no place");
  HeadFolder shape("dflash", "dflash");
  shape.reshape("layers.0.self_attn.v_proj.weight", {kHidden, kHidden});
  shape.expect_refused(StatusCode::kInvalidData, "v_proj");
}

// A block of the root's row and one that drafts is drafted once, however deep a draft may be.
TEST(BlockHead, DraftsNoDeeperThanItsBlock) {
  HeadFolder folder("dflash", "dflash");
  folder.config["block_size"] = 2;
  const auto head = folder.load();
  ASSERT_TRUE(head.ok()) << head.status().message();
  EXPECT_EQ((*head)->block_depths(), 1);
  EXPECT_EQ((*head)->max_depth(), 1);
}

TEST(BlockHead, MarkovHeadsThatDoNotFitAreRefused) {
  HeadFolder plain("dspark", "dflash");
  plain.expect_refused(kOther, "draft with it by method dspark");
  HeadFolder sure("dspark-confidence", "dflash");
  sure.expect_refused(kOther, "draft with it by method dspark");
  HeadFolder rank("dspark", "dspark");
  rank.config["markov_rank"] = 7;
  rank.expect_refused(StatusCode::kInvalidData, "markov_rank");
  HeadFolder gone("dspark", "dspark");
  gone.remove("markov_head.markov_w1.weight");
  gone.expect_refused(StatusCode::kNotFound, "its markov_rank is 8");
  HeadFolder kind("dspark", "dspark");
  kind.config["markov_head_type"] = "lstm";
  kind.expect_refused(StatusCode::kUnsupported, "is 'lstm'; vanilla, gated and rnn are known");
  HeadFolder gate("dspark", "dspark");
  gate.config["markov_head_type"] = "gated";
  gate.expect_refused(StatusCode::kNotFound, "markov_head.gate_proj.weight");
  HeadFolder left("dspark-gated", "dspark");
  left.config["markov_head_type"] = "vanilla";
  left.expect_refused(StatusCode::kUnsupported, "'markov_head.gate_proj.bias' has no place");
  HeadFolder small("dspark", "dspark");
  small.reshape("markov_head.markov_w1.weight", {kVocab - 1, 8});
  small.expect_refused(kOther, "the number of rows of markov_head.markov_w1.weight is 95");
  HeadFolder output("dspark", "dspark");
  output.reshape("markov_head.markov_w2.weight", {kVocab, 9});
  output.expect_refused(StatusCode::kInvalidData, "markov_head.markov_w2.weight");
  HeadFolder wide("dspark-confidence", "dspark");
  wide.reshape("confidence_head.proj.weight", {1, kHidden + 9});
  wide.expect_refused(StatusCode::kInvalidData, "confidence_head.proj.weight");
}

// Without either of both it is a DFlash head that drafts from the root's row.
TEST(BlockHead, MarkovHeadsMayBeLeftOut) {
  HeadFolder folder("dflash-from-root", "dspark");
  const auto head = folder.load();
  ASSERT_TRUE(head.ok()) << head.status().message();
  EXPECT_FALSE((*head)->follows());
  EXPECT_EQ((*head)->hidden(), 0);
  HeadFolder spark("dspark-confidence", "dspark");
  const auto whole = spark.load();
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  EXPECT_TRUE((*whole)->follows());
  EXPECT_EQ((*whole)->hidden(), kHidden);
}

// What the drafter of a golden's head proposes behind its prompt and a token.
TokenTree drafted(const std::string& name, double min_probability) {
  const std::string folder = "tests/golden/heads/" + name;
  const auto golden = read_json(folder + "/golden.json");
  EXPECT_TRUE(golden.ok()) << golden.status().message();
  const auto text = (*golden)["text"].get<std::vector<int32_t>>();
  HeadModels models(folder + "/" + (*golden)["target"].get<std::string>());
  NetworkDrafterOptions options;
  options.method = "dspark";
  options.num_tokens = 4;
  options.min_probability = min_probability;
  options.vocab = kVocab;
  options.max_rows = options.max_logits = 64;
  std::unique_ptr<DraftNetwork> network = models.network("dspark", folder + "/head", options);
  EXPECT_NE(network, nullptr);
  const std::vector<float> taps = models.taps(text, network->needs().tap_layers);
  const std::unique_ptr<Drafter> drafter = make_network_drafter(std::move(network), options);
  DraftSequence sequence;
  sequence.id = 1;
  sequence.max_tokens = HeadModels::kPositions;
  EXPECT_TRUE(drafter->open(sequence).ok());
  constexpr int kKnown = 18;
  DraftCommit commit;
  commit.id = 1;
  commit.tokens = std::span(text).first(kKnown);
  commit.rows = kKnown - 1;
  commit.taps = std::span(taps).first(taps.size() / text.size() * (kKnown - 1));
  EXPECT_TRUE(drafter->observe({&commit, 1}).ok());
  TokenTree tree;
  DraftRequest request{.id = 1, .tokens = commit.tokens, .max_nodes = 64, .tree = &tree};
  EXPECT_TRUE(drafter->propose({&request, 1}).ok());
  return tree;
}

// A path ends where the head is no longer sure enough that all of it is accepted.
TEST(BlockHead, ConfidenceSizesADraft) {
  const TokenTree whole = drafted("dspark-confidence", 0.0);
  ASSERT_EQ(whole.size(), 4);
  std::vector<double> sure;
  for (const TokenTree::Node& node : whole.nodes) sure.push_back(double{node.probability});
  EXPECT_TRUE(std::ranges::is_sorted(sure, std::greater()));
  ASSERT_GT(sure[1], sure[2]);
  for (int length = 1; length < 4; ++length) {
    const auto kept = static_cast<size_t>(length);
    const double between = (sure[kept - 1] + sure[kept]) / 2.0;
    const TokenTree cut = drafted("dspark-confidence", between);
    EXPECT_EQ(cut.size(), length) << "from " << between << " on";
  }
  EXPECT_NE(drafted("dspark", 0.0).nodes[0].probability, whole.nodes[0].probability);
}

TEST(BlockHead, OrdersThatAreNotKnownAreRefused) {
  HeadFolder everywhere("dflash", "dflash");
  everywhere.config["dflash_config"]["use_swa"] = true;
  everywhere.expect_refused(StatusCode::kUnsupported, "use_swa");
  HeadFolder packaged("dflash-speculators", "dflash");
  packaged.config["sliding_window_non_causal"] = true;
  packaged.expect_refused(StatusCode::kUnsupported, "sliding_window_non_causal");
  HeadFolder windows("dflash-windows", "dflash");
  windows.config["dflash_config"]["causal"] = false;
  windows.expect_refused(StatusCode::kUnsupported, "layer 0 has a window");
}

}  // namespace aerie::test::block_test
