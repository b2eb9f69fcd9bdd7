// Gemma 4: what its files may say in two ways, and what of them is refused. families/ compares it
// with transformers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/model/batches.h"
#include "tests/model/changed_file.h"
#include "tests/model/families/family_goldens.h"

namespace aerie::gemma4_test {

using testing::HasSubstr;

constexpr const char* kFamily = "gemma4";
constexpr const char* kExperts = "gemma4-moe";
constexpr StatusCode kInvalid = StatusCode::kInvalidData;
constexpr StatusCode kUnsupported = StatusCode::kUnsupported;

std::vector<std::vector<float>> logits_of(const ModelFile& file) {
  const FamilyGolden golden = read_family_golden(kExperts);
  Bench bench(file, kernels::best_isa(), 1, 1);
  std::vector<std::vector<float>> logits;
  for (const auto& row : bench.read(*bench.cache().open(), golden.sequences[1].tokens, 64)) {
    logits.push_back(row.logits);
  }
  return logits;
}

std::vector<float> floats_of(const ModelFile& file, const std::string& name) {
  const TensorData tensor = *file.read(name);
  std::vector<float> values(static_cast<size_t>(tensor.view.elements()));
  std::memcpy(values.data(), tensor.view.data, values.size() * sizeof(float));
  return values;
}

void expect_refused(const ModelFile& file, StatusCode code, const std::string& what) {
  const auto model = load_model(file, test::model_options());
  ASSERT_FALSE(model.ok()) << what;
  EXPECT_EQ(model.status().code(), code) << model.status().message();
  EXPECT_THAT(model.status().message(), HasSubstr(what));
}

// llama.cpp's converter writes an expert's gates and ups as one matrix.
TEST(Gemma4, GatesAndUpsOfExpertsMayBeOneTensor) {
  const auto file = open_family_model(kExperts);
  ASSERT_NE(file, nullptr);
  ChangedFile joined(*file);
  for (const std::string layer : {"blk.0.", "blk.1.", "blk.2."}) {
    const std::string gates = layer + "ffn_gate_exps.weight", ups = layer + "ffn_up_exps.weight";
    const std::vector<float> gate = floats_of(*file, gates), up = floats_of(*file, ups);
    const Shape& shape = file->find_tensor(gates)->shape;
    const int64_t part = shape[0] * shape[1];
    std::vector<float> both;
    for (int64_t expert = 0; expert < shape[2]; ++expert) {
      const auto begin = expert * part;
      both.insert(both.end(), gate.begin() + begin, gate.begin() + begin + part);
      both.insert(both.end(), up.begin() + begin, up.begin() + begin + part);
    }
    joined.without_tensor(gates).without_tensor(ups).with_tensor(
        layer + "ffn_gate_up_exps.weight", shape[0], std::move(both), shape[2]);
  }
  EXPECT_EQ(logits_of(joined.done()), logits_of(*file));
}

TEST(Gemma4, AScaleOfALayerMayBeMissing) {
  const auto file = open_family_model(kExperts);
  ASSERT_NE(file, nullptr);
  const std::string scale = "blk.1.layer_output_scale.weight";
  ChangedFile without(*file), one(*file);
  without.without_tensor(scale);
  one.without_tensor(scale).with_tensor(scale, 1, {1.0f});
  EXPECT_EQ(logits_of(without.done()), logits_of(one.done()));
  EXPECT_NE(logits_of(without.done()), logits_of(*file));
}

TEST(Gemma4, WhatTheFileSaysIsChecked) {
  const struct {
    const char* key;
    int64_t value;
    StatusCode code;
    const char* what;
  } kCases[] = {
      {"attention.shared_kv_layers", 7, kInvalid, "attention.shared_kv_layers"},
      // Then no layer without a window is left that keeps keys.
      {"attention.shared_kv_layers", 6, kInvalid, "no layer before them is of the kind of layer 1"},
      {"attention.key_length", 528, kUnsupported, "attention.value_length"},
      {"attention.key_length_swa", 24, kUnsupported, "attention.value_length_swa"},
      {"attention.value_length_swa", 32, kUnsupported, "attention.value_length_swa"},
      {"attention.head_count_kv", 3, kInvalid, "attention.head_count_kv"},
      {"rope.dimension_count_swa", 15, kInvalid, "rope.dimension_count_swa"},
      {"embedding_length_per_layer_input", 8, kUnsupported, "embedding_length_per_layer_input"},
      {"embedding_length_per_layer_input", 32, kInvalid, "per_layer_token_embd"},
      {"feed_forward_length", 48, kInvalid, "ffn_gate"},
  };
  for (const auto& [key, value, code, what] : kCases) {
    SCOPED_TRACE(testing::Message() << key << " " << value);
    const auto file = open_family_model(kFamily);
    ChangedFile changed(*file);
    changed.with_key(std::string("gemma4.") + key, {"i64", MetadataScalar(value)});
    expect_refused(changed.done(), code, what);
  }
}

TEST(Gemma4, NoTensorMayBeMissing) {
  for (const char* name : {"blk.0.inp_gate.weight", "blk.4.attn_k.weight", "blk.6.post_norm.weight",
                           "per_layer_model_proj.weight", "blk.5.attn_q_norm.weight"}) {
    SCOPED_TRACE(name);
    const auto file = open_family_model(kFamily);
    ChangedFile changed(*file);
    expect_refused(changed.without_tensor(name).done(), StatusCode::kNotFound, name);
  }
  const auto file = open_family_model(kExperts);
  for (const char* name : {"blk.1.ffn_gate_inp.scale", "blk.2.pre_ffw_norm_2.weight"}) {
    ChangedFile changed(*file);
    expect_refused(changed.without_tensor(name).done(), StatusCode::kNotFound, name);
  }
}

}  // namespace aerie::gemma4_test
