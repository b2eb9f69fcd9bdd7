// Chains that a head drafts on a device take one graph and one wait, and are what they are level by
// level.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "draft/network/network_drafter.h"
#include "format/json.h"
#include "kernels/device/open_device.h"
#include "kernels/simt/emulation.h"
#include "tests/draft/heads/head_models.h"
#include "tests/draft/heads/head_rows.h"
#include "tests/testing/device/test_device.h"

namespace aerie::device_chains_test {

using test::Floats;
using test::HeadModels;

constexpr const char* kFolder = "tests/golden/heads";
constexpr int kDepth = 4, kPrompt = 12, kSequences = 4;

struct Golden {
  std::filesystem::path folder;
  std::string method, target;
};

Golden golden(const std::string& name) {
  Golden out;
  out.folder = std::filesystem::path(kFolder) / name;
  const auto json = read_json(out.folder / "golden.json");
  EXPECT_TRUE(json.ok()) << json.status().message();
  out.method = (*json)["speculative_config"]["method"].get<std::string>();
  out.target = out.folder / (*json)["target"].get<std::string>();
  return out;
}

NetworkDrafterOptions chain_options(const HeadModels& models) {
  NetworkDrafterOptions options;
  options.method = "chain";
  options.num_tokens = options.num_steps = kDepth;
  options.vocab = models.head_target().config->vocab;
  options.max_sequences = kSequences;
  options.max_rows = options.max_logits = 64;
  options.backend = models.head_target().backend;
  options.pool = models.head_target().pool;
  return options;
}

// What a sequence is, and how much is drafted for it.
struct Text {
  int max_depth = std::numeric_limits<int>::max();
  int max_nodes = kDepth;
  double temperature = 0.0;
};

// Texts that rounds are drafted for, none of whose drafts comes true.
class Drafting {
 public:
  Drafting(HeadModels& models, const Golden& head, bool ahead, std::vector<Text> texts)
      : texts_(std::move(texts)) {
    const NetworkDrafterOptions options = chain_options(models);
    auto network = models.network(head.method, head.folder / "head", options, {}, ahead);
    const int vocab = options.vocab;
    width_ =
        static_cast<int>(network->needs().tap_layers.size()) * models.head_target().config->hidden;
    network_ = network.get();
    drafter_ = make_network_drafter(std::move(network), options);
    for (size_t i = 0; i < texts_.size(); ++i) {
      std::vector<int32_t> tokens = test::made_tokens(60, vocab);
      std::ranges::rotate(tokens, tokens.begin() + static_cast<std::ptrdiff_t>(7 * i));
      tokens_.push_back(tokens);
      DraftSequence sequence;
      sequence.id = static_cast<SequenceId>(i);
      sequence.sampling.temperature = texts_[i].temperature;
      sequence.max_tokens = HeadModels::kPositions;
      EXPECT_TRUE(drafter_->open(sequence).ok());
    }
    commit(0, kPrompt);
  }

  // The tokens of the drafts.
  std::vector<std::vector<int32_t>> draft() {
    std::vector<TokenTree> trees(texts_.size());
    std::vector<DraftRequest> requests;
    for (size_t i = 0; i < texts_.size(); ++i) {
      requests.push_back({.id = static_cast<SequenceId>(i),
                          .tokens = std::span(tokens_[i]).first(known_ + 1),
                          .max_nodes = texts_[i].max_nodes,
                          .tree = &trees[i],
                          .max_depth = texts_[i].max_depth});
    }
    const simt::Counts before = simt::counts();
    status_ = drafter_->propose(requests);
    counts_ = simt::counts() - before;
    std::vector<std::vector<int32_t>> out;
    for (const TokenTree& tree : trees) {
      std::vector<int32_t>& tokens = out.emplace_back();
      for (const TokenTree::Node& node : tree.nodes) tokens.push_back(node.token);
    }
    return out;
  }
  void commit(int first, int rows) {
    known_ = static_cast<size_t>(first + rows);
    const std::vector<Floats> features = test::made_features(60, width_);
    std::vector<DraftCommit> commits;
    std::vector<Floats> taps;
    for (size_t i = 0; i < texts_.size(); ++i) {
      Floats& all = taps.emplace_back();
      for (int r = first; r < first + rows; ++r) {
        const Floats& row = features[(static_cast<size_t>(r) + 5 * i) % features.size()];
        all.insert(all.end(), row.begin(), row.end());
      }
      DraftCommit commit;
      commit.id = static_cast<SequenceId>(i);
      commit.tokens = std::span(tokens_[i]).first(known_ + 1);
      commit.first = first;
      commit.rows = rows;
      commits.push_back(commit);
    }
    for (size_t i = 0; i < texts_.size(); ++i) commits[i].taps = taps[i];
    EXPECT_TRUE(drafter_->observe(commits).ok());
  }
  // A round of which so many rows were kept, then a draft.
  std::vector<std::vector<int32_t>> next(int rows) {
    commit(static_cast<int>(known_), rows);
    return draft();
  }
  const simt::Counts& counts() const { return counts_; }
  const Status& status() const { return status_; }

