// gpt-oss: that what sets it apart shows, what its files may leave out, and what of them is
// refused. families/ compares it with transformers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>

#include "tests/model/batches.h"
#include "tests/model/families/family_goldens.h"

namespace aerie::gpt_oss_test {

using testing::HasSubstr;

constexpr const char* kFamily = "gpt-oss";
constexpr kernels::Isa kReference = kernels::Isa::kReference;

// The floats of a tensor, and how many there are in each of its outermost parts (experts, heads).
using Change = std::function<void(std::span<float> values, size_t part)>;

// The golden model's file with something changed.
class ChangedFile final : public ModelFile {
 public:
  explicit ChangedFile(const ModelFile& file) : ModelFile("changed"), file_(file) {}

  ChangedFile& without_key(const std::string& key) {
    keys_[key] = std::nullopt;
    return *this;
  }
  ChangedFile& with_key(const std::string& key, MetadataValue value) {
    keys_[key] = std::move(value);
    return *this;
  }
  ChangedFile& without_tensor(const std::string& name) {
    left_out_ = name;
    return *this;
  }
  // Of all layers: `part` is the end of the name.
  ChangedFile& changed(const std::string& part, Change change) {
    changes_.emplace_back(part, std::move(change));
    return *this;
  }
  ChangedFile& swapped(const std::string& one, const std::string& other) {
    swapped_ = {one, other};
    return *this;
  }
  const ChangedFile& done() {
    Metadata metadata;
    for (const auto& [key, value] : file_.metadata()) {
      if (!keys_.contains(std::string(key))) metadata.emplace_back(key, value);
    }
    for (const auto& [key, value] : keys_) {
      if (value) metadata.emplace_back(key, *value);
    }
    std::vector<TensorInfo> tensors;
    for (const TensorInfo& tensor : file_.tensors()) {
      if (tensor.name != left_out_) tensors.push_back(tensor);
    }
    set_contents(std::move(metadata), std::move(tensors));
    return *this;
  }

  std::string format() const override { return "test"; }
  int64_t file_bytes() const override { return 0; }

 private:
  Expected<TensorData> read_tensor(const TensorInfo& tensor) const override {
    std::string name(tensor.name);
    for (const auto& [from, to] : {swapped_, std::pair(swapped_.second, swapped_.first)}) {
      if (from.empty() || !name.ends_with(from)) continue;
      name.replace(name.size() - from.size(), from.size(), to);
      break;
    }
    AERIE_ASSIGN_OR_RETURN(TensorData data, file_.read(name));
    for (const auto& [part, change] : changes_) {
      if (!tensor.name.ends_with(part)) continue;
      TensorData copy;
      AERIE_ASSIGN_OR_RETURN(copy.owned, Buffer::allocate(static_cast<size_t>(data.view.bytes())));
      std::memcpy(copy.owned.data(), data.view.data, copy.owned.size());
      copy.view = data.view;
      copy.view.data = copy.owned.data();
      const Shape& shape = tensor.shape;
      const int64_t inner = shape[2] > 1 ? shape[0] * shape[1] : shape[1] > 1 ? shape[0] : 1;
      change(copy.owned.as<float>(), static_cast<size_t>(inner));
      return copy;
    }
    return data;
  }

  const ModelFile& file_;
  std::map<std::string, std::optional<MetadataValue>> keys_;
  std::string left_out_;
  std::vector<std::pair<std::string, Change>> changes_;
  std::pair<std::string, std::string> swapped_;
};

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
