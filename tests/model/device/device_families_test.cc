// Rows of every family that devices have code for, experts among them, have bits of their own (what
// they give is Families.AreComputedByDevices's); and what experts are besides.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "format/converted_file.h"
#include "kernels/simt/emulation.h"
#include "model/device/device_experts.h"
#include "model/device/device_weights.h"
#include "model/device/load_device_model.h"
#include "model/registry.h"
#include "tests/model/batches.h"
#include "tests/model/changed_file.h"
#include "tests/model/families/family_goldens.h"
#include "tests/testing/device/test_device.h"
#include "tests/testing/sweeps.h"

namespace aerie::device_families_test {

class DeviceFamily : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    file_ = open_family_model(GetParam());
    ASSERT_NE(file_, nullptr);
    const auto blueprint = read_blueprint(*file_);
    ASSERT_TRUE(blueprint.ok()) << blueprint.status().message();
    ASSERT_TRUE(supported_by_device(*file_).ok()) << supported_by_device(*file_).message();
    blueprint_ = *blueprint;
  }

  std::unique_ptr<ModelFile> file_;
  Blueprint blueprint_;
};

TEST_P(DeviceFamily, HoweverThePromptIsCut) {
  const int length = test::thinned() ? 13 : 24;
  const std::vector<int32_t> text = test::random_tokens(5, length, blueprint_.config.vocab);
  const auto read = [&](int chunk) {
    Bench bench(*file_, test::device_of_tests(), 1);
    return bench.read(*bench.cache().open(), text, chunk);
  };
  const auto expected = read(1);
  for (const int chunk : {5, length}) {
    const auto actual = read(chunk);
    for (size_t r = 0; r < expected.size(); ++r) {
      ASSERT_TRUE(actual[r] == expected[r]) << "chunks of " << chunk << ", row " << r;
    }
  }
}

