// Heads on the device of their target give what they give on the processor, within what a device's
// roundings allow; a row's bits are its own; a level of a draft is one graph and one wait.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "format/json.h"
#include "kernels/device/open_device.h"
#include "kernels/simt/emulation.h"
#include "tests/draft/heads/head_models.h"
#include "tests/draft/heads/head_rows.h"
#include "tests/testing/device/test_device.h"

namespace aerie::device_heads_test {

using test::Floats;
using test::HeadModels;
using test::RowOutput;
using test::RowRunner;

constexpr const char* kFolder = "tests/golden/heads";
constexpr int kRows = 21, kNodes = 3;

// Root mean square of the difference, of that of what is expected.
double difference(const Floats& actual, const Floats& expected) {
  if (actual.size() != expected.size()) return INFINITY;
  double wrong = 0.0, all = 0.0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double off = double{actual[i]} - expected[i];
    wrong += off * off;
    all += double{expected[i]} * expected[i];
  }
  if (wrong == 0.0) return 0.0;
  return std::isfinite(wrong) ? std::sqrt(wrong / all) : INFINITY;
}

// A head and its target on one machine.
class Computed {
 public:
  Computed(const std::string& name, device::Device* device)
      : folder_(std::filesystem::path(kFolder) / name) {
    const auto json = read_json(folder_ / "golden.json");
    EXPECT_TRUE(json.ok()) << json.status().message();
    const Json& config = (*json)["speculative_config"];
    method_ = config["method"].get<std::string>();
    settings_.switches["parallel_drafting"] = config.value("parallel_drafting", false);
    settings_.depth = 4;
    models_.emplace(folder_ / (*json)["target"].get<std::string>(), device);
    head_ = models_->load(method_, folder_ / "head", settings_);
  }

  Status status() const { return head_.status(); }
  FeatureHead& head() { return **head_; }
  std::unique_ptr<DraftNetwork> network(const NetworkDrafterOptions& options) {
    return models_->network(method_, folder_ / "head", options, settings_);
  }
  // Heads without a cache see rows that draft alone.
  bool is_alone() { return head().cache_config().layers == 0; }
  int vocab() { return models_->target().config().vocab; }

 private:
  std::filesystem::path folder_;
  std::string method_;
  HeadSettings settings_;
  std::optional<HeadModels> models_;
  Expected<std::unique_ptr<FeatureHead>> head_ = Status(StatusCode::kInternal, "");
};

struct Draft {
  RowOutput root;
  std::vector<RowOutput> nodes;
};

// What is behind the part of it that rows below read is anything.
void trim(FeatureHead& head, int depth, RowOutput& row) {
  const size_t read = static_cast<size_t>((depth + 2) * head.feature_width());
  row.hidden.resize(std::min(row.hidden.size(), read));
}

// Committed rows, then nodes below one another, each with what the one above it handed on.
// `swapped`: the last two rows have each other's features.
Draft draft(Computed& computed, int chunk, bool swapped = false) {
  FeatureHead& head = computed.head();
  std::vector<Floats> features = test::made_features(kRows, head.feature_width());
  if (swapped && head.block_depths() > 0) std::ranges::reverse(features);
  if (swapped) std::swap(features[kRows - 1], features[kRows - 2]);
  std::vector<int32_t> tokens = test::made_tokens(kRows + kNodes, computed.vocab());
  RowRunner runner(head);
  Draft out;
  out.root = runner.commit(features, tokens, computed.is_alone() ? 1 : chunk).back();
  if (head.block_depths() > 0) {
    out.root = runner.draft_block(tokens[kRows]);
    return out;
  }
  if (head.outputs_of_root() > 1 || head.hidden() == 0) return out;
  Floats hidden = out.root.hidden;
  trim(head, 0, out.root);
  for (int i = 0; i < kNodes && i + 1 < head.max_depth(); ++i) {
    out.nodes.push_back(runner.add_node(hidden, tokens[static_cast<size_t>(kRows + i)]));
    hidden = out.nodes.back().hidden;
    trim(head, i + 1, out.nodes.back());
  }
  return out;
}

