// A model on a device gives what the reference gives, within what its roundings allow; and a row's
// bits depend on its inputs and on what it sees alone, however the pass is made up.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "kernels/device/open_device.h"
#include "kernels/simt/emulation.h"
#include "model/device/device_weights.h"
#include "model/device/load_device_model.h"
#include "tests/model/batches.h"
#include "tests/testing/device/test_device.h"
#include "tests/testing/sweeps.h"

namespace aerie::device_model_test {

class DeviceModel : public testing::TestWithParam<DType> {
 protected:
  static const ModelFile& file() { return file_of(GetParam()).gguf(); }
  static std::vector<int32_t> tokens(int count) {
    return test::random_tokens(7, count, vocab_of_files());
  }
  static std::vector<RowOutputs> in_chunks(std::span<const int32_t> tokens, int chunk) {
    Bench bench(file(), test::device_of_tests(), 1);
    return bench.read(*bench.cache().open(), tokens, chunk);
  }
};

// Largest difference over the root of the mean square of what is expected.
double difference(std::span<const float> actual, std::span<const float> expected) {
  double worst = 0.0, squares = 0.0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (!std::isfinite(actual[i])) return INFINITY;
    worst = std::max(worst, std::abs(double{actual[i]} - expected[i]));
    squares += double{expected[i]} * expected[i];
  }
  return worst / std::sqrt(squares / static_cast<double>(expected.size()));
}

TEST_P(DeviceModel, GivesWhatTheReferenceGives) {
  const std::vector<int32_t> text = tokens(40);
  Bench reference(file(), kernels::Isa::kReference, 1, 1);
  const auto expected = reference.read(*reference.cache().open(), text, 40);
  const auto actual = in_chunks(text, 40);
  ASSERT_EQ(actual.size(), expected.size());
  double logits = 0.0, taps = 0.0, states = 0.0;
  for (size_t r = 0; r < expected.size(); ++r) {
    logits = std::max(logits, difference(actual[r].logits, expected[r].logits));
    taps = std::max(taps, difference(actual[r].taps, expected[r].taps));
    states = std::max(states, difference(actual[r].state, expected[r].state));
  }
  // bfloat16's rounding is 2^-9; it adds up over layers.
  EXPECT_LT(logits, 0.06);
  EXPECT_LT(taps, 0.06);
  EXPECT_LT(states, 0.06);
  RecordProperty("worst", std::to_string(logits));
}

TEST_P(DeviceModel, HoweverThePromptIsCut) {
  const std::vector<int32_t> text = tokens(70);
  const auto expected = in_chunks(text, 1);
  size_t turn = 0;
  for (const int chunk : test::sampled({3, 8, 9, 20, 40, 70}, 2)) {
    if (!test::in_turn(turn++, 2)) continue;
    const auto actual = in_chunks(text, chunk);
    for (size_t r = 0; r < expected.size(); ++r) {
      ASSERT_TRUE(actual[r] == expected[r]) << "chunks of " << chunk << ", row " << r;
    }
  }
}

// A real device gives the emulator's bits, and so whatever was proved there holds here.
TEST_P(DeviceModel, HasTheEmulatorsBits) {
  if (test::is_emulated()) GTEST_SKIP() << "AERIE_TEST_DEVICE names no other";
  const auto emulated = device::open("emulated");
  ASSERT_TRUE(emulated.ok()) << emulated.status().message();
  const std::vector<int32_t> text = tokens(75);
  Bench bench(file(), **emulated, 1);
  const auto expected = bench.read(*bench.cache().open(), text, 75);
  for (const int chunk : {1, 10, 75}) {
    const auto actual = in_chunks(text, chunk);
    for (size_t r = 0; r < expected.size(); ++r) {
      ASSERT_TRUE(actual[r] == expected[r]) << "chunks of " << chunk << ", row " << r;
    }
  }
}

class DeviceTree : public DeviceModel {};

// Behind nothing, and where the tree crosses a page, a chunk of attention, both at its root.
TEST_P(DeviceTree, ANodeIsTheEndOfItsChain) {
  for (const int prefix : test::sampled({0, 60, 250, 256}, 2)) {
    const std::vector<int32_t> text = tokens(prefix + 1);
    const TokenTree tree = random_tree(static_cast<uint64_t>(prefix), 12);
    Bench bench(file(), test::device_of_tests(), 3), alone(file(), test::device_of_tests(), 1);
    const KvCache::Id id = *bench.cache().open(), chain = *alone.cache().open();
    const auto known = std::span(text).first(static_cast<size_t>(prefix));
    bench.read(id, known, 64);
    alone.read(chain, known, 64);
    bench.add_tree(id, text.back(), tree);
    const std::vector<RowOutputs> rows = bench.run();
    for (int32_t node = -1; node < tree.size(); ++node) {
      std::vector<int32_t> path;
      for (const int32_t entry : path_to(tree, node)) {
        path.push_back(entry == 0 ? text.back() : tree.nodes[static_cast<size_t>(entry) - 1].token);
      }
      alone.add_chain(chain, path);  // not committed: the next one starts at the same place
      ASSERT_TRUE(rows[static_cast<size_t>(1 + node)] == alone.run().back())
          << "prefix " << prefix << ", node " << node;
    }
  }
}

