// Layers with linear attention on a device: states follow committed paths, drafts are rolled back
// by forgetting records, and what is kept of a beginning is where it is.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/simt/emulation.h"
#include "model/device/device_weights.h"
#include "model/device/load_device_model.h"
#include "model/registry.h"
#include "tests/model/batches.h"
#include "tests/model/families/family_goldens.h"
#include "tests/testing/device/test_device.h"

namespace aerie::device_linear_test {

class DeviceLinear : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    file_ = open_family_model(GetParam());
    ASSERT_NE(file_, nullptr);
    config_ = *read_model_config(*file_);
    text_ = test::random_tokens(3, 110, config_.vocab);
  }
  Bench bench(int sequences = 1, int first_layer = 0) const {
    return {*file_, test::device_of_tests(), sequences, first_layer};
  }
  std::span<const int32_t> text(size_t from, size_t count) const {
    return std::span(text_).subspan(from, count);
  }
  static std::vector<int32_t> tokens_of(const TokenTree& tree, int32_t root, int32_t node) {
    std::vector<int32_t> tokens;
    for (const int32_t entry : path_to(tree, node)) {
      tokens.push_back(entry == 0 ? root : tree.nodes[static_cast<size_t>(entry) - 1].token);
    }
    return tokens;
  }

  std::unique_ptr<ModelFile> file_;
  ModelConfig config_;
  std::vector<int32_t> text_;
};

TEST_P(DeviceLinear, SettledOrNotAndHoweverThePromptIsCut) {
  Bench one = bench();
  const auto expected = one.read(*one.cache().open(), text(0, 18), 1);
  for (const int chunk : {2, 18}) {
    Bench settled = bench();
    ASSERT_TRUE(settled.read(*settled.cache().open(), text(0, 18), chunk, true) == expected)
        << chunk;
  }
}

// A node is the end of its chain, committed paths are chains, and a sequence next to it is one by
// itself.
TEST_P(DeviceLinear, FollowsCommittedPaths) {
  Bench drafted = bench(2), alone = bench(2);
  const KvCache::Id id = *drafted.cache().open(), other = *drafted.cache().open();
  const KvCache::Id chain = *alone.cache().open(), next = *alone.cache().open();
  drafted.read(id, text(0, 20), 64, true);
  alone.read(chain, text(0, 20), 3);
  for (uint64_t round = 0; round < 3; ++round) {
    const TokenTree tree = random_tree(7 + round, 10, config_.vocab);
    const int32_t root = text_[40 + round];
    drafted.add_tree(id, root, tree);
    drafted.add_chain(other, text(60 + 4 * round, 4));
    const std::vector<RowOutputs> rows = drafted.run();
    drafted.cache().commit_first(other, 4);
    const auto beside = alone.read(next, text(60 + 4 * round, 4), 1);
    ASSERT_TRUE(std::ranges::equal(beside, std::span(rows).last(4))) << round;
    for (const int32_t node : {-1, 4, tree.size() - 1}) {
      alone.add_chain(chain, tokens_of(tree, root, node));  // not committed
      ASSERT_TRUE(rows[static_cast<size_t>(1 + node)] == alone.run().back())
          << round << ", " << node;
    }
    const int32_t kept = static_cast<int32_t>(3 + round);
    drafted.cache().commit(id, path_to(tree, kept));
    alone.read(chain, tokens_of(tree, root, kept), 1);
  }
  EXPECT_TRUE(drafted.read(id, text(90, 5), 5) == alone.read(chain, text(90, 5), 5, true));
}

// What a closed sequence leaves, others begin with: its records are brought into its state between
// passes. A snapshot on the way is that, too.
TEST_P(DeviceLinear, BeginningsAreKept) {
  Bench drafted = bench(), alone = bench();
  Model& model = drafted.model();
  model.detach(drafted.cache());
  drafted.cache() =
      KvCache::create(
          model.config(),
          {.positions = 512, .sequences = 3, .states = {64, 3}, .planes = model.cache_planes()})
          .value();
  ASSERT_TRUE(model.attach(drafted.cache(), {}).ok());
  KvCache& cache = drafted.cache();
  std::vector<PrefixKey> keys;
  for (const int32_t token : text_) keys.push_back(static_cast<PrefixKey>(token) + 1);

  KvCache::Id id = *cache.open();
  const int32_t slot = cache.claim_snapshot(id, 12);
  ASSERT_GE(slot, 0);
  drafted.add_chain(id, text(0, 20));
  drafted.batch().sequences[0].settled = 20;
  drafted.batch().rows[11].snapshot = slot;
  drafted.run();
  cache.commit_first(id, 20);
  drafted.read(id, text(20, 7), 7);  // not settled: records alone have it
  cache.keep(id, std::span(keys).first(27));
  cache.close(id);
  EXPECT_FALSE(cache.states()->moves().empty());

  const KvCache::Id chain = *alone.cache().open();
  const auto expected = alone.read(chain, text(0, 40), 1);
  id = *cache.open();
  ASSERT_EQ(cache.adopt(id, keys), 27);
  const auto rest = drafted.read(id, text(27, 13), 13);
  EXPECT_TRUE(std::ranges::equal(rest, std::span(expected).subspan(27)));
  EXPECT_TRUE(cache.states()->moves().empty());
  // Where the state is beyond, it goes back to the beginning that was kept.
  std::vector<PrefixKey> other(keys.begin(), keys.begin() + 15);
  other.back() = 9999;
  const KvCache::Id second = *cache.open();
  ASSERT_EQ(cache.adopt(second, other), 12);
  const auto behind = drafted.read(second, text(12, 10), 4);
  EXPECT_TRUE(std::ranges::equal(behind, std::span(expected).subspan(12, 10)));
}