void expect_near(const Draft& actual, const Draft& expected, double tolerance) {
  EXPECT_LT(difference(actual.root.logits, expected.root.logits), tolerance);
  EXPECT_LT(difference(actual.root.hidden, expected.root.hidden), tolerance);
  ASSERT_EQ(actual.nodes.size(), expected.nodes.size());
  for (size_t i = 0; i < expected.nodes.size(); ++i) {
    EXPECT_LT(difference(actual.nodes[i].logits, expected.nodes[i].logits), tolerance) << i;
    EXPECT_LT(difference(actual.nodes[i].hidden, expected.nodes[i].hidden), tolerance) << i;
  }
}

// What the device found is what there is to find in its logits.
void expect_top(const RowOutput& row) {
  const size_t rows = row.log_sums.size(), k = row.top.size() / rows;
  const size_t vocab = row.logits.size() / rows;
  EXPECT_EQ(k, size_t{HeadModels::kRanks});
  for (size_t r = 0; r < rows; ++r) {
    const auto logits = std::span(row.logits).subspan(r * vocab, vocab);
    std::vector<int32_t> order(vocab);
    for (size_t i = 0; i < vocab; ++i) order[i] = static_cast<int32_t>(i);
    std::ranges::stable_sort(order, [&](int32_t a, int32_t b) {
      return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
    });
    double sum = 0.0;
    for (const float logit : logits) sum += std::exp(double{logit});
    for (size_t i = 0; i < k; ++i) EXPECT_EQ(row.top[r * k + i], order[i]);
    EXPECT_NEAR(row.log_sums[r], std::log(sum), 1e-4);
  }
}

bool same_bits(const Draft& a, const Draft& b) {
  const auto same = [](const RowOutput& x, const RowOutput& y) {
    return x.logits == y.logits && x.hidden == y.hidden && x.top == y.top &&
           x.log_sums == y.log_sums;
  };
  return same(a.root, b.root) && std::ranges::equal(a.nodes, b.nodes, same);
}

bool has_other_target(const std::string& name) {
  return name == "mtp-qwen3-next" || name == "mtp-qwen3.5-hybrid" || name == "mtp-qwen3.5-moe";
}

class DeviceHeads : public testing::TestWithParam<std::string> {};

TEST_P(DeviceHeads, GiveWhatTheProcessorGives) {
  if (has_other_target(GetParam())) return;
  Computed here(GetParam(), nullptr), there(GetParam(), &test::device_of_tests());
  ASSERT_TRUE(here.status().ok()) << here.status().message();
  ASSERT_TRUE(there.status().ok()) << there.status().message();
  const Draft expected = draft(here, kRows), actual = draft(there, kRows);
  expect_near(actual, expected, 0.02);
  expect_top(actual.root);
  for (const RowOutput& node : actual.nodes) expect_top(node);
  EXPECT_TRUE(same_bits(draft(there, 1), actual)) << "one row a pass";
  EXPECT_TRUE(same_bits(draft(there, 8), actual)) << "eight rows a pass";
  // Or what is held against each other above says nothing.
  EXPECT_GT(difference(draft(there, kRows, true).root.logits, expected.root.logits), 0.04);
}

// The levels of a draft, from its root on: what running one of them costs besides its work.
std::vector<simt::Counts> run_levels(DraftNetwork& network, const Floats& taps, int vocab,
                                     int levels) {
  constexpr int kKnown = 12;
  const std::vector<int32_t> tokens = test::made_tokens(kKnown, vocab);
  std::vector<simt::Counts> counts;
  DraftSequence sequence;
  sequence.max_tokens = HeadModels::kPositions;
  EXPECT_TRUE(network.open(0, sequence).ok());
  DraftCommit commit;
  commit.tokens = tokens;
  commit.rows = kKnown - 1;
  commit.taps = taps;
  network.observe(0, commit, {});
  LevelLimits limits;
  limits.max_nodes = limits.max_depth = levels;
  LevelTree tree;
  tree.start(limits);
  EXPECT_GT(network.start(0, tokens, levels, levels), 0);
  for (int level = 0; level < levels; ++level) {
    const int32_t node = tree.frontier()[0];
    node < 0 ? network.add_root(0) : network.add_node(0, tree, node);
    const simt::Counts before = simt::counts();
    network.run();
    const simt::Counts taken = simt::counts() - before;
    counts.push_back(taken);
    const LevelTree::Child child = {7, 0.5};
    tree.expand(node, {&child, 1});
    tree.advance();
  }
  network.close(0);
  return counts;
}