// Entries of a path that was committed are moved to where a chain would have put them.
TEST_P(DeviceTree, ACommittedPathIsAChain) {
  const std::vector<int32_t> text = tokens(62);
  const TokenTree tree = random_tree(5, 14);
  Bench bench(file(), test::device_of_tests(), 1), alone(file(), test::device_of_tests(), 1);
  const KvCache::Id id = *bench.cache().open(), chain = *alone.cache().open();
  bench.read(id, std::span(text).first(61), 64);
  alone.read(chain, std::span(text).first(61), 64);
  bench.add_tree(id, text.back(), tree);
  bench.run();
  const std::vector<int32_t> path = path_to(tree, tree.size() - 1);
  bench.cache().commit(id, path);
  std::vector<int32_t> taken;
  for (const int32_t entry : path) {
    taken.push_back(entry == 0 ? text.back() : tree.nodes[static_cast<size_t>(entry) - 1].token);
  }
  alone.read(chain, taken, 64);
  const std::vector<int32_t> more = test::random_tokens(8, 5, vocab_of_files());
  EXPECT_TRUE(bench.read(id, more, 5) == alone.read(chain, more, 2));
}

std::string type_name(const testing::TestParamInfo<DType>& param) {
  return std::string(dtype_info(param.param).name);
}

// One for each layout of weights, and one that is neither.
INSTANTIATE_TEST_SUITE_P(Types, DeviceModel,
                         testing::Values(DType::kQ4_0, DType::kQ8_0, DType::kBF16, DType::kF32,
                                         DType::kQ4_K, DType::kQ6_K, DType::kMXFP4, DType::kQ5_0),
                         type_name);
// Two and eight query heads to one of keys.
INSTANTIATE_TEST_SUITE_P(Types, DeviceTree, testing::Values(DType::kQ4_0, DType::kQ6_K), type_name);

class DevicePass : public testing::Test {
 protected:
  static const ModelFile& file() { return file_of(DType::kQ4_0).gguf(); }
};

// A model whose every second layer sees the last positions alone.
TEST_F(DevicePass, WindowsAreOfTheReference) {
  test::TinySpec spec;
  spec.window = 40;
  spec.vocab = vocab_of_files();
  const test::TinyFile windowed(spec);
  const std::vector<int32_t> text = test::random_tokens(3, 120, vocab_of_files());
  Bench reference(windowed.gguf(), kernels::Isa::kReference, 1, 1);
  Bench bench(windowed.gguf(), test::device_of_tests(), 2);
  const auto expected = reference.read(*reference.cache().open(), text, 120);
  const auto whole = bench.read(*bench.cache().open(), text, 120);
  const auto parts = bench.read(*bench.cache().open(), text, 7);
  for (size_t r = 0; r < text.size(); ++r) {
    ASSERT_LT(difference(whole[r].logits, expected[r].logits), 0.06) << r;
    ASSERT_TRUE(whole[r] == parts[r]) << r;
  }
}

// The best token of each row is there without its logits, which come when they are asked for.
TEST_F(DevicePass, FindsTheBestTokens) {
  const std::vector<int32_t> text = test::random_tokens(3, 20, vocab_of_files());
  Bench bench(file(), test::device_of_tests(), 1);
  const KvCache::Id id = *bench.cache().open();
  bench.add_chain(id, text);
  const ForwardOutputs out = bench.model().forward(bench.batch(), bench.cache());
  ASSERT_TRUE(out.status.ok()) << out.status.message();
  ASSERT_EQ(out.best.size(), text.size());
  EXPECT_TRUE(out.logits.empty());
  for (size_t i = text.size(); i-- > 0;) {
    const std::span<const float> logits = out.logits_of(static_cast<int>(i));
    const auto best = std::ranges::max_element(logits);
    EXPECT_EQ(out.best[i].id, best - logits.begin());
    EXPECT_EQ(out.best[i].logit, *best);
  }
}

