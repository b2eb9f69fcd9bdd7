// Trained heads on the device that computes their target: they change no token, and draft as well
// as the processor's do.

#include <fmt/format.h>
#include <gtest/gtest.h>

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

// A round is a graph and a wait for the chain, and one for the pass that verifies it.
TEST(DeviceChain, TakesOneGraphAndOneWaitARound) {
  if (!test::is_emulated()) GTEST_SKIP() << "the emulator counts";
  for (const HeadFamily family : {HeadFamily::kEagle, HeadFamily::kEagle3Pruned}) {
    const Setting setting = setting_of(family, true, DraftKind::kHead, 0.0, 40);
    std::vector<simt::Counts> counts;
    const Comparison comparison = compare_with_plain(
        setting, [&](Model& model) { return std::make_unique<Counting>(model, counts); });
    EXPECT_EQ(comparison.difference, "");
    ASSERT_GT(counts.size(), 8u);
    // Behind chunks of the prompt and the first drafts, with which weights are brought over; the
    // last pass may have no draft.
    for (size_t i = 5; i + 1 < counts.size(); ++i) {
      EXPECT_EQ(counts[i].graph_launches - counts[i - 1].graph_launches, 2) << i;
      EXPECT_EQ(counts[i].waits - counts[i - 1].waits, 2) << i;
    }
  }
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

}  // namespace aerie::device_heads_test