TEST_P(DeviceHeads, DraftALevelInOneGraphAndOneWait) {
  if (!test::is_emulated()) GTEST_SKIP() << "the emulator counts";
  if (has_other_target(GetParam())) return;
  Computed there(GetParam(), &test::device_of_tests());
  NetworkDrafterOptions options;
  options.num_tokens = options.num_steps = 3;
  const std::unique_ptr<DraftNetwork> network = there.network(options);
  ASSERT_NE(network, nullptr);
  const int levels = network->depths() > 1 ? 1 : 3;
  const Floats taps(static_cast<size_t>(11 * there.head().feature_width()), 0.5f);
  run_levels(*network, taps, there.vocab(), levels);  // graphs are made
  // Ahead of a block committed positions are read, of which nothing comes back.
  const int passes = there.head().block_depths() > 0 ? 2 : 1;
  for (const simt::Counts& level : run_levels(*network, taps, there.vocab(), levels)) {
    EXPECT_EQ(level.graph_launches, passes);
    EXPECT_EQ(level.waits, passes);
    EXPECT_EQ(level.copies, 1 + passes);  // there and back
    EXPECT_LE(level.launches, GetParam() == "eagle3" ? 15 : passes == 2 ? 40 : 32);
  }
}

// A device that is lost: passes say so from then on, and nothing ends.
TEST(DeviceHead, SaysWhenTheDeviceIsLost) {
  if (!test::is_emulated()) GTEST_SKIP() << "the emulator can be told to fail";
  for (const long operations : {0, 4, 15}) {
    auto device = device::open("emulated");
    ASSERT_TRUE(device.ok());
    Computed there("eagle3", device->get());
    NetworkDrafterOptions options;
    const std::unique_ptr<DraftNetwork> network = there.network(options);
    ASSERT_NE(network, nullptr);
    const Floats taps(static_cast<size_t>(11 * there.head().feature_width()), 0.5f);
    run_levels(*network, taps, there.vocab(), 2);
    EXPECT_TRUE(network->status().ok());
    simt::lose_device(operations);
    run_levels(*network, taps, there.vocab(), 2);
    EXPECT_FALSE(network->status().ok()) << operations;
    EXPECT_NE(network->status().message().find("device"), std::string::npos);
    simt::revive_device();
  }
}

// Too little memory is found out when a head is loaded, wherever that is.
TEST(DeviceHead, SaysWhatMemoryIsMissing) {
  if (!test::is_emulated()) GTEST_SKIP() << "the emulator's memory can be set";
  auto device = device::open("emulated");
  ASSERT_TRUE(device.ok());
  const std::filesystem::path folder = std::filesystem::path(kFolder) / "eagle3";
  HeadModels models(folder / "../target", device->get());
  const device::Info info = (*device)->info();
  const int64_t taken = info.memory - info.free;
  for (const int64_t kibibytes : {4, 60, 250}) {
    simt::set_device_memory(static_cast<size_t>(taken + (kibibytes << 10)));
    const auto head = models.load("eagle3", folder / "head");
    const Status status = head.status();
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << kibibytes;
    EXPECT_NE(status.message().find("MiB"), std::string::npos) << status.message();
  }
  simt::set_device_memory(size_t{16} << 30);
}

INSTANTIATE_TEST_SUITE_P(Heads, DeviceHeads, testing::ValuesIn(test::golden_cases(kFolder)),
                         test::golden_test_name);

}  // namespace aerie::device_heads_test
