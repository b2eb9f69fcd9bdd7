// Passes over some of the layers: what they leave out is as if it were not there, and a pass that
// goes on where others ended gives the bits of one that did it all.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/model/batches.h"
#include "tests/testing/device/test_device.h"
#include "tests/testing/nightly.h"

namespace aerie::layers_test {

constexpr int kLayers = 4;
constexpr int kPrefix = 250;  // the tree crosses a chunk of attention
constexpr int kNodes = 16;

test::TinySpec spec_with(std::vector<int> silent) {
  test::TinySpec spec;
  spec.layers = kLayers;
  spec.silent_layers = std::move(silent);
  return spec;
}

// What computes the model: the processor, or a device from this layer on.
struct Machine {
  kernels::Isa isa = kernels::best_isa();
  int first_layer = kLayers;
};

class Layers : public testing::TestWithParam<Machine> {
 protected:
  void SetUp() override {
    if (!kernels::isa_supported(GetParam().isa)) {
      GTEST_SKIP() << "this processor lacks " << kernels::isa_name(GetParam().isa);
    }
    tokens_ = test::random_tokens(4, kPrefix, test::TinySpec{}.vocab);
  }
  Bench bench(const test::TinyFile& file) const {
    const auto& [isa, first_layer] = GetParam();
    if (first_layer == kLayers) return {file, isa, 1, 1};
    return {file.gguf(), test::device_of_tests(), 1, first_layer};
  }

  // Logits after each token, in chunks, with whatever `edit` does to the batches.
  template <typename Edit>
  std::vector<std::vector<float>> logits(Bench& bench, const Edit& edit) const {
    const KvCache::Id id = *bench.cache().open();
    std::vector<std::vector<float>> result;
    for (size_t from = 0; from < tokens_.size(); from += 50) {
      bench.add_chain(id, std::span(tokens_).subspan(from, 50));
      edit(bench.batch());
      for (RowOutputs& row : bench.run()) result.push_back(std::move(row.logits));
      bench.cache().commit_first(id, 50);
    }
    return result;
  }

