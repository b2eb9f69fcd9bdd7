// Exactness over every family: windows, soft caps and norms after branches hold for a verify pass
// as they do for a single row.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "model/import/hugging_face_file.h"
#include "model/import/predictor_file.h"
#include "tests/decode/exactness.h"
#include "tests/model/families/family_goldens.h"
#include "tests/testing/nightly.h"

namespace aerie::families_test {

class FamilyExactness : public testing::TestWithParam<std::string> {
 public:
  // What plain decoding says is kept in `plain`, if that is given, for the next kind.
  static void check(const ModelFile& file, DraftKind kind, double temperature, kernels::KvType type,
                    test::TinyHead* head = nullptr, std::optional<test::Replies>* plain = nullptr) {
    SCOPED_TRACE(fmt::format("{}, temperature {}, cache of {}", draft_kind_name(kind), temperature,
                             kernels::kv_type_name(type)));
    Setting setting;
    setting.target = &file;
    setting.positions = std::min(read_model_config(file)->context, 160);
    setting.kind = kind;
    setting.head = head;
    setting.chunk = 13;
    setting.threads = 2;
    setting.cache_type = type;
    const int half = setting.positions / 6;
    const int tokens = setting.positions - 2 * half;
    setting.requests.push_back(
        request_with(sampling_with(temperature, Filter::kNone, 7), tokens, half));
    if (plain != nullptr && plain->has_value()) setting.plain = &**plain;
    const Comparison comparison = compare_with_plain(setting);
    if (plain != nullptr) *plain = comparison.plain;
    EXPECT_EQ(comparison.difference, "");
    const test::Reply& reply = comparison.speculative.of[0];
    EXPECT_EQ(static_cast<int>(reply.tokens.size()), tokens);
    EXPECT_EQ(comparison.speculative.passes,
              comparison.speculative.prefill_passes + comparison.speculative.rounds);
    EXPECT_GT(reply.stats.drafted, 0);
    if (kind == DraftKind::kSameModel) {
      EXPECT_EQ(reply.stats.accepted, reply.stats.drafted);
    }
    if (kind == DraftKind::kSameModel || kind == DraftKind::kProphetTree) {
      EXPECT_GT(reply.stats.mean_accepted_length(), 1.5);
    }
  }
};

TEST_P(FamilyExactness, SpeculationChangesNoToken) {
  const auto file = open_family_model(GetParam());
  ASSERT_NE(file, nullptr);
  constexpr double kTemperatures[] = {0.0, 0.9};
  const std::vector<std::string> models = family_models();
  auto turn = static_cast<size_t>(std::ranges::find(models, GetParam()) - models.begin());
  std::optional<test::Replies> plain[2];
  for (const DraftKind kind : kDraftKinds) {
    // Knows the usual vocabulary only.
    if (kind == DraftKind::kOtherModel && read_model_config(*file)->vocab != 96) continue;
    ++turn;
    for (size_t i = 0; i < 2; ++i) {
      if (!test::nightly() && i != turn % 2) continue;
      check(*file, kind, kTemperatures[i], kernels::KvType::kF16, nullptr, &plain[i]);
    }
  }
}

TEST_P(FamilyExactness, AlsoWithACacheOfEightBits) {
  const auto file = open_family_model(GetParam());
  ASSERT_NE(file, nullptr);
  check(*file, DraftKind::kSameModel, 0.0, kernels::KvType::kQ8);
  check(*file, DraftKind::kProphetTree, 0.9, kernels::KvType::kQ8);
}

// What heads take of a family: taps, its final norm, its embedding.
TEST_P(FamilyExactness, AlsoWithHeads) {
  const auto file = open_family_model(GetParam());
  ASSERT_NE(file, nullptr);
  for (const test::HeadFamily family :
       {test::HeadFamily::kEagle, test::HeadFamily::kPEagle, test::HeadFamily::kMedusa}) {
    test::TinyHead head(*file, family, false);
    SCOPED_TRACE(test::head_family_name(family));
    check(*file, DraftKind::kHeadTree, 0.9, kernels::KvType::kF16, &head);
  }
}

// The modules for multi-token prediction that came with these models, of one layer and used for
// every depth: with a feed-forward, experts one by one, experts in one tensor, latent attention.
TEST(OwnModules, SpeculationChangesNoToken) {
  for (const char* name :
       {"qwen35-vision", "qwen3-next", "qwen35-moe", "deepseek3", "glm4-moe-lite"}) {
    SCOPED_TRACE(name);
    const auto file = open_family_model(name);
    ASSERT_NE(file, nullptr);
    ASSERT_TRUE(has_predictors(*file));
    test::TinyHead module(*file, test::HeadFamily::kMtp, file->name());
    for (const double temperature : {0.0, 0.9}) {
      FamilyExactness::check(*file, DraftKind::kHeadTree, temperature, kernels::KvType::kF16,
                             &module);
    }
    FamilyExactness::check(*file, DraftKind::kHeadTree, 0.9, kernels::KvType::kQ8, &module);
  }
}

// Model and module from one file that llama.cpp's converter wrote.
TEST(OwnModules, OfALlamaCppFileToo) {
  const auto file = open_model_file("tests/golden/gguf/qwen35-moe.q8_0.gguf");
  ASSERT_TRUE(file.ok()) << file.status().message();
  test::TinyHead module(**file, test::HeadFamily::kMtp, (*file)->name());
  for (const double temperature : {0.0, 0.9}) {
    FamilyExactness::check(**file, DraftKind::kHeadTree, temperature, kernels::KvType::kF16,
                           &module);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, FamilyExactness, testing::ValuesIn(family_models()),
                         family_test_name);

}  // namespace aerie::families_test