// Either side has the states of its layers.
TEST_P(DeviceLinear, MayBeDivided) {
  const int first = config_.layers / 2;
  Bench drafted = bench(1, first), alone = bench(1, first);
  const KvCache::Id id = *drafted.cache().open(), chain = *alone.cache().open();
  ASSERT_TRUE(drafted.read(id, text(0, 20), 20, true) == alone.read(chain, text(0, 20), 3));
  const TokenTree tree = random_tree(5, 10, config_.vocab);
  drafted.add_tree(id, text_[30], tree);
  drafted.run();
  drafted.cache().commit(id, path_to(tree, 6));
  alone.read(chain, tokens_of(tree, text_[30], 6), 1);
  EXPECT_TRUE(drafted.read(id, text(40, 5), 5) == alone.read(chain, text(40, 5), 1));
}

// One graph and one wait. A layer with linear attention takes at most two products of its input, a
// convolution, a scan, gates and a product, one with gated attention five kernels; a feed-forward
// two, or eight with experts.
TEST_P(DeviceLinear, TakesOneGraphAndOneWait) {
  if (!test::is_emulated()) GTEST_SKIP() << "the emulator counts";
  Bench counted = bench();
  const KvCache::Id id = *counted.cache().open();
  const auto pass = [&] {
    counted.add_chain(id, text(0, 4));
    for (BatchRow& row : counted.batch().rows) row.wants_taps = row.wants_state = false;
    counted.batch().tap_layers.clear();
    const simt::Counts before = simt::counts();
    EXPECT_TRUE(counted.model().forward(counted.batch(), counted.cache()).status.ok());
    const simt::Counts taken = simt::counts() - before;
    counted.batch().clear();
    counted.cache().commit_first(id, 4);
    return taken;
  };
  pass();
  const simt::Counts counts = pass();
  EXPECT_EQ(counts.graph_launches, 1);
  EXPECT_EQ(counts.waits, 1);
  EXPECT_LE(counts.copies, 3);
  const int linear = config_.count_linear(), full = config_.layers - linear;
  const int feed_forward = config_.experts > 0 ? 8 : 2;
  EXPECT_LE(counts.launches, linear * (6 + feed_forward) + full * (5 + feed_forward) + 4);
}

// Rows that leave after some layers, and go on from there: states of these are ahead of the others.
TEST_P(DeviceLinear, LayersMayBeAhead) {
  Bench drafted = bench(), alone = bench();
  const KvCache::Id id = *drafted.cache().open(), chain = *alone.cache().open();
  drafted.read(id, text(0, 10), 10, true);
  const auto expected = alone.read(chain, text(0, 40), 1);
  const int exit = config_.layers / 2;
  int position = 10;
  for (const int rows : {3, 2, 4}) {
    const auto part = text(static_cast<size_t>(position), static_cast<size_t>(rows));
    drafted.add_chain(id, part);
    drafted.batch().end_layer = exit;
    drafted.batch().tap_layers = {exit};
    std::vector<float> hidden;
    for (const RowOutputs& row : drafted.run()) {
      hidden.insert(hidden.end(), row.taps.begin(), row.taps.end());
    }
    drafted.add_chain(id, part);
    if (rows != 2) {  // or all layers again, of which some are ahead
      drafted.batch().first_layer = exit;
      drafted.batch().hidden = hidden;
    }
    drafted.batch().tap_layers.clear();
    const auto out = drafted.run();
    for (int i = 0; i < rows; ++i) {
      ASSERT_EQ(out[static_cast<size_t>(i)].logits,
                expected[static_cast<size_t>(position + i)].logits);
    }
    drafted.cache().commit_first(id, rows);
    position += rows;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, DeviceLinear,
                         testing::Values("qwen35", "qwen3-next-layer-types", "granite-hybrid",
                                         "lfm2-layer-types"),
                         family_test_name);

TEST(DeviceLinearCode, RefusesWhatItCannotCompute) {
  const auto file = open_family_model("qwen35");
  ASSERT_NE(file, nullptr);
  const Blueprint blueprint = *read_blueprint(*file);
  EXPECT_TRUE(check_device_code(blueprint).ok());
  Blueprint wide = blueprint;
  wide.config.linear.key_dim = 512;
  EXPECT_NE(check_device_code(wide).message().find("heads of this size"), std::string::npos);
  Blueprint norms = blueprint;
  norms.post_norms = true;
  EXPECT_NE(check_device_code(norms).message().find("norms behind"), std::string::npos);
}

// Of what is planned before loading: a state for every sequence, and what rows take.
TEST(DeviceLinearMemory, IsCounted) {
  const auto file = open_family_model("qwen35");
  ASSERT_NE(file, nullptr);
  const ModelConfig config = *read_model_config(*file);
  KvCache::Creation cache = {.positions = 256, .sequences = 1, .states = {32, 2}};
  const int64_t one = KvCache::bytes_needed(config, cache);
  cache.sequences = 2;
  cache.planes = KvCache::Planes::kElsewhere;
  const kernels::StateLayout layout = state_layout(config);
  EXPECT_EQ(KvCache::bytes_needed(config, cache) - one, 4 * config.count_linear() * layout.state());
  EXPECT_EQ(KvCache::bytes_here(config, cache), 0);
  ModelOptions options = test::model_options();
  const int64_t few = device_working_bytes(*file, options);
  options.max_rows += 128;
  EXPECT_GE(device_working_bytes(*file, options) - few, 128 * 4 * layout.channels());
}

}  // namespace aerie::device_linear_test