// What a pass of few rows costs besides its work: one graph, one wait, and six kernels a layer.
TEST_F(DevicePass, IsOneGraphAndOneWait) {
  if (!test::is_emulated()) GTEST_SKIP() << "the emulator counts";
  const std::vector<int32_t> text = test::random_tokens(3, 30, vocab_of_files());
  Bench bench(file(), test::device_of_tests(), 1);
  const KvCache::Id id = *bench.cache().open();
  bench.read(id, std::span(text).first(20), 4);
  const auto pass = [&](size_t at) {
    bench.add_chain(id, std::span(text).subspan(at, 4));
    for (BatchRow& row : bench.batch().rows) row.wants_taps = row.wants_state = false;
    bench.batch().tap_layers.clear();
    const simt::Counts before = simt::counts();
    EXPECT_TRUE(bench.model().forward(bench.batch(), bench.cache()).status.ok());
    const simt::Counts taken = simt::counts() - before;
    bench.batch().clear();
    bench.cache().commit_first(id, 4);
    return taken;
  };
  pass(20);
  const simt::Counts counts = pass(24);
  EXPECT_EQ(counts.graph_launches, 1);
  EXPECT_EQ(counts.waits, 1);
  EXPECT_EQ(counts.copies, 2);  // there and back
  const int layers = bench.model().config().layers;
  EXPECT_LE(counts.launches, 7 * layers + 5);
  EXPECT_GE(counts.launches, 5 * layers);
}

// A device that is lost in the middle: the pass says so, and nothing ends.
TEST_F(DevicePass, SaysWhenTheDeviceIsLost) {
  if (!test::is_emulated()) GTEST_SKIP() << "the emulator can be told to fail";
  const std::vector<int32_t> text = test::random_tokens(3, 30, vocab_of_files());
  for (const long operations : {0, 3, 11}) {
    auto device = device::open("emulated");
    ASSERT_TRUE(device.ok());
    Bench bench(file(), **device, 1);
    const KvCache::Id id = *bench.cache().open();
    bench.add_chain(id, text);
    simt::lose_device(operations);
    const ForwardOutputs out = bench.model().forward(bench.batch(), bench.cache());
    EXPECT_FALSE(out.status.ok()) << operations;
    EXPECT_NE(out.status.message().find("device"), std::string::npos) << out.status.message();
    EXPECT_FALSE(bench.model().forward(bench.batch(), bench.cache()).status.ok()) << "it stays so";
    simt::revive_device();
  }
}

// Too little memory: an error that says how much of what is missing, at whatever it is found out.
TEST_F(DevicePass, SaysWhatMemoryIsMissing) {
  if (!test::is_emulated()) GTEST_SKIP() << "the emulator's memory can be set";
  ModelOptions options = test::model_options();
  for (const size_t kibibytes : {16, 200, 2000}) {
    simt::set_device_memory(kibibytes << 10);
    auto device = device::open("emulated");
    ASSERT_TRUE(device.ok()) << device.status().message();
    const auto model = load_device_model(file(), options, **device);
    ASSERT_FALSE(model.ok()) << kibibytes;
    EXPECT_EQ(model.status().code(), StatusCode::kResourceExhausted) << model.status().message();
    EXPECT_NE(model.status().message().find("MiB"), std::string::npos) << model.status().message();
  }
  simt::set_device_memory(size_t{16} << 30);
}

// What there is no code for is refused by its name, not computed wrongly.
TEST_F(DevicePass, RefusesWhatItCannotCompute) {
  Blueprint blueprint;
  blueprint.config.family = "llama";
  blueprint.config.hidden = 64;
  blueprint.config.heads = blueprint.config.kv_heads = 4;
  blueprint.config.head_dim = 16;
  blueprint.layers.resize(1);
  EXPECT_TRUE(check_device_code(blueprint).ok());
  Blueprint experts = blueprint;
  experts.layers[0].experts = true;
  EXPECT_TRUE(check_device_code(experts).ok());
  experts.router = {.score = ExpertRouter::Score::kSigmoid, .groups = 64, .corrected = true};
  EXPECT_TRUE(check_device_code(experts).ok());
  experts.router = {.groups = 65};
  EXPECT_NE(check_device_code(experts).message().find("groups"), std::string::npos);
  Blueprint norms = blueprint;
  norms.norm = NormKind::kLayer;
  EXPECT_TRUE(check_device_code(norms).ok());
  norms.post_norms = true;
  EXPECT_NE(check_device_code(norms).message().find("layer norms"), std::string::npos);
  Blueprint heads = blueprint;
  heads.config.head_dim = 24;
  EXPECT_EQ(check_device_code(heads).code(), StatusCode::kUnsupported);
}

}  // namespace aerie::device_model_test
