// A model whose first layers the processor computes and a device the others.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "kernels/simt/emulation.h"
#include "model/device/load_device_model.h"
#include "model/transformer_weights.h"
#include "tests/model/batches.h"
#include "tests/model/families/family_goldens.h"
#include "tests/testing/device/test_device.h"

namespace aerie::divided_model_test {

constexpr int kLayers = 4;

class Divided : public testing::TestWithParam<int> {
 protected:
  Divided() {
    test::TinySpec spec;
    spec.layers = kLayers;
    spec.vocab = vocab_of_files();
    file_ = std::make_unique<test::TinyFile>(spec);
  }
  Bench bench(int sequences = 1) const {
    return {file_->gguf(), test::device_of_tests(), sequences, GetParam()};
  }

  std::unique_ptr<test::TinyFile> file_;
  std::vector<int32_t> text_ = test::random_tokens(7, 330, vocab_of_files());
};

// The taps before the division are the processor's, bit for bit, and those behind it are close.
TEST_P(Divided, GivesWhatTheProcessorGives) {
  Bench processor(*file_, kernels::best_isa(), 1, 1), divided = bench();
  const std::span<const int32_t> text = std::span(text_).first(40);
  const auto expected = processor.read(*processor.cache().open(), text, 40);
  const auto actual = divided.read(*divided.cache().open(), text, 40);
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t r = 0; r < expected.size(); ++r) {
    ASSERT_EQ(actual[r].taps.size(), expected[r].taps.size());
    const size_t width = expected[r].taps.size() / (kLayers + 1);
    for (size_t i = 0; i < expected[r].taps.size(); ++i) {
      if (i < width * static_cast<size_t>(GetParam() + 1)) {
        ASSERT_EQ(actual[r].taps[i], expected[r].taps[i]) << r << ", layer " << i / width;
      } else {
        ASSERT_NEAR(actual[r].taps[i], expected[r].taps[i], 0.3) << r << ", layer " << i / width;
      }
    }
    for (size_t i = 0; i < expected[r].logits.size(); ++i) {
      ASSERT_NEAR(actual[r].logits[i], expected[r].logits[i], 0.5) << r;
    }
  }
}

TEST_P(Divided, HoweverThePromptIsCut) {
  const auto read = [&](int chunk) {
    Bench divided = bench();
    return divided.read(*divided.cache().open(), std::span(text_).first(80), chunk);
  };
  const auto expected = read(1);
  for (const int chunk : {7, 33, 80}) {
    const auto actual = read(chunk);
    for (size_t r = 0; r < expected.size(); ++r) {
      ASSERT_TRUE(actual[r] == expected[r]) << "chunks of " << chunk << ", row " << r;
    }
  }
}

// Entries of a path that was committed are moved in the planes of either.
TEST_P(Divided, ACommittedPathIsAChain) {
  const TokenTree tree = random_tree(5, 14);
  Bench divided = bench(), alone = bench();
  const KvCache::Id id = *divided.cache().open(), chain = *alone.cache().open();
  divided.read(id, std::span(text_).first(250), 64);
  alone.read(chain, std::span(text_).first(250), 64);
  divided.add_tree(id, text_.back(), tree);
  divided.run();
  const std::vector<int32_t> path = path_to(tree, tree.size() - 1);
  divided.cache().commit(id, path);
  std::vector<int32_t> taken;
  for (const int32_t entry : path) {
    taken.push_back(entry == 0 ? text_.back() : tree.nodes[static_cast<size_t>(entry) - 1].token);
  }
  alone.read(chain, taken, 64);
  const auto more = std::span(text_).subspan(300, 5);
  EXPECT_TRUE(divided.read(id, more, 5) == alone.read(chain, more, 2));
}

INSTANTIATE_TEST_SUITE_P(From, Divided, testing::Values(1, 2, 3));

// Taps in another order than the layers', of layers on either side of the division, of some rows.
TEST(DividedPass, TapsAreInTheOrderOfTheBatch) {
  test::TinySpec spec;
  spec.layers = kLayers;
  const test::TinyFile file(spec);
  Bench divided(file.gguf(), test::device_of_tests(), 2, 2);
  const std::vector<int32_t> text = test::random_tokens(7, 6, spec.vocab);
  const auto all = divided.read(*divided.cache().open(), text, 6);
  divided.add_chain(*divided.cache().open(), text);
  const std::vector<int32_t> layers = {3, 0, 2, 4, 1};
  divided.batch().tap_layers = layers;
  for (size_t r = 0; r < text.size(); ++r) divided.batch().rows[r].wants_taps = r % 2 == 1;
  const auto some = divided.run();
  for (size_t r = 0; r < text.size(); ++r) {
    if (r % 2 == 0) {
      EXPECT_TRUE(some[r].taps.empty());
      continue;
    }
    for (size_t t = 0; t < layers.size(); ++t) {
      const auto expected = all[r].taps.begin() + 64 * layers[t];
      EXPECT_TRUE(
          std::equal(expected, expected + 64, some[r].taps.begin() + 64 * static_cast<int64_t>(t)))
          << "row " << r << ", layer " << layers[t];
    }
  }
}

