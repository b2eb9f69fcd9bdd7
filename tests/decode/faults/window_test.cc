// Exactness where layers with a window have room for what is seen alone, in contexts of many pages;
// and that it notices a page that goes too early.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tests/decode/exactness.h"
#include "tests/model/families/family_goldens.h"
#include "tests/testing/nightly.h"

namespace aerie::window_test {

// Before each pass, writes over every page that no sequence needs: a row that sees one is NaN.
class Overwriting final : public Model {
 public:
  explicit Overwriting(Model& model) : model_(model) {}

  const ModelConfig& config() const override { return model_.config(); }
  int64_t weight_bytes() const override { return model_.weight_bytes(); }
  ForwardOutputs forward(const ForwardBatch& batch, KvCache& cache) override {
    if (const WindowPages* windows = cache.windows()) {
      for (int32_t page = 0; page < cache.pages(); ++page) {
        if (windows->has(page) && windows->users(page) == 0) overwrite(cache, windows->place(page));
      }
    }
    return model_.forward(batch, cache);
  }

 private:
  // Halves of all ones are no numbers.
  static void overwrite(KvCache& cache, int32_t place) {
    for (int layer = 0; layer < cache.layers(); ++layer) {
      if (!cache.has_places(layer) || cache.plane(layer) == nullptr) continue;
      const auto bytes = static_cast<size_t>(cache.layout(layer).page());
      std::byte* page = cache.plane(layer) + static_cast<size_t>(place) * bytes;
      std::fill_n(page, bytes, std::byte{0xFF});
    }
  }

  Model& model_;
};

Wrap overwriting() {
  return [](Model& model) { return std::make_unique<Overwriting>(model); };
}

const ModelFile& windowed_file() {
  static const test::TinyFile file([] {
    test::TinySpec spec;
    spec.layers = 4;
    spec.window = 70;
    return spec;
  }());
  return file.gguf();
}

// Eleven pages; the window reaches into a second or a third.
Setting long_setting(DraftKind kind, double temperature) {
  Setting setting;
  setting.target = &windowed_file();
  setting.positions = 704;
  setting.kind = kind;
  setting.chunk = 40;
  setting.max_logits = 64;
  setting.threads = 2;
  setting.requests.push_back(request_with(sampling_with(temperature, Filter::kNone, 7), 160, 260));
  return setting;
}

class LongWindows : public testing::TestWithParam<DraftKind> {};

TEST_P(LongWindows, SpeculationChangesNoToken) {
  const bool odd = static_cast<int>(GetParam()) % 2 != 0;
  for (const bool drawn : {false, true}) {
    if (!test::nightly() && drawn != odd) continue;
    Setting setting = long_setting(GetParam(), drawn ? 0.9 : 0.0);
    setting.behind = odd ? 0 : kernels::kPagePositions;
    const Comparison comparison = compare_with_plain(setting, overwriting());
    EXPECT_EQ(comparison.difference, "");
    EXPECT_GT(comparison.window_places, 0);
    EXPECT_LE(comparison.window_places, 6);
    EXPECT_EQ(comparison.speculative.of[0].tokens.size(), 160u);
    if (!is_gated(GetParam())) {
      EXPECT_GT(comparison.speculative.of[0].stats.drafted, 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Drafters, LongWindows, testing::ValuesIn(kDraftKinds),
                         draft_kind_test_name);

TEST(Windows, HeadsDraftTheSame) {
  for (const test::HeadFamily family : {test::HeadFamily::kEagle, test::HeadFamily::kMedusa}) {
    test::TinyHead head(windowed_file(), family, false);
    Setting setting = long_setting(DraftKind::kHeadTree, 0.9);
    setting.head = &head;
    const Comparison comparison = compare_with_plain(setting, overwriting());
    EXPECT_EQ(comparison.difference, "") << test::head_family_name(family);
    EXPECT_GT(comparison.window_places, 0);
    EXPECT_GT(comparison.speculative.of[0].stats.drafted, 0);
  }
}

TEST(Windows, ABatchSaysWhatEachSaysAlone) {
  for (const DraftKind kind : {DraftKind::kSameModel, DraftKind::kProphetTree}) {
    Setting setting = long_setting(kind, 0.0);
    setting.requests = mixed_requests();
    const Comparison comparison = compare_with_plain(setting, overwriting());
    EXPECT_EQ(comparison.difference, "");
    EXPECT_GT(comparison.window_places, 0);
  }
}

TEST(Windows, SuspendedAndServedAgainTheSame) {
  for (const DraftKind kind : {DraftKind::kNgram, DraftKind::kModelTree}) {
    for (const int suspends : {0, 9}) {
      Setting setting = long_setting(kind, 0.9);
      // Shared beginnings, of many pages and of parts of some.
      for (const int length : {130, 300, 450}) {
        test::Request request = setting.requests[0];
        request.prompt.resize(static_cast<size_t>(length));
        const std::vector<int32_t> own =
            test::random_tokens(static_cast<uint64_t>(length), 60, test::TinySpec{}.vocab);
        request.prompt.insert(request.prompt.end(), own.begin(), own.end());
        request.options.max_tokens = 60;
        request.joins_at = length / 4;
        setting.requests.push_back(request);
      }
      const ServedTwice served = serve_twice(setting, suspends);
      EXPECT_EQ(served.difference, "");
      EXPECT_EQ(served.cold.suspended > 0, suspends > 0);
      // Each prompt's end was kept, of which the last token is read again; every suspension is an
      // end, too, and there is not room for all.
      constexpr int kAll = 519 + 189 + 359 + 509;
      EXPECT_LE(served.warm.reused, kAll);
      EXPECT_GE(served.warm.reused, suspends == 0 ? kAll : kAll / 2);
    }
  }
}

// Families whose layers differ in what they see, over several pages.
TEST(Windows, OfEveryFamily) {
  for (const char* name : {"gemma2", "gemma3", "gemma4", "gemma4-keys-are-values", "gpt-oss",
                           "mistral", "phi3", "qwen2-window"}) {
    SCOPED_TRACE(name);
    const auto file = open_family_model(name);
    ASSERT_NE(file, nullptr);
    ASSERT_GT(read_model_config(*file)->largest_window(), 0);
    for (const DraftKind kind : {DraftKind::kProphetTree, DraftKind::kEarlyExit}) {
      // Longer than they were trained for, which is no matter here.
      Setting setting = long_setting(kind, 0.9);
      setting.target = file.get();
      setting.positions = 448;
      setting.requests[0].prompt.resize(300);
      setting.requests[0].options.max_tokens = 140;
      setting.behind = 0;
      const Comparison comparison = compare_with_plain(setting, overwriting());
      EXPECT_EQ(comparison.difference, "");
      EXPECT_GT(comparison.window_places, 0);
      EXPECT_LE(comparison.window_places, 5);
    }
  }
}

TEST(PlantedWindowFault, APageThatGoesOnePositionTooEarly) {
  for (const DraftKind kind : {DraftKind::kNgram, DraftKind::kProphetTree}) {
    Setting setting = long_setting(kind, 0.9);
    // A pass begins where the window begins with the last position of a page.
    setting.chunk = 12;
    setting.behind = -1;
    EXPECT_NE(compare_with_plain(setting, overwriting()).difference, "");
    setting.behind = 0;
    EXPECT_EQ(compare_with_plain(setting, overwriting()).difference, "");
  }
}

}  // namespace aerie::window_test
