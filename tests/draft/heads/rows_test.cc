// Heads compute a row alike whatever stands beside it, and allocate nothing while they do.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "format/json.h"
#include "format/safetensors/quantized_folder.h"
#include "tests/draft/heads/head_models.h"
#include "tests/testing/allocation_counter.h"

namespace aerie::test::rows_test {

namespace fs = std::filesystem;

constexpr const char* kFolder = "tests/golden/heads";
constexpr int kSequences = 3, kDepth = 3, kChildren = 2;

DraftSequence sequence(int place) {
  DraftSequence sequence;
  sequence.id = place;
  sequence.max_tokens = HeadModels::kPositions;
  return sequence;
}

class HeadRows : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const fs::path folder = fs::path(kFolder) / GetParam();
    const auto json = read_json(folder / "golden.json");
    ASSERT_TRUE(json.ok()) << json.status().message();
    text_ = (*json)["text"].get<std::vector<int32_t>>();
    const Json& config = (*json)["speculative_config"];
    method_ = config["method"].get<std::string>();
    ASSERT_TRUE(is_head_method(method_)) << method_;
    models_ = std::make_unique<HeadModels>(folder / (*json)["target"].get<std::string>());
    settings_.switches["parallel_drafting"] = config.value("parallel_drafting", false);
    head_ = folder / "head";
    load(head_);
    taps_ = models_->taps(text_, network_->needs().tap_layers);
  }

  void load(const std::string& head) {
    NetworkDrafterOptions options;
    options.num_tokens = kDepth * kChildren;
    options.num_steps = kDepth;
    options.top_k = kChildren;
    options.max_sequences = kSequences;
    network_ = models_->network(method_, head, options, settings_);
    ASSERT_NE(network_, nullptr);
  }

  // The tokens known to the sequence at a place.
  std::span<const int32_t> known(int place) const {
    return std::span(text_).first(text_.size() - 5 * static_cast<size_t>(place));
  }

  // Logits of two levels of these places' drafts, run together.
  std::vector<std::vector<float>> draft(const std::vector<int>& places);

  std::vector<int32_t> text_;
  std::string method_, head_;
  HeadSettings settings_;
  std::unique_ptr<HeadModels> models_;
  std::unique_ptr<DraftNetwork> network_;
  std::vector<float> taps_;
};

std::vector<std::vector<float>> HeadRows::draft(const std::vector<int>& places) {
  std::vector<LevelTree> trees(kSequences);
  std::vector<std::vector<float>> logits(kSequences);
  LevelLimits limits;
  limits.max_nodes = kDepth * kChildren;
  limits.max_depth = network_->depths() > 1 ? 1 : 2;
  limits.top_k = kChildren;
  for (const int place : places) {
    const std::span<const int32_t> tokens = known(place);
    EXPECT_TRUE(network_->open(place, sequence(place)).ok());
    DraftCommit commit;
    commit.id = place;
    commit.tokens = tokens;
    commit.rows = static_cast<int>(tokens.size()) - 1;
    const size_t width = taps_.size() / text_.size();
    commit.taps = std::span(taps_).first(static_cast<size_t>(commit.rows) * width);
    network_->observe(place, commit, {});
    EXPECT_GT(network_->start(place, tokens, kDepth * kChildren, kDepth), 0);
    trees[static_cast<size_t>(place)].start(limits);
  }
  for (int level = 0; level < limits.max_depth; ++level) {
    for (const int place : places) {
      const LevelTree& tree = trees[static_cast<size_t>(place)];
      for (const int32_t node : tree.frontier()) {
        node < 0 ? network_->add_root(place) : network_->add_node(place, tree, node);
      }
    }
    const int64_t before = allocations();
    const DraftOutputs outputs = network_->run();
    EXPECT_EQ(allocations(), before);
    int row = 0;
    for (const int place : places) {
      LevelTree& tree = trees[static_cast<size_t>(place)];
      std::vector<float>& all = logits[static_cast<size_t>(place)];
      for (const int32_t node : tree.frontier()) {
        for (int i = 0; i < (node < 0 ? network_->depths() : 1); ++i) {
          const std::span<const float> values = outputs.logits_of(row++);
          all.insert(all.end(), values.begin(), values.end());
        }
        const auto token = static_cast<int32_t>(10 * place + 3 + level);
        const LevelTree::Child children[] = {{token, 0.6}, {token + 30, 0.4}};
        tree.expand(node, children);
      }
      tree.advance();
    }
  }
  for (const int place : places) network_->close(place);
  return logits;
}

TEST_P(HeadRows, AreTheSameBitsAloneAndTogether) {
  std::vector<std::vector<float>> alone(kSequences);
  for (int place = 0; place < kSequences; ++place) {
    alone[static_cast<size_t>(place)] = draft({place})[static_cast<size_t>(place)];
  }
  const std::vector<std::vector<float>> together = draft({2, 0, 1});
  for (size_t place = 0; place < kSequences; ++place) {
    ASSERT_GE(together[place].size(), static_cast<size_t>(network_->vocab()) * 3);
    ASSERT_EQ(together[place].size(), alone[place].size());
    EXPECT_EQ(std::memcmp(together[place].data(), alone[place].data(),
                          alone[place].size() * sizeof(float)),
              0)
        << "sequence " << place;
  }
}

TEST_P(HeadRows, DraftInFewBitsFromTheFileAsConvertedAtLoad) {
  const std::vector<std::vector<float>> plain = draft({0});
  for (const DType type : {DType::kQ8_0, DType::kQ4_0}) {
    SCOPED_TRACE(dtype_info(type).name);
    settings_.dtype = type;
    load(head_);
    const std::vector<std::vector<float>> converted = draft({0});
    const fs::path folder = fs::path(testing::TempDir()) / ("aerie_bits_" + GetParam());
    fs::remove_all(folder);
    const auto written = write_quantized_folder(head_, folder, type);
    ASSERT_TRUE(written.ok()) << written.status().message();
    load(folder);
    EXPECT_EQ(draft({0}), converted);
    EXPECT_NE(converted, plain) << "or the type shows nowhere";
    fs::remove_all(folder);
  }
}

INSTANTIATE_TEST_SUITE_P(Heads, HeadRows, testing::ValuesIn(golden_cases(kFolder)),
                         golden_test_name);

}  // namespace aerie::test::rows_test