// What each part takes is of its own layers.
TEST(DividedPass, NothingIsThereTwice) {
  test::TinySpec spec;
  spec.layers = kLayers;
  spec.dtype = DType::kQ8_0;
  const test::TinyFile file(spec);
  const int64_t whole = device_weight_bytes(file.gguf());
  const int64_t back = device_weight_bytes(file.gguf(), {.first = 3});
  const int64_t layer = (whole - device_weight_bytes(file.gguf(), {.first = 2})) / 2;
  EXPECT_NEAR(static_cast<double>(whole - 3 * layer), static_cast<double>(back), 64.0);
  const kernels::Backend& backend = *kernels::backend(kernels::best_isa());
  EXPECT_EQ(loaded_weight_bytes(file.gguf(), backend, {.end = 3}) -
                loaded_weight_bytes(file.gguf(), backend, {.end = 2}),
            loaded_weight_bytes(file.gguf(), backend, {.end = 2}) -
                loaded_weight_bytes(file.gguf(), backend, {.end = 1}));
  EXPECT_FALSE(is_of_layers("blk.12.ffn_up.weight", {.first = 0, .end = 12}));
  EXPECT_TRUE(is_of_layers("blk.11.ffn_up.weight", {.first = 0, .end = 12}));
  EXPECT_FALSE(is_of_layers("output_norm.weight", {.first = 0, .end = 12}));
  EXPECT_TRUE(is_of_layers("output.weight", {.first = 12}));
}

// A thin model whose last layers are skipped has all its planes with the processor.
TEST(DividedPass, MayHaveNoPlaneOnTheDevice) {
  test::TinySpec spec;
  spec.layers = kLayers;
  const test::TinyFile file(spec);
  Bench divided(file.gguf(), test::device_of_tests(), 1, 3);
  Model& model = divided.model();
  const std::vector<int32_t> skipped = {3};
  model.detach(divided.cache());
  divided.cache() =
      KvCache::create(model.config().without(skipped), {.positions = Bench::kPositions,
                                                        .sequences = 1,
                                                        .planes = model.cache_planes(),
                                                        .here = 3})
          .value();
  ASSERT_TRUE(model.attach(divided.cache(), skipped).ok());
  const KvCache::Id id = *divided.cache().open();
  const auto run = [&](const std::function<void()>& add) {
    add();
    divided.batch().skipped_layers = skipped;
    divided.batch().tap_layers.clear();
    return divided.run();
  };
  const TokenTree tree = random_tree(5, 14, spec.vocab);
  run([&] { divided.add_tree(id, 7, tree); });
  divided.cache().commit(id, path_to(tree, tree.size() - 1));  // entries are moved
  ASSERT_FALSE(divided.cache().moves().empty());
  const std::vector<int32_t> more = {5};
  run([&] { divided.add_chain(id, more); });
  // And the device goes on.
  run([&] { divided.add_chain(id, more); });
}

// Layers that read another's keys and values are with that one; and the inputs of layers, which a
// device makes of tokens whose stream it does not begin.
TEST(DividedPass, KeysOfOthersAreOnOneSide) {
  const auto file = open_family_model("gemma4");
  ASSERT_NE(file, nullptr);
  const std::vector<int32_t> text = test::random_tokens(7, 40, 96);
  Bench processor(*file, kernels::best_isa(), 1, 1);
  const auto expected = processor.read(*processor.cache().open(), text, 40);
  Bench one(*file, test::device_of_tests(), 1, 3), other(*file, test::device_of_tests(), 1, 3);
  const auto whole = one.read(*one.cache().open(), text, 40);
  const auto parts = other.read(*other.cache().open(), text, 7);
  for (size_t r = 0; r < text.size(); ++r) {
    ASSERT_TRUE(whole[r] == parts[r]) << r;
    for (size_t i = 0; i < expected[r].logits.size(); ++i) {
      ASSERT_NEAR(whole[r].logits[i], expected[r].logits[i], 0.15) << r;
    }
  }
  const auto refused = load_device_model(*file, test::model_options(), test::device_of_tests(), 4);
  EXPECT_EQ(refused.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(refused.status().message().find("from 4 on"), std::string::npos)
      << refused.status().message();
}

// Experts of either part are counted.
TEST(DividedPass, CountsExpertsOfBoth) {
  const auto file = open_family_model("qwen3-moe");
  ASSERT_NE(file, nullptr);
  Bench divided(*file, test::device_of_tests(), 1, 1);
  const ModelConfig& config = divided.model().config();
  const std::vector<int32_t> one = {3};
  divided.add_chain(*divided.cache().open(), one);
  const ForwardOutputs out = divided.model().forward(divided.batch(), divided.cache());
  ASSERT_TRUE(out.status.ok()) << out.status.message();
  EXPECT_EQ(out.experts, config.layers * config.used_experts);
}

}  // namespace aerie::divided_model_test