std::vector<std::string> families_of_devices() {
  std::vector<std::string> names;
  for (const std::string& name : family_models()) {
    const auto file = open_family_model(name);
    if (file != nullptr && supported_by_device(*file).ok()) names.push_back(name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Families, DeviceFamily, testing::ValuesIn(families_of_devices()),
                         family_test_name);

// Those that the documents name are among them.
TEST(DeviceFamilies, AreThoseOfTheDocuments) {
  const auto names = families_of_devices();
  for (const char* name : {"deepseek2",
                           "deepseek2-lite",
                           "deepseek3",
                           "gemma2",
                           "gemma3",
                           "gemma4",
                           "gemma4-keys-are-values",
                           "gemma4-moe",
                           "glm4-moe-lite",
                           "gpt-oss",
                           "gpt-oss-mxfp4",
                           "gpt2",
                           "granite",
                           "granitemoe",
                           "lfm2",
                           "llama",
                           "llama3",
                           "mistral",
                           "mixtral",
                           "olmoe",
                           "olmoe-clipped",
                           "phi3",
                           "qwen2",
                           "qwen2-moe",
                           "qwen3",
                           "qwen3-moe",
                           "qwen3-moe-dense",
                           "qwen3-next",
                           "qwen35",
                           "qwen35-moe",
                           "smollm3"}) {
    EXPECT_EQ(std::ranges::count(names, name), 1) << name;
  }
}

class DeviceExperts : public testing::Test {
 protected:
  void SetUp() override {
    file_ = open_family_model("qwen2-moe");
    ASSERT_NE(file_, nullptr);
    text_ = test::random_tokens(3, 60, read_model_config(*file_)->vocab);
  }

  std::unique_ptr<ModelFile> file_;
  std::vector<int32_t> text_;
};

// A pass says how many experts it read, as on the processor, where the same are chosen.
TEST_F(DeviceExperts, AreCounted) {
  Bench here(*file_, kernels::Isa::kReference, 1, 1), there(*file_, test::device_of_tests(), 1);
  const int layers = here.model().config().layers, used = here.model().config().used_experts;
  int64_t expected = 0, actual = 0;
  for (Bench* bench : {&here, &there}) {
    const KvCache::Id id = *bench->cache().open();
    for (const int rows : {1, 20, 1}) {
      bench->add_chain(id, std::span(text_).first(static_cast<size_t>(rows)));
      const ForwardOutputs out = bench->model().forward(bench->batch(), bench->cache());
      ASSERT_TRUE(out.status.ok()) << out.status.message();
      if (rows == 1) {
        EXPECT_EQ(out.experts, layers * used);
      } else {
        (bench == &here ? expected : actual) += out.experts;
      }
      bench->batch().clear();
    }
  }
  EXPECT_NEAR(static_cast<double>(actual), static_cast<double>(expected), 1.0);
}

// A pass whose layers have none reads none, whatever the one before it read.
TEST_F(DeviceExperts, AreNotCountedWhereThereAreNone) {
  const auto file = open_family_model("qwen3-moe-dense");
  ASSERT_NE(file, nullptr);
  const auto blueprint = read_blueprint(*file);
  ASSERT_TRUE(blueprint.ok());
  const auto first = std::ranges::find_if(blueprint->layers, &LayerPlan::experts);
  const int dense = static_cast<int>(first - blueprint->layers.begin());
  Bench bench(*file, test::device_of_tests(), 1);
  const KvCache::Id id = *bench.cache().open();
  for (const int end : {static_cast<int>(blueprint->layers.size()), dense}) {
    if (end == 0) continue;
    bench.add_chain(id, std::span(text_).first(2));
    bench.batch().end_layer = end;
    bench.batch().tap_layers.clear();
    const ForwardOutputs out = bench.model().forward(bench.batch(), bench.cache());
    ASSERT_TRUE(out.status.ok()) << out.status.message();
    EXPECT_EQ(out.experts > 0, end != dense) << end;
    bench.batch().clear();
  }
}

// What devices have no products for is known before anything is loaded.
TEST_F(DeviceExperts, OfSeveralTypesAreRefused) {
  const auto blocks = open_family_model("gpt-oss-mxfp4");
  ASSERT_NE(blocks, nullptr);
  EXPECT_TRUE(supported_by_device(*blocks).ok());
  const ModelConfig config = *read_model_config(*blocks);
  const auto count = static_cast<size_t>(config.hidden) * static_cast<size_t>(config.expert_ffn) *
                     static_cast<size_t>(config.experts);
  ChangedFile mixed(*blocks);
  constexpr const char* kUps = "blk.1.ffn_up_exps.weight";
  mixed.without_tensor(kUps).with_tensor(kUps, config.hidden, std::vector<float>(count, 0.01f),
                                         config.experts);
  const Status status = supported_by_device(mixed.done());
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_NE(status.message().find("(layer 1)"), std::string::npos) << status.message();
}

TEST_F(DeviceExperts, ThatNeedMoreSharedMemoryAreRefused) {
  if (!test::is_emulated()) GTEST_SKIP() << "a GPU has the memory that it has";
  const ModelOptions options = test::model_options();
  simt::set_shared_memory(size_t{99} << 10);
  const auto model = load_device_model(*file_, options, test::device_of_tests());
  simt::set_shared_memory(size_t{227} << 10);
  EXPECT_EQ(model.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(model.status().message().find("KiB of shared memory"), std::string::npos)
      << model.status().message();
}

// The same of matrices of heads, whose experts are of a type that needs less.
TEST_F(DeviceExperts, AreNotAllThatNeedsMemory) {
  if (!test::is_emulated()) GTEST_SKIP() << "a GPU has the memory that it has";
  ModelOptions options = test::model_options();
  const auto file =
      ConvertedFile::wrap(open_family_model("deepseek3"), {DType::kQ4_0, true}, *options.pool);
  ASSERT_TRUE(file.ok()) << file.status().message();
  simt::set_shared_memory(size_t{99} << 10);
  const auto model = load_device_model(**file, options, test::device_of_tests());
  simt::set_shared_memory(size_t{227} << 10);
  EXPECT_EQ(model.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(model.status().message().find("matrices of heads"), std::string::npos)
      << model.status().message();
}

class DeviceFamilyTree : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    file_ = open_family_model(GetParam());
    ASSERT_NE(file_, nullptr);
    vocab_ = read_model_config(*file_)->vocab;
    text_ = test::random_tokens(3, 60, vocab_);
  }

  std::unique_ptr<ModelFile> file_;
  int vocab_ = 0;
  std::vector<int32_t> text_;
};

// Nodes of a tree choose experts of their own, whatever their siblings do, and see their ancestors
// alone.
TEST_P(DeviceFamilyTree, ANodeIsTheEndOfItsChain) {
  const TokenTree tree = random_tree(4, 12, vocab_);
  Bench bench(*file_, test::device_of_tests(), 1), alone(*file_, test::device_of_tests(), 1);
  const KvCache::Id id = *bench.cache().open(), chain = *alone.cache().open();
  bench.read(id, std::span(text_).first(30), 64);
  alone.read(chain, std::span(text_).first(30), 7);
  bench.add_tree(id, text_.back(), tree);
  const std::vector<RowOutputs> rows = bench.run();
  for (int32_t node = -1; node < tree.size(); ++node) {
    std::vector<int32_t> path;
    for (const int32_t entry : path_to(tree, node)) {
      path.push_back(entry == 0 ? text_.back() : tree.nodes[static_cast<size_t>(entry) - 1].token);
    }
    alone.add_chain(chain, path);
    ASSERT_TRUE(rows[static_cast<size_t>(1 + node)] == alone.run().back()) << "node " << node;
  }
}

// A pass of more rows than few, too.
TEST_P(DeviceFamilyTree, APromptMayBeLong) {
  const int length = std::min(100, read_model_config(*file_)->context);
  const std::vector<int32_t> text = test::random_tokens(4, length, vocab_);
  Bench one(*file_, test::device_of_tests(), 1), other(*file_, test::device_of_tests(), 1);
  const auto whole = one.read(*one.cache().open(), text, length);
  const auto parts = other.read(*other.cache().open(), text, 25);
  for (size_t r = 0; r < text.size(); ++r) ASSERT_TRUE(whole[r] == parts[r]) << "row " << r;
}

// Entries of a path that was committed are moved to where a chain would have put them.
TEST_P(DeviceFamilyTree, ACommittedPathIsAChain) {
  const TokenTree tree = random_tree(5, 14, vocab_);
  Bench bench(*file_, test::device_of_tests(), 1), alone(*file_, test::device_of_tests(), 1);
  const KvCache::Id id = *bench.cache().open(), chain = *alone.cache().open();
  bench.read(id, text_, 64);
  alone.read(chain, text_, 64);
  bench.add_tree(id, 7, tree);
  bench.run();
  const std::vector<int32_t> path = path_to(tree, tree.size() - 1);
  bench.cache().commit(id, path);
  ASSERT_FALSE(bench.cache().moves().empty());
  std::vector<int32_t> taken;
  for (const int32_t entry : path) {
    taken.push_back(entry == 0 ? 7 : tree.nodes[static_cast<size_t>(entry) - 1].token);
  }
  alone.read(chain, taken, 64);
  const std::vector<int32_t> more = test::random_tokens(8, 5, vocab_);
  EXPECT_TRUE(bench.read(id, more, 5) == alone.read(chain, more, 2));
}

// One graph and one wait, and at most twelve kernels a layer, of which three are of what every row
// uses besides; latent attention has six more, experts beside a feed-forward two. Inputs of layers
// take three a pass.
TEST_P(DeviceFamilyTree, TakesOneGraphAndOneWait) {
  if (!test::is_emulated()) GTEST_SKIP() << "the emulator counts";
  Bench bench(*file_, test::device_of_tests(), 1);
  const KvCache::Id id = *bench.cache().open();
  const auto pass = [&] {
    bench.add_chain(id, std::span(text_).first(4));
    for (BatchRow& row : bench.batch().rows) row.wants_taps = row.wants_state = false;
    bench.batch().tap_layers.clear();
    const simt::Counts before = simt::counts();
    EXPECT_TRUE(bench.model().forward(bench.batch(), bench.cache()).status.ok());
    const simt::Counts taken = simt::counts() - before;
    bench.batch().clear();
    return taken;
  };
  pass();
  const simt::Counts counts = pass();
  EXPECT_EQ(counts.graph_launches, 1);
  EXPECT_EQ(counts.waits, 1);
  const ModelConfig& config = bench.model().config();
  const int of_layer = config.latent.rank > 0 ? 18 : GetParam() == "gemma4-moe" ? 14 : 12;
  EXPECT_LE(counts.launches, of_layer * config.layers + (GetParam() == "gemma4" ? 8 : 5));
}

// What is counted before a model is loaded is about what it takes.
TEST_P(DeviceFamilyTree, TakesTheMemoryThatWasCounted) {
  if (!test::is_emulated()) GTEST_SKIP() << "the emulator's memory is the model's alone";
  ModelOptions options = test::model_options();
  options.max_rows = 512;
  device::Device& device = test::device_of_tests();
  const int64_t before = device.info().free;
  const auto model = load_device_model(*file_, options, device);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const auto taken = static_cast<double>(before - device.info().free);
  const auto counted =
      static_cast<double>(device_weight_bytes(*file_) + device_working_bytes(*file_, options));
  EXPECT_NEAR(taken, counted, 0.02 * counted);
  // The same of a cache; with no number of loose rows there are records for all positions.
  constexpr int64_t kListsOfMoves = 100'000;
  for (const int64_t loose_rows : {10, 0}) {
    const int64_t free = device.info().free;
    KvCache::Creation creation;
    creation.positions = 640;
    creation.sequences = 2;
    creation.states = {loose_rows, 1};
    const auto cache = make_cache(**model, creation);
    ASSERT_TRUE(cache.ok()) << cache.status().message();
    const int64_t more = free - device.info().free -
                         KvCache::bytes_needed((*model)->cache_config(), (*cache)->creation());
    EXPECT_GE(more, 0) << loose_rows;
    EXPECT_LE(more, kListsOfMoves) << loose_rows;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, DeviceFamilyTree,
                         testing::Values("qwen2-moe", "deepseek2-lite", "deepseek3", "gemma4",
                                         "gemma4-keys-are-values", "gemma4-moe", "gpt2",
                                         "granite-hybrid", "lfm2-layer-types", "qwen35"),
                         family_test_name);

}  // namespace aerie::device_families_test
