// DeepSeek's models: forms of their files, and what of them is refused. families/ compares them
// with transformers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "kv/kv_cache.h"
#include "model/device/load_device_model.h"
#include "tests/model/batches.h"
#include "tests/model/changed_file.h"
#include "tests/model/families/family_goldens.h"
#include "tests/testing/device/test_device.h"

namespace aerie::deepseek_test {

using testing::HasSubstr;

constexpr const char* kLite = "deepseek2-lite";
constexpr const char* kThird = "deepseek3";

MetadataValue integer(int64_t value) {
  return {"i64", MetadataScalar(value)};
}

std::string full(const std::string& key) {
  return "deepseek2." + key;
}

std::vector<std::vector<float>> logits_of(Bench bench) {
  const FamilyGolden golden = read_family_golden(kLite);
  std::vector<std::vector<float>> logits;
  for (const auto& row : bench.read(*bench.cache().open(), golden.sequences.back().tokens, 64)) {
    logits.push_back(row.logits);
  }
  return logits;
}

std::vector<std::vector<float>> logits_of(const ModelFile& file) {
  return logits_of(Bench(file, kernels::best_isa(), 2, 1));
}

void expect_refused(const ModelFile& file, StatusCode code, const std::string& what) {
  const auto model = load_model(file, test::model_options());
  ASSERT_FALSE(model.ok()) << what;
  EXPECT_EQ(model.status().code(), code) << model.status().message();
  EXPECT_THAT(model.status().message(), HasSubstr(what));
}

// As converters wrote it before there was a compressed cache: heads' lengths, and one matrix.
void make_older(const ModelFile& file, const LatentAttention& shape, int heads,
                ChangedFile& older) {
  older.without_key(full("attention.key_length_mla"))
      .without_key(full("attention.value_length_mla"))
      .with_key(full("attention.head_count_kv"), integer(heads))
      .with_key(full("attention.key_length"), integer(shape.query_dim()))
      .with_key(full("attention.value_length"), integer(shape.value_dim));
  const auto rank = static_cast<size_t>(shape.rank);
  for (const std::string layer : {"blk.0.", "blk.1."}) {
    const auto floats = [&](const char* name) {
      const TensorData tensor = *file.read(layer + name);
      std::vector<float> values(static_cast<size_t>(tensor.view.elements()));
      std::memcpy(values.data(), tensor.view.data, values.size() * sizeof(float));
      return values;
    };
    const std::vector<float> keys = floats("attn_k_b.weight"), values = floats("attn_v_b.weight");
    std::vector<float> joined;
    for (int h = 0; h < heads; ++h) {
      const auto plain = static_cast<size_t>(shape.plain);
      for (size_t d = 0; d < plain; ++d) {
        for (size_t i = 0; i < rank; ++i) {
          joined.push_back(keys[(static_cast<size_t>(h) * rank + i) * plain + d]);
        }
      }
      const auto part = values.begin() + ptrdiff_t{h} * shape.value_dim * shape.rank;
      joined.insert(joined.end(), part, part + ptrdiff_t{shape.value_dim} * shape.rank);
    }
    older.without_tensor(layer + "attn_k_b.weight")
        .without_tensor(layer + "attn_v_b.weight")
        .with_tensor(layer + "attn_kv_b.weight", shape.rank, std::move(joined));
  }
}

TEST(Deepseek, OlderFilesGiveTheSame) {
  const auto file = open_family_model(kLite);
  const ModelConfig config = *read_model_config(*file);
  ChangedFile older(*file);
  make_older(*file, config.latent, config.heads, older);
  EXPECT_EQ(logits_of(older.done()), logits_of(*file));
}

// There the part of keys is kept beside the matrix of both, as floats.
TEST(Deepseek, OlderFilesGiveTheSameOnDevices) {
  const auto file = open_family_model(kLite);
  const ModelConfig config = *read_model_config(*file);
  ChangedFile older(*file);
  make_older(*file, config.latent, config.heads, older);
  device::Device& device = test::device_of_tests();
  EXPECT_EQ(logits_of(Bench(older.done(), device, 1)), logits_of(Bench(*file, device, 1)));
  const int64_t keys = int64_t{config.layers} * config.heads * config.latent.rank * 64 * 4;
  const int64_t apart = device_weight_bytes(*file), joined = device_weight_bytes(older);
  EXPECT_GE(joined, apart);
  EXPECT_LE(joined, apart + keys);
  Bench bench(older, device, 1);
  EXPECT_NEAR(static_cast<double>(bench.model().weight_bytes()), static_cast<double>(joined),
              0.1 * static_cast<double>(joined));
}

TEST(Deepseek, TheCacheHoldsOneLatentForAllHeads) {
  const ModelConfig config = *read_model_config(*open_family_model(kLite));
  EXPECT_EQ(config.latent.rank, 32);
  EXPECT_EQ(config.latent.rope, 16);
  EXPECT_EQ(KvCache::bytes_needed(config, 640), int64_t{640} * config.layers * (32 + 16) * 2);
}

TEST(Deepseek, LayersThatPredictAreLeftOut) {
  const auto file = open_family_model(kThird);
  const ModelConfig config = *read_model_config(*file);
  ChangedFile longer(*file);
  longer.with_key(full("block_count"), integer(config.layers + 1))
      .with_key(full("nextn_predict_layers"), integer(1))
      .with_tensor("blk.2.nextn.enorm.weight", 32, std::vector<float>(32, 1.0f))
      .with_tensor("blk.2.attn_norm.weight", 32, std::vector<float>(32, 1.0f));
  EXPECT_EQ(logits_of(longer.done()), logits_of(*file));
}

TEST(Deepseek, WhatTheFileSaysIsChecked) {
  const struct {
    const char* family;
    const char* key;
    int64_t value;
    StatusCode code;
    const char* what;
  } kCases[] = {
      {kLite, "expert_gating_func", 3, StatusCode::kUnsupported, "expert_gating_func"},
      {kThird, "expert_gating_func", 1, StatusCode::kUnsupported, "expert_gating_func"},
      {kThird, "expert_group_count", 3, StatusCode::kInvalidData, "expert_group_count"},
      {kThird, "expert_group_count", 65, StatusCode::kInvalidData, "expert_group_count"},
      {kThird, "expert_group_used_count", 1, StatusCode::kInvalidData, "expert_group_used_count"},
      {kThird, "expert_group_used_count", 5, StatusCode::kInvalidData, "expert_group_used_count"},
      {kLite, "expert_shared_count", 1025, StatusCode::kInvalidData, "expert_shared_count"},
      {kLite, "expert_shared_count", 1, StatusCode::kInvalidData, "ffn_gate_shexp"},
      {kLite, "expert_shared_count", 0, StatusCode::kUnsupported, "shexp"},
      {kLite, "attention.kv_lora_rank", 40, StatusCode::kUnsupported, "attention.kv_lora_rank"},
      {kLite, "attention.kv_lora_rank", 576, StatusCode::kUnsupported, "attention.kv_lora_rank"},
      {kLite, "attention.kv_lora_rank", 48, StatusCode::kInvalidData, "attn_kv_a_mqa"},
      {kLite, "rope.dimension_count", 24, StatusCode::kUnsupported, "attention.kv_lora_rank"},
      {kLite, "attention.key_length_mla", 16, StatusCode::kInvalidData, "attention.key_length_mla"},
      {kLite, "attention.value_length_mla", 48, StatusCode::kInvalidData, "attn_v_b"},
      {kLite, "attention.q_lora_rank", 48, StatusCode::kNotFound, "attn_q_a"},
      {kThird, "nextn_predict_layers", 3, StatusCode::kInvalidData, "nextn_predict_layers"},
  };
  for (const auto& [family, key, value, code, what] : kCases) {
    SCOPED_TRACE(testing::Message() << key << " " << value);
    const auto file = open_family_model(family);
    ChangedFile changed(*file);
    expect_refused(changed.with_key(full(key), integer(value)).done(), code, what);
  }
}

TEST(Deepseek, WhatIsMissingIsNamed) {
  const auto file = open_family_model(kThird);
  for (const std::string name :
       {"blk.0.attn_q_a.weight", "blk.0.attn_q_a_norm.weight", "blk.1.attn_q_b.weight",
        "blk.0.attn_kv_a_mqa.weight", "blk.0.attn_kv_a_norm.weight", "blk.0.attn_k_b.weight",
        "blk.1.attn_v_b.weight", "blk.1.ffn_up_shexp.weight"}) {
    ChangedFile changed(*file);
    expect_refused(changed.without_tensor(name).done(), StatusCode::kNotFound, name);
  }
}

// Two layers with experts, of which one lacks its correction.
TEST(Deepseek, AllCorrectionsMustBeThere) {
  const auto file = open_family_model(kThird);
  ChangedFile changed(*file);
  changed.with_tensor("blk.0.exp_probs_b.bias", 8, std::vector<float>(8, 0.0f))
      .without_tensor("blk.1.exp_probs_b.bias");
  expect_refused(changed.done(), StatusCode::kNotFound, "blk.1.exp_probs_b.bias");
}

}  // namespace aerie::deepseek_test
