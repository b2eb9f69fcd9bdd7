// Trained heads on the device that computes their target: they change no token, and draft as well
// as the processor's do.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <vector>

#include "kernels/simt/emulation.h"
#include "model/import/predictor_file.h"
#include "tests/decode/exactness.h"
#include "tests/model/families/family_goldens.h"
#include "tests/testing/device/test_device.h"
#include "tests/testing/sweeps.h"

namespace aerie::device_heads_test {

using test::easy_head;
using test::HeadFamily;

Setting setting_of(HeadFamily family, bool agrees, DraftKind kind, double temperature, int tokens) {
  Setting setting;
  setting.device = &test::device_of_tests();
  setting.head = &easy_head(family, agrees);
  setting.kind = kind;
  setting.chunk = 20;
  setting.requests.push_back(request_with(sampling_with(temperature, Filter::kNone, 3), tokens, 20,
                                          setting.head->target_vocab()));
  return setting;
}

double mean_accepted_length(const Comparison& comparison) {
  return comparison.speculative.of[0].stats.mean_accepted_length();
}

// All but MTP's with several modules.
constexpr HeadFamily kOnDevice[] = {
    HeadFamily::kEagle,       HeadFamily::kEagle3,        HeadFamily::kEagle3Pruned,
    HeadFamily::kPEagle,      HeadFamily::kMedusa,        HeadFamily::kHydra,
    HeadFamily::kHydraPrefix, HeadFamily::kMlpSpeculator, HeadFamily::kRedrafter,
    HeadFamily::kDflash,      HeadFamily::kDspark};

class DeviceHead : public testing::TestWithParam<HeadFamily> {};

TEST_P(DeviceHead, ChangesNoToken) {
  auto turn = static_cast<size_t>(GetParam());
  for (const DraftKind kind : {DraftKind::kHead, DraftKind::kHeadTree}) {
    for (const double temperature : test::in_turns({0.0, 0.8}, turn++)) {
      SCOPED_TRACE(fmt::format("{}, temperature {}", draft_kind_name(kind), temperature));
      const Setting setting = setting_of(GetParam(), true, kind, temperature, 30);
      const Comparison comparison = compare_with_plain(setting);
      EXPECT_EQ(comparison.difference, "");
      expect_speculation(setting, comparison.speculative);
      EXPECT_GT(mean_accepted_length(comparison), temperature > 0.0 ? 1.4 : 2.0);
    }
  }
}

// Notes what was launched and waited for until each pass begins.
class Counting final : public test::CheckedModel {
 public:
  Counting(Model& model, std::vector<simt::Counts>& counts)
      : CheckedModel(model, test::model_options()), counts_(counts) {}
  ForwardOutputs forward(const ForwardBatch& batch, KvCache& cache) override {
    counts_.push_back(simt::counts());
    return CheckedModel::forward(batch, cache);
  }

 private:
  std::vector<simt::Counts>& counts_;
};

// A round is a graph for the chain and one for the pass that verifies it, which is there before the
// host has seen the chain, and one wait until the device has nothing to do.
TEST(DeviceChain, TakesTwoGraphsAndOneWaitARound) {
  if (!test::is_emulated()) GTEST_SKIP() << "the emulator counts";
  for (const HeadFamily family : {HeadFamily::kEagle, HeadFamily::kEagle3Pruned}) {
    for (const int length : {4, 1}) {
      Setting setting = setting_of(family, true, DraftKind::kHead, 0.0, length > 1 ? 32 : 16);
      setting.length = length;
      SCOPED_TRACE(fmt::format("{}, chains of {}", test::head_family_name(family), length));
      std::vector<simt::Counts> counts;
      const Comparison comparison = compare_with_plain(
          setting, [&](Model& model) { return std::make_unique<Counting>(model, counts); });
      EXPECT_EQ(comparison.difference, "");
      ASSERT_GT(counts.size(), 8u);
      // Behind chunks of the prompt and the first drafts, with which weights are brought over; the
      // last pass may have no draft.
      for (size_t i = 6; i + 1 < counts.size(); ++i) {
        const simt::Counts round = counts[i] - counts[i - 1];
        EXPECT_EQ(round.graph_launches, 2) << i;
        EXPECT_EQ(round.waits, 1) << i;
        EXPECT_EQ(round.short_waits, 1) << i;
      }
    }
  }
}

// Has passes begun otherwise than they will be asked for.
class Meddling final : public test::CheckedModel {
 public:
  enum class How { kOtherRows, kOtherPositions, kFewerRows, kNotAtAll };

  Meddling(Model& model, How how, int& begun)
      : CheckedModel(model, test::model_options()), how_(how), begun_(begun) {}
  bool begin(const ForwardBatch& batch, KvCache& cache, const FoundTokens& found,
             std::span<const int32_t> rows) override {
    ForwardBatch other = batch;
    std::vector<int32_t> other_rows(rows.begin(), rows.end());
    if (how_ == How::kOtherRows) std::ranges::reverse(other_rows.begin() + 1, other_rows.end());
    if (how_ == How::kOtherPositions) other.rows.back().position -= 1;
    if (how_ == How::kFewerRows) {
      other.rows.pop_back();
      other_rows.pop_back();
    }
    const bool is_begun = CheckedModel::begin(other, cache, found, other_rows);
    begun_ += is_begun ? 1 : 0;
    return is_begun;
  }

