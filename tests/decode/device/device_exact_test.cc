// On a device, too, speculation changes no token: every drafter, greedy and sampled, alone and with
// others, and what is drafted is judged.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/decode/exactness.h"
#include "tests/model/families/family_goldens.h"
#include "tests/testing/device/test_device.h"
#include "tests/testing/sweeps.h"

namespace aerie::device_exact_test {

class DeviceExact : public testing::TestWithParam<DraftKind> {
 protected:
  static Setting setting(int length, int chunk) {
    Setting setting;
    setting.device = &test::device_of_tests();
    setting.kind = GetParam();
    setting.length = length;
    setting.chunk = chunk;
    return setting;
  }
};

// Of the whole model by day at one temperature, of a part of it at the other.
std::vector<double> temperatures(DraftKind kind, bool is_divided) {
  return test::in_turns({0.0, 0.8}, static_cast<size_t>(kind) + (is_divided ? 1 : 0));
}

TEST_P(DeviceExact, ChangesNoToken) {
  for (const double temperature : temperatures(GetParam(), false)) {
    Setting one = setting(temperature == 0.0 ? 4 : 7, temperature == 0.0 ? 512 : 20);
    const Filter filter = temperature == 0.0 ? Filter::kNone : Filter::kAll;
    one.requests.push_back(request_with(sampling_with(temperature, filter, 5), 36, 30));
    SCOPED_TRACE(fmt::format("temperature {}", temperature));
    const Comparison comparison = compare_with_plain(one);
    EXPECT_EQ(comparison.difference, "");
    if (!is_gated(GetParam())) expect_speculation(one, comparison.speculative);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, DeviceExact, testing::ValuesIn(kDraftKinds), draft_kind_test_name);

// What the device finds in a draft model's logits is what the target says, of the same weights.
TEST(DeviceExactDrafts, OfTheTargetsWeightsAreRight) {
  Setting setting;
  setting.device = &test::device_of_tests();
  setting.kind = DraftKind::kSameModel;
  setting.requests.push_back(request_with(sampling_with(0.0, Filter::kNone, 5), 26, 20));
  const Comparison comparison = compare_with_plain(setting);
  EXPECT_EQ(comparison.difference, "");
  EXPECT_GT(comparison.speculative.of[0].stats.mean_accepted_length(), 4.5);
}

// Prompts of several lengths that come and go: positions behind 256 are another chunk of
// attention, and rows of several sequences share passes.
TEST(DeviceExactBatch, WhoeverElseIsThere) {
  Setting setting;
  setting.device = &test::device_of_tests();
  setting.kind = DraftKind::kProphetTree;
  setting.chunk = 64;
  setting.requests = mixed_requests();
  for (test::Request& request : setting.requests) request.options.max_tokens = 24;
  EXPECT_EQ(compare_with_plain(setting).difference, "");
}

// Prefixes that are kept and adopted, sequences that are suspended: entries move in the planes.
TEST(DeviceExactBatch, WithPrefixesThatAreKept) {
  Setting setting;
  setting.device = &test::device_of_tests();
  setting.kind = DraftKind::kNgramTree;
  setting.chunk = 48;
  setting.requests = mixed_requests();
  for (test::Request& request : setting.requests) request.options.max_tokens = 16;
  EXPECT_EQ(serve_twice(setting, 7).difference, "");
}

// Layers on the processor and on a device.
class DeviceExactDivided : public testing::TestWithParam<DraftKind> {};

TEST_P(DeviceExactDivided, ChangesNoToken) {
  for (const double temperature : temperatures(GetParam(), true)) {
    SCOPED_TRACE(fmt::format("temperature {}", temperature));
    Setting setting;
    setting.device = &test::device_of_tests();
    setting.first_layer = 1;
    setting.kind = GetParam();
    setting.chunk = 20;
    setting.requests.push_back(request_with(sampling_with(temperature, Filter::kNone, 5), 30, 30));
    setting.requests.push_back(request_with(sampling_with(temperature, Filter::kNone, 6), 20, 7));
    const Comparison comparison = compare_with_plain(setting);
    EXPECT_EQ(comparison.difference, "");
    if (!is_gated(GetParam())) expect_speculation(setting, comparison.speculative);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, DeviceExactDivided, testing::ValuesIn(kDraftKinds),
                         draft_kind_test_name);

// Prefixes that are kept and adopted, sequences that are suspended: entries move in the planes of
// either side.
TEST(DeviceExactBatch, DividedWithPrefixesThatAreKept) {
  Setting setting;
  setting.device = &test::device_of_tests();
  setting.first_layer = 1;
  setting.kind = DraftKind::kNgramTree;
  setting.chunk = 48;
  setting.requests = mixed_requests();
  for (test::Request& request : setting.requests) request.options.max_tokens = 16;
  EXPECT_EQ(serve_twice(setting, 7).difference, "");
}

// Rows of a verify pass choose experts of their own, whoever else is in it.
class DeviceExactExperts : public testing::TestWithParam<std::string> {};

TEST_P(DeviceExactExperts, ChangeNoToken) {
  const auto file = open_family_model(GetParam());
  ASSERT_NE(file, nullptr);
  size_t turn = test::turn_of_test();
  for (const DraftKind kind : {DraftKind::kSameModel, DraftKind::kProphetTree}) {
    for (const double temperature : test::in_turns({0.0, 0.9}, turn++)) {
      SCOPED_TRACE(fmt::format("{}, temperature {}", draft_kind_name(kind), temperature));
      Setting setting;
      setting.target = &*file;
      setting.positions = 120;
      setting.device = &test::device_of_tests();
      setting.kind = kind;
      setting.chunk = 13;
      setting.requests.push_back(
          request_with(sampling_with(temperature, Filter::kNone, 7), 30, 40));
      setting.requests.push_back(request_with(sampling_with(temperature, Filter::kNone, 8), 20, 9));
      const Comparison comparison = compare_with_plain(setting);
      EXPECT_EQ(comparison.difference, "");
      EXPECT_GT(comparison.speculative.of[0].stats.mean_accepted_length(), 1.5);
    }
  }
}

// Latents of one part of the layers are the processor's, of the other the device's; sequences are
// suspended and go on.
TEST(DeviceExactBatch, DividedWithPrefixesOfLatents) {
  const auto file = open_family_model("glm4-moe-lite");
  ASSERT_NE(file, nullptr);
  Setting setting;
  setting.target = &*file;
  setting.positions = 120;
  setting.device = &test::device_of_tests();
  setting.first_layer = 1;
  setting.kind = DraftKind::kNgramTree;
  setting.chunk = 13;
  for (const int tokens : {20, 15}) {
    const double temperature = tokens == 20 ? 0.0 : 0.9;
    setting.requests.push_back(
        request_with(sampling_with(temperature, Filter::kNone, 3), tokens, 35));
  }
  EXPECT_EQ(serve_twice(setting, 7).difference, "");
}

INSTANTIATE_TEST_SUITE_P(Families, DeviceExactExperts,
                         testing::Values("deepseek3", "gpt-oss", "granitemoe", "mixtral",
                                         "olmoe-clipped", "qwen2-moe", "qwen3-moe-dense"),
                         family_test_name);

// States of layers with linear attention are rolled back by records, whatever drafts: chains,
// trees, other exits, fewer layers, models with states of their own.
struct StatesCase {
  DraftKind kind;
  const char* family;
  double temperature;
};
constexpr StatesCase kStatesCases[] = {
    {DraftKind::kNgramTree, "qwen35", 0.0},
    {DraftKind::kLookahead, "granite-hybrid", 0.9},
    {DraftKind::kEarlyExit, "qwen35", 0.9},
    {DraftKind::kLayerSkip, "qwen3-next-layer-types", 0.0},
    {DraftKind::kSameModel, "qwen3-next-layer-types", 0.9},
    {DraftKind::kModelTree, "lfm2-layer-types", 0.9},
    {DraftKind::kProphetTree, "granite-hybrid", 0.9},
    {DraftKind::kRandomChain, "qwen35", 0.9},
};
class DeviceExactStates : public testing::TestWithParam<StatesCase> {};

void expect_same_tokens(const StatesCase& of) {
  const auto& [kind, family, temperature] = of;
  const auto file = open_family_model(family);
  ASSERT_NE(file, nullptr);
  Setting setting;
  setting.target = &*file;
  setting.positions = 120;
  setting.device = &test::device_of_tests();
  setting.kind = kind;
  setting.chunk = 13;
  setting.requests.push_back(request_with(sampling_with(temperature, Filter::kNone, 7), 24, 20));
  setting.requests.push_back(request_with(sampling_with(temperature, Filter::kNone, 8), 16, 9));
  const Comparison comparison = compare_with_plain(setting);
  EXPECT_EQ(comparison.difference, "");
  EXPECT_GT(comparison.speculative.of[0].stats.drafted, 0);
  if (kind == DraftKind::kSameModel || kind == DraftKind::kProphetTree) {
    EXPECT_GT(comparison.speculative.of[0].stats.mean_accepted_length(), 1.5);
  }
}

TEST_P(DeviceExactStates, ChangeNoToken) {
  expect_same_tokens(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Kinds, DeviceExactStates, testing::ValuesIn(kStatesCases),
                         [](const auto& one) { return draft_kind_name(one.param.kind); });

// Layers of several widths, keys and values of others and inputs of layers, which rows that go on
// from a later layer have, too; experts beside a feed-forward; layer norms and learned positions.
constexpr StatesCase kVariedCases[] = {
    {DraftKind::kNgramTree, "gemma4-keys-are-values", 0.0},
    {DraftKind::kEarlyExit, "gemma4", 0.9},
    {DraftKind::kLayerSkip, "gemma4", 0.0},
    {DraftKind::kSameModel, "gemma4-moe", 0.9},
    {DraftKind::kModelTree, "gemma4", 0.9},
    {DraftKind::kProphetTree, "gemma4", 0.9},
    {DraftKind::kLookahead, "gpt2", 0.9},
    {DraftKind::kRandomChain, "gemma4-moe", 0.0},
};
class DeviceExactVaried : public testing::TestWithParam<StatesCase> {};

TEST_P(DeviceExactVaried, ChangeNoToken) {
  expect_same_tokens(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Kinds, DeviceExactVaried, testing::ValuesIn(kVariedCases),
                         [](const auto& one) { return draft_kind_name(one.param.kind); });

// Entries move in planes of two shapes, on either side where layers are divided.
TEST(DeviceExactBatch, PrefixesOfSeveralWidthsThatAreKept) {
  const auto file = open_family_model("gemma4");
  ASSERT_NE(file, nullptr);
  for (const int first_layer : {0, 2}) {
    SCOPED_TRACE(fmt::format("from layer {}", first_layer));
    Setting setting;
    setting.target = &*file;
    setting.positions = 120;
    setting.device = &test::device_of_tests();
    setting.first_layer = first_layer;
    setting.kind = DraftKind::kNgramTree;
    setting.chunk = 13;
    for (const int tokens : {20, 15}) {
      const double temperature = tokens == 20 ? 0.0 : 0.9;
      setting.requests.push_back(
          request_with(sampling_with(temperature, Filter::kNone, 3), tokens, 35));
    }
    EXPECT_EQ(serve_twice(setting, 7).difference, "");
  }
}

// Beginnings that are kept, replies that are suspended and replies that go on where others ended;
// and layers on either side.
TEST(DeviceExactBatch, StatesOfPrefixesThatAreKept) {
  const auto file = open_family_model("qwen35");
  ASSERT_NE(file, nullptr);
  for (const int first_layer : {0, 2}) {
    SCOPED_TRACE(fmt::format("from layer {}", first_layer));
    Setting setting;
    setting.target = &*file;
    setting.positions = 256;
    setting.device = &test::device_of_tests();
    setting.first_layer = first_layer;
    setting.kind = DraftKind::kNgramTree;
    setting.chunk = 48;
    const std::vector<int32_t> common = test::random_tokens(5, 70, 96);
    for (uint64_t i = 0; i < 3; ++i) {
      test::Request request = request_with(sampling_with(0.9, Filter::kNone, i), 8);
      request.prompt = common;
      const std::vector<int32_t> own = test::random_tokens(20 + i, 12, 96);
      request.prompt.insert(request.prompt.end(), own.begin(), own.end());
      request.joins_at = static_cast<int>(20 * i);
      setting.requests.push_back(request);
    }
    const ServedTwice served = serve_twice(setting, 7);
    EXPECT_EQ(served.difference, "");
    EXPECT_GT(served.warm.reused, served.cold.reused);
  }
}

}  // namespace aerie::device_exact_test
