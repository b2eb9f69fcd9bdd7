// gpt-oss: that what sets it apart shows, what its files may leave out, and what of them is
// refused. families/ compares it with transformers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/model/batches.h"
#include "tests/model/changed_file.h"
#include "tests/model/families/family_goldens.h"

namespace aerie::gpt_oss_test {

using testing::HasSubstr;

constexpr const char* kFamily = "gpt-oss";
constexpr kernels::Isa kReference = kernels::Isa::kReference;

// Each part becomes the one after it.
void take_the_neighbours(std::span<float> values, size_t part) {
  std::rotate(values.begin(), values.begin() + static_cast<ptrdiff_t>(part), values.end());
}

Change fill_with(float value) {
  return [value](std::span<float> values, size_t) { std::ranges::fill(values, value); };
}

double divergence(const std::vector<float>& golden, const std::vector<float>& ours) {
  const auto log_sum = [](const std::vector<float>& logits) {
    double sum = 0.0;
    for (const float x : logits) sum += std::exp(double{x});
    return std::log(sum);
  };
  const double a = log_sum(golden), b = log_sum(ours);
  double kl = 0.0;
  for (size_t i = 0; i < golden.size(); ++i) {
    const double p = double{golden[i]} - a;
    kl += std::exp(p) * (p - (double{ours[i]} - b));
  }
  return kl;
}

// Mean over the positions of the golden's longest sequence.
double divergence_from_golden(const ModelFile& file) {
  const FamilyGolden golden = read_family_golden(kFamily);
  const FamilyGolden::Sequence& sequence = golden.sequences.back();
  Bench bench(file, kReference, 2, 1);
  const auto rows = bench.read(*bench.cache().open(), sequence.tokens, 64);
  EXPECT_EQ(rows.size(), sequence.logits.size());
  double kl = 0.0;
  for (size_t r = 0; r < rows.size(); ++r) kl += divergence(sequence.logits[r], rows[r].logits);
  return kl / static_cast<double>(rows.size());
}

TEST(GptOss, WhatIsWrongShows) {
  const auto file = open_family_model(kFamily);
  EXPECT_LT(divergence_from_golden(*file), 1e-4);
  const std::pair<const char*, std::function<void(ChangedFile&)>> faults[] = {
      {"up matrices of the next expert",
       [](ChangedFile& f) { f.changed("ffn_up_exps.weight", take_the_neighbours); }},
      {"down matrices of the next expert",
       [](ChangedFile& f) { f.changed("ffn_down_exps.weight", take_the_neighbours); }},
      {"biases of the next expert",
       [](ChangedFile& f) { f.changed("ffn_gate_exps.bias", take_the_neighbours); }},
      {"the last biases of the next expert",
       [](ChangedFile& f) { f.changed("ffn_down_exps.bias", take_the_neighbours); }},
      {"gates for what they are for",
       [](ChangedFile& f) { f.swapped("ffn_gate_exps.weight", "ffn_up_exps.weight"); }},
      {"their biases exchanged",
       [](ChangedFile& f) { f.swapped("ffn_gate_exps.bias", "ffn_up_exps.bias"); }},
      {"no bias of the router",
       [](ChangedFile& f) { f.changed("ffn_gate_inp.bias", fill_with(0.0f)); }},
      {"no sinks", [](ChangedFile& f) { f.changed("attn_sinks.weight", fill_with(-1e30f)); }},
      {"sinks of the next head",
       [](ChangedFile& f) { f.changed("attn_sinks.weight", take_the_neighbours); }},
      {"sinks scaled as scores are",
       [](ChangedFile& f) {
         f.changed("attn_sinks.weight", [](std::span<float> values, size_t) {
           for (float& x : values) x *= 0.25f;
         });
       }},
      {"a window more",
       [](ChangedFile& f) {
         f.with_key("gpt-oss.attention.sliding_window", {"i64", MetadataScalar(int64_t{9})});
       }},
      {"rounded frequencies",
       [](ChangedFile& f) {
         f.with_key("gpt-oss.rope.scaling.yarn_truncate", {"bool", MetadataScalar(true)});
       }},
  };
  for (const auto& [what, plant] : faults) {
    ChangedFile changed(*file);
    plant(changed);
    EXPECT_GT(divergence_from_golden(changed.done()), 0.01) << what;
  }
}

// What other converters leave out: which layers have windows, and that nothing is rounded.
TEST(GptOss, FilesOfOtherConvertersAreTheSame) {
  const auto file = open_family_model(kFamily);
  ChangedFile plain(*file);
  for (const char* key :
       {"gpt-oss.rope.scaling.yarn_truncate", "gpt-oss.attention.sliding_window_pattern"}) {
    ASSERT_NE(file->find(key), nullptr) << key;
    plain.without_key(key);
  }
  // The name that some give to softmax of the chosen.
  plain.with_key("gpt-oss.expert_gating_func", {"i64", MetadataScalar(int64_t{3})});
  const std::vector<int32_t> tokens = read_family_golden(kFamily).sequences.back().tokens;
  Bench one(*file, kernels::best_isa(), 1, 1), other(plain.done(), kernels::best_isa(), 1, 1);
  EXPECT_TRUE(one.read(*one.cache().open(), tokens, 64) ==
              other.read(*other.cache().open(), tokens, 64));
}

void expect_refused(const ModelFile& file, StatusCode code, const std::string& what) {
  const auto model = load_model(file, test::model_options());
  EXPECT_EQ(model.status().code(), code) << model.status().message();
  EXPECT_THAT(model.status().message(), HasSubstr(what));
}

TEST(GptOss, NoTensorMayBeMissing) {
  const auto file = open_family_model(kFamily);
  for (const char* name :
       {"blk.0.attn_sinks.weight", "blk.1.attn_sinks.weight", "blk.0.post_attention_norm.weight",
        "blk.0.attn_q.bias", "blk.1.attn_output.bias", "blk.0.ffn_gate_inp.bias",
        "blk.0.ffn_gate_exps.bias", "blk.1.ffn_up_exps.bias", "blk.0.ffn_down_exps.bias",
        "blk.0.ffn_up_exps.weight", "output.weight"}) {
    ASSERT_NE(file->find_tensor(name), nullptr) << name;
    ChangedFile changed(*file);
    changed.without_tensor(name);
    if (std::string_view(name) == "output.weight") {  // the embedding would take its place
      EXPECT_TRUE(load_model(changed.done(), test::model_options()).ok());
      continue;
    }
    expect_refused(changed.done(), StatusCode::kNotFound, name);
  }
}

TEST(GptOss, WhatTheFileSaysIsChecked) {
  const auto file = open_family_model(kFamily);
  const struct {
    const char* key;
    int64_t value;
    StatusCode code;
    const char* what;
  } kCases[] = {
      {"expert_gating_func", 2, StatusCode::kUnsupported, "expert_gating_func"},
      {"expert_count", 6, StatusCode::kInvalidData, "blk.0.ffn_gate_inp"},
      {"expert_count", 0, StatusCode::kInvalidData, "expert_count"},
      {"expert_used_count", 6, StatusCode::kInvalidData, "expert_used_count"},
      {"attention.head_count", 4, StatusCode::kInvalidData, "blk.0.attn_q"},
      {"expert_shared_feed_forward_length", 32, StatusCode::kNotFound, "shexp"},
  };
  for (const auto& [key, value, code, what] : kCases) {
    ChangedFile changed(*file);
    changed.with_key(std::string("gpt-oss.") + key, {"i64", MetadataScalar(value)});
    expect_refused(changed.done(), code, what);
  }
}

}  // namespace aerie::gpt_oss_test