 private:
  How how_;
  int& begun_;
};

// The tokens are those of plain decoding, whichever passes are begun.
void expect_no_meddling_changes_a_token(Setting setting, std::initializer_list<Meddling::How> hows,
                                        double least_accepted_length) {
  test::Replies plain;
  for (const Meddling::How how : hows) {
    int begun = 0;
    const Comparison comparison = compare_with_plain(
        setting, [&](Model& model) { return std::make_unique<Meddling>(model, how, begun); });
    EXPECT_EQ(comparison.difference, "") << static_cast<int>(how);
    EXPECT_GT(begun, 3);
    EXPECT_GT(mean_accepted_length(comparison), least_accepted_length);
    plain = comparison.plain;
    setting.plain = &plain;
  }
}

TEST(DeviceChain, IsVerifiedAnewWhereAnotherPassWasBegun) {
  using How = Meddling::How;
  expect_no_meddling_changes_a_token(
      setting_of(HeadFamily::kEagle3, true, DraftKind::kHead, 0.0, 24),
      {How::kOtherRows, How::kOtherPositions, How::kFewerRows, How::kNotAtAll}, 2.0);
}

// Sequences of different lengths, some of which end, and one without drafts: those that have none
// are single rows of a pass that was begun.
TEST(DeviceChain, OfManyIsVerifiedBehindTheDraft) {
  Setting setting = setting_of(HeadFamily::kEagle3, true, DraftKind::kHead, 0.0, 40);
  const SamplingParams greedy = setting.requests[0].options.sampling;
  const int vocab = setting.head->target_vocab();
  setting.requests.clear();
  for (const int tokens : {14, 9, 20, 12}) {
    setting.requests.push_back(request_with(greedy, tokens, 12 + tokens / 4, vocab));
  }
  setting.requests[2].options.speculate = false;
  int begun = 0;
  const auto wrap = [&](Model& model) {
    return std::make_unique<Meddling>(model, Meddling::How::kNotAtAll, begun);
  };
  const Comparison comparison = compare_with_plain(setting, wrap);
  EXPECT_EQ(comparison.difference, "");
  EXPECT_GT(begun, 3);
  expect_speculation(setting, comparison.speculative);
}

// Beside a text that draws nothing is begun.
TEST(DeviceChain, BesideOthersIsVerifiedAsEver) {
  Setting setting = setting_of(HeadFamily::kEagle3, true, DraftKind::kHead, 0.0, 20);
  const int vocab = setting.head->target_vocab();
  setting.requests.push_back(request_with(sampling_with(0.8, Filter::kNone, 3), 20, 20, vocab));
  int begun = 0;
  const auto wrap = [&](Model& model) {
    return std::make_unique<Meddling>(model, Meddling::How::kNotAtAll, begun);
  };
  const Comparison comparison = compare_with_plain(setting, wrap);
  EXPECT_EQ(comparison.difference, "");
  EXPECT_EQ(begun, 0);
}

std::string family_test_name(const testing::TestParamInfo<HeadFamily>& param) {
  return test::head_family_name(param.param);
}

INSTANTIATE_TEST_SUITE_P(Families, DeviceHead, testing::ValuesIn(kOnDevice), family_test_name);

// A module that came with its model, with latent attention and experts chosen in groups.
TEST(DeviceModule, ChangesNoToken) {
  const auto file = open_family_model("deepseek3");
  ASSERT_NE(file, nullptr);
  ASSERT_TRUE(has_predictors(*file));
  test::TinyHead module(*file, HeadFamily::kMtp, file->name());
  for (const double temperature : {0.0, 0.9}) {
    Setting setting;
    setting.target = &*file;
    setting.positions = 120;
    setting.device = &test::device_of_tests();
    setting.head = &module;
    setting.kind = DraftKind::kHeadTree;
    setting.chunk = 20;
    setting.requests.push_back(request_with(sampling_with(temperature, Filter::kNone, 3), 16, 20));
    const Comparison comparison = compare_with_plain(setting);
    EXPECT_EQ(comparison.difference, "");
    EXPECT_GT(comparison.speculative.of[0].stats.drafted, 0);
  }
}

// A module that came with a model of layers with linear attention: its own attention is gated.
TEST(DeviceOwnModule, ChangesNoToken) {
  const auto file = open_family_model("qwen35-vision");
  ASSERT_NE(file, nullptr);
  test::TinyHead module(*file, HeadFamily::kMtp, file->name());
  Setting setting;
  setting.target = file.get();
  setting.positions = 120;
  setting.device = &test::device_of_tests();
  setting.head = &module;
  setting.kind = DraftKind::kHeadTree;
  setting.chunk = 20;
  setting.requests.push_back(request_with(sampling_with(0.9, Filter::kNone, 3), 30, 20, 90));
  const Comparison comparison = compare_with_plain(setting);
  EXPECT_EQ(comparison.difference, "");
  EXPECT_GT(comparison.speculative.of[0].stats.drafted, 0);
}

// Its chains are verified by passes that were begun behind them, and anew where these were others:
// what those did to states is as if they had not been.
TEST(DeviceOwnModule, ChainsAreVerifiedBehindTheDraft) {
  using How = Meddling::How;
  const auto file = open_family_model("qwen35-vision");
  ASSERT_NE(file, nullptr);
  test::TinyHead module(*file, HeadFamily::kMtp, file->name());
  Setting setting;
  setting.target = file.get();
  setting.positions = 120;
  setting.device = &test::device_of_tests();
  setting.head = &module;
  setting.kind = DraftKind::kHead;
  setting.length = 3;
  setting.chunk = 20;
  setting.requests.push_back(request_with(sampling_with(0.0, Filter::kNone, 3), 20, 20, 90));
  // Of its drafts, of random weights, any may be refused.
  expect_no_meddling_changes_a_token(setting, {How::kNotAtAll, How::kOtherRows, How::kFewerRows},
                                     0.0);
}

}  // namespace aerie::device_heads_test