  const test::TinyFile file_{spec_with({})};
  std::vector<int32_t> tokens_;
};

TEST_P(Layers, AnExitIsTheEndOfAShorterModel) {
  for (int exit = 1; exit < kLayers; ++exit) {
    std::vector<int> rest;
    for (int i = exit; i < kLayers; ++i) rest.push_back(i);
    const test::TinyFile shorter(spec_with(rest));
    Bench all = bench(shorter), some = bench(file_);
    const auto expected = logits(all, [](ForwardBatch&) {});
    const auto actual = logits(some, [&](ForwardBatch& batch) {
      batch.end_layer = exit;
      batch.tap_layers = {exit};
    });
    ASSERT_TRUE(expected == actual) << "layers 0 to " << exit;
  }
}

TEST_P(Layers, SkippedLayersAreAsIfTheyWereNotThere) {
  for (const std::vector<int32_t>& skipped : {std::vector<int32_t>{0}, {1, 2}, {0, 2, 3}, {3}}) {
    const test::TinyFile thinner(spec_with({skipped.begin(), skipped.end()}));
    Bench all = bench(thinner), some = bench(file_);
    ModelConfig config = some.model().config();
    config.layers -= static_cast<int>(skipped.size());
    some.model().detach(some.cache());
    const int here = some.model().layers_here();
    const auto gone = std::ranges::lower_bound(skipped, here) - skipped.begin();
    some.cache() = KvCache::create(config, {.positions = Bench::kPositions,
                                            .sequences = 1,
                                            .planes = some.model().cache_planes(),
                                            .here = here - static_cast<int>(gone)})
                       .value();
    ASSERT_TRUE(some.model().attach(some.cache(), skipped).ok());
    const auto expected = logits(all, [](ForwardBatch&) {});
    const auto actual = logits(some, [&](ForwardBatch& batch) { batch.skipped_layers = skipped; });
    ASSERT_TRUE(expected == actual) << "layer " << skipped[0];
  }
}

// The root and the beginning of the tree, a chain, run their first layers one by one; the others
// together; the rest of the layers is run for all.
TEST_P(Layers, GoesOnFromExits) {
  constexpr int kChain = 5;
  TokenTree tree;
  for (int i = 0; i < kChain; ++i) tree.add(10 + i, i - 1);
  const TokenTree more = random_tree(3, kNodes);
  for (const TokenTree::Node& node : more.nodes) {
    tree.add(node.token, node.parent < 0 ? 2 : kChain + node.parent);
  }
  Bench whole = bench(file_);
  const KvCache::Id a = *whole.cache().open();
  whole.read(a, tokens_, 64);
  whole.add_tree(a, 7, tree);
  const std::vector<RowOutputs> expected = whole.run();

  for (int exit = 1; exit < kLayers; ++exit) {
    Bench parts = bench(file_);
    const KvCache::Id b = *parts.cache().open();
    parts.read(b, tokens_, 64);
    parts.add_tree(b, 7, tree);
    const ForwardBatch all = parts.batch();
    std::vector<float> exits;
    const auto run_first = [&](int32_t committed, std::vector<BatchRow> rows) {
      parts.batch().sequences[0].committed = committed;
      parts.batch().rows = std::move(rows);
      parts.batch().end_layer = exit;
      parts.batch().tap_layers = {exit};
      for (const RowOutputs& row : parts.run()) {
        exits.insert(exits.end(), row.taps.begin(), row.taps.end());
      }
      parts.batch().sequences = all.sequences;
    };
    for (int i = 0; i <= kChain; ++i) {
      BatchRow row = all.rows[static_cast<size_t>(i)];
      row.parent = -1;
      run_first(kPrefix + i, {row});
    }
    // The others hang on node 2, which is now the third row behind the prefix, the root counted.
    std::vector<BatchRow> rest(all.rows.begin() + 1 + kChain, all.rows.end());
    for (BatchRow& row : rest) row.parent = row.parent == 3 ? -1 : row.parent - 1 - kChain;
    run_first(kPrefix + 4, rest);

    parts.batch() = all;
    parts.batch().first_layer = exit;
    parts.batch().hidden = exits;
    parts.batch().tap_layers = {exit, kLayers};
    const std::vector<RowOutputs> actual = parts.run();
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      ASSERT_TRUE(actual[i].logits == expected[i].logits) << "exit " << exit << ", row " << i;
      const auto tap = [&](int layer) { return expected[i].taps.begin() + 64 * layer; };
      ASSERT_TRUE(std::equal(actual[i].taps.begin(), actual[i].taps.begin() + 64, tap(exit)));
      ASSERT_TRUE(std::equal(actual[i].taps.begin() + 64, actual[i].taps.end(), tap(kLayers)));
    }
  }
}

std::vector<Machine> processors() {
  std::vector<Machine> machines;
  for (const kernels::Isa isa : kernels::built_isas()) machines.push_back({isa, kLayers});
  return machines;
}

INSTANTIATE_TEST_SUITE_P(Isas, Layers, testing::ValuesIn(processors()), [](const auto& machine) {
  return std::string(kernels::isa_name(machine.param.isa));
});
// By day two layers on a device; at night also all, one, and all but one.
std::vector<Machine> devices() {
  std::vector<Machine> machines = {{.first_layer = 2}};
  if (!test::nightly()) return machines;
  for (const int first_layer : {0, 3, 1}) machines.push_back({.first_layer = first_layer});
  return machines;
}
INSTANTIATE_TEST_SUITE_P(Devices, Layers, testing::ValuesIn(devices()), [](const auto& machine) {
  return "from_layer_" + std::to_string(machine.param.first_layer);
});

}  // namespace aerie::layers_test