 private:
  std::vector<Text> texts_;
  DraftNetwork* network_ = nullptr;
  std::unique_ptr<Drafter> drafter_;
  std::vector<std::vector<int32_t>> tokens_;
  size_t known_ = 0;
  int width_ = 0;
  simt::Counts counts_;
  Status status_;
};

// The logits of a chain's rows, of which the node at depth `other_at` + 1 has not the best token;
// of one alone, as a NetworkDrafter asks for them.
std::vector<Floats> rows_of_chain(DraftNetwork& network, int other_at, HeadModels& models) {
  const int vocab = models.target().config().vocab, hidden = models.target().config().hidden;
  const std::vector<int32_t> tokens = test::made_tokens(kPrompt + 1, vocab);
  DraftSequence sequence;
  sequence.max_tokens = HeadModels::kPositions;
  EXPECT_TRUE(network.open(0, sequence).ok());
  const size_t taps = network.needs().tap_layers.size();
  const std::vector<Floats> features =
      test::made_features(kPrompt, static_cast<int>(taps) * hidden);
  Floats all;
  for (const Floats& row : features) all.insert(all.end(), row.begin(), row.end());
  DraftCommit commit;
  commit.tokens = tokens;
  commit.rows = kPrompt;
  commit.taps = all;
  network.observe(0, commit, {});
  LevelLimits limits;
  limits.max_nodes = limits.max_depth = kDepth;
  LevelTree tree;
  tree.start(limits);
  network.begin(nullptr);
  EXPECT_EQ(network.start(0, tokens, kDepth, kDepth), kDepth);
  network.expect_chain(0, kDepth);
  std::vector<Floats> rows;
  for (int level = 0; level < kDepth; ++level) {
    const int32_t node = tree.frontier()[0];
    node < 0 ? network.add_root(0) : network.add_node(0, tree, node);
    const DraftOutputs outputs = network.run();
    EXPECT_EQ(outputs.rows, 1);
    const std::span<const float> logits = outputs.logits_of(0);
    rows.emplace_back(logits.begin(), logits.end());
    const auto best = static_cast<size_t>(outputs.top.ids[level == other_at ? 1 : 0]);
    const std::span<const int32_t> ids = network.target_ids();
    const LevelTree::Child child = {ids.empty() ? static_cast<int32_t>(best) : ids[best], 0.5};
    tree.expand(node, {&child, 1});
    tree.advance();
  }
  network.close(0);
  return rows;
}

class DeviceChains : public testing::TestWithParam<std::string> {};

TEST_P(DeviceChains, AreDraftedInOneGraphAndOneWait) {
  if (!test::is_emulated()) GTEST_SKIP() << "the emulator counts";
  const Golden head = golden(GetParam());
  HeadModels models(head.target, &test::device_of_tests());
  Drafting drafting(models, head, true, {{}, {}});
  drafting.draft();  // weights are brought over
  for (int round = 0; round < 3; ++round) {
    for (const std::vector<int32_t>& draft : drafting.next(2)) EXPECT_EQ(draft.size(), kDepth);
    EXPECT_TRUE(drafting.status().ok()) << drafting.status().message();
    EXPECT_EQ(drafting.counts().graph_launches, 1);
    EXPECT_EQ(drafting.counts().waits, 1);
    EXPECT_EQ(drafting.counts().copies, 2);  // there and back
  }
  // Or none of it is of levels.
  Drafting each(models, head, false, {{}, {}});
  each.draft();
  each.next(2);
  EXPECT_EQ(each.counts().graph_launches, kDepth);
  EXPECT_EQ(each.counts().waits, kDepth);
}

// Alone, of different lengths side by side, beside texts that are no plain chains.
TEST_P(DeviceChains, AreTheSameLevelByLevel) {
  const Golden head = golden(GetParam());
  HeadModels models(head.target, &test::device_of_tests());
  {
    const NetworkDrafterOptions options = chain_options(models);
    const auto ahead = models.network(head.method, head.folder / "head", options, {}, true);
    const auto each = models.network(head.method, head.folder / "head", options, {}, false);
    EXPECT_EQ(rows_of_chain(*ahead, -1, models), rows_of_chain(*each, -1, models));
  }
  const std::vector<std::vector<Text>> batches = {
      {{.max_depth = 2}, {}, {.max_nodes = 1}, {.max_nodes = 3}},
      {{}, {.temperature = 0.8}, {.max_depth = 3}}};
  for (const std::vector<Text>& texts : batches) {
    Drafting together(models, head, true, texts), each(models, head, false, texts);
    for (const int rows : {1, 4}) EXPECT_EQ(together.next(rows), each.next(rows)) << rows;
    // Chains that end early are among the levels of the longest; beside a text that draws there are
    // none.
    const bool is_ahead = &texts == &batches.front();
    if (test::is_emulated()) {
      EXPECT_EQ(together.counts().graph_launches, is_ahead ? 1 : kDepth);
    }
  }
}

// A chain that goes another way than the likeliest tokens: rows that were computed ahead are left,
// and those that are asked for are what they are without.
TEST(DeviceChain, IsLeftWhereADraftGoesAnotherWay) {
  const Golden head = golden("eagle3");
  HeadModels models(head.target, &test::device_of_tests());
  const NetworkDrafterOptions options = chain_options(models);
  const auto together = models.network(head.method, head.folder / "head", options, {}, true);
  const auto each = models.network(head.method, head.folder / "head", options, {}, false);
  for (const int other_at : {0, 1, 2}) {
    const std::vector<Floats> a = rows_of_chain(*together, other_at, models);
    EXPECT_EQ(a, rows_of_chain(*each, other_at, models)) << other_at;
    EXPECT_NE(a, rows_of_chain(*each, -1, models)) << other_at;
  }
}

// A device that is lost in the middle of a chain: an error of the draft.
TEST(DeviceChain, SaysWhenTheDeviceIsLost) {
  if (!test::is_emulated()) GTEST_SKIP() << "the emulator can be told to fail";
  const Golden head = golden("eagle3");
  for (const long operations : {0, 3, 30}) {
    auto device = device::open("emulated");
    ASSERT_TRUE(device.ok());
    HeadModels models(head.target, device->get());
    Drafting drafting(models, head, true, {{}, {}});
    drafting.draft();
    EXPECT_TRUE(drafting.status().ok());
    simt::lose_device(operations);
    for (const std::vector<int32_t>& draft : drafting.next(1)) EXPECT_TRUE(draft.empty());
    EXPECT_FALSE(drafting.status().ok()) << operations;
    EXPECT_NE(drafting.status().message().find("device"), std::string::npos);
    simt::revive_device();
  }
}

// Without memory for embeddings a chain takes a graph for each level.
TEST(DeviceChain, DoesWithoutMemory) {
  if (!test::is_emulated()) GTEST_SKIP() << "the emulator's memory can be set";
  auto device = device::open("emulated");
  ASSERT_TRUE(device.ok());
  const Golden head = golden("eagle3");
  HeadModels models(head.target, device->get());
  HeadSettings settings;
  settings.depth = kDepth;
  int64_t needed = 0;
  {
    const auto loaded = models.load(head.method, head.folder / "head", settings);
    ASSERT_TRUE(loaded.ok());
    needed = (*loaded)->level_bytes(kDepth - 1);
    EXPECT_GT(needed, 0);
  }
  const auto free_with = [&](bool ahead) {
    const auto network =
        models.network(head.method, head.folder / "head", chain_options(models), {}, ahead);
    return (*device)->info().free;
  };
  const int64_t without = free_with(false), with = free_with(true);
  EXPECT_GE(without - with, needed);
  const device::Info info = (*device)->info();
  simt::set_device_memory(static_cast<size_t>(info.memory - without + needed / 2));
  Drafting drafting(models, head, true, {{}, {}});
  drafting.draft();
  EXPECT_TRUE(drafting.status().ok()) << drafting.status().message();
  drafting.next(1);
  EXPECT_EQ(drafting.counts().graph_launches, kDepth);
  simt::set_device_memory(size_t{16} << 30);
}

INSTANTIATE_TEST_SUITE_P(Heads, DeviceChains,
                         testing::Values("eagle", "eagle3", "eagle3-speculators-own-embedding",
                                         "eagle3-speculators-residual", "mtp-glm",
                                         "mtp-deepseek-latent"),
                         test::golden_test_name);

}  // namespace aerie::device_chains_test
