// Folders whose matrices are of NVFP4: what modelopt and compressed-tensors publish, and what is
// refused.
#include "model/import/weights/nvfp4_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "model/import/hugging_face_file.h"
#include "tests/model/import/hugging_face_folder.h"

namespace aerie::nvfp4_weights_test {

using test::expect_refused;
using test::FolderTensor;
using test::HuggingFaceFolder;
using test::load_folder;
using test::temporary_path;

constexpr float kFp4[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};

// How one of the packages stores them.
struct Package {
  const char* name;
  Json config;
  std::string packed, factor;
  bool divides;
};

Package modelopt() {
  return {"modelopt",
          {{"quant_method", "modelopt"},
           {"quant_algo", "NVFP4"},
           {"config_groups",
            {{"group_0",
              {{"weights",
                {{"num_bits", 4}, {"type", "float"}, {"group_size", 16}, {"dynamic", false}}}}}}}},
          ".weight",
          ".weight_scale_2",
          false};
}

Package compressed_tensors() {
  return {"compressed_tensors",
          {{"quant_method", "compressed-tensors"},
           {"format", "nvfp4-pack-quantized"},
           {"config_groups",
            {{"group_0",
              {{"weights",
                {{"num_bits", 4},
                 {"type", "float"},
                 {"group_size", 16},
                 {"strategy", "tensor_group"},
                 {"symmetric", true}}}}}}}},
          ".weight_packed",
          ".weight_global_scale",
          true};
}

FolderTensor number(const std::string& name, float value) {
  FolderTensor tensor{name, "F32", {1}, std::vector<std::byte>(sizeof(value))};
  std::memcpy(tensor.data.data(), &value, sizeof(value));
  return tensor;
}

// Puts 4-bit floats in the place of a matrix; all codes and many scales occur. Returns the weights
// without the factor.
std::vector<float> pack(HuggingFaceFolder& folder, const Package& package, const std::string& stem,
                        float factor) {
  FolderTensor& tensor = folder.tensor(stem + ".weight");
  const int64_t rows = tensor.shape[0], columns = tensor.shape[1];
  std::vector<float> values(static_cast<size_t>(rows * columns));
  FolderTensor scales{stem + ".weight_scale", "F8_E4M3", {rows, columns / 16}, {}};
  tensor.name = stem + package.packed;
  tensor.type = "U8";
  tensor.shape = {rows, columns / 2};
  tensor.data.assign(values.size() / 2, {});
  for (size_t i = 0; i < values.size(); ++i) {
    if (i % 16 == 0) scales.data.push_back(static_cast<std::byte>(i / 16 * 5 % 127));
    const size_t code = (i * 7 + i / 16 + i / 64) % 16;
    tensor.data[i / 2] |= static_cast<std::byte>(code << (i % 2 * 4));
    const float scale = f8_e4m3_to_f32(static_cast<uint8_t>(scales.data.back()));
    values[i] = scale * (code < 8 ? kFp4[code] : -kFp4[code - 8]);
  }
  folder.tensors.push_back(std::move(scales));
  folder.tensors.push_back(number(stem + package.factor, factor));
  folder.tensors.push_back(
      number(stem + (package.divides ? ".input_global_scale" : ".input_scale"), 3.0f));
  return values;
}

void expect_values(const ModelFile& file, const std::string& name,
                   const std::vector<float>& values) {
  const auto data = file.read(name);
  ASSERT_TRUE(data.ok()) << data.status().message();
  ASSERT_EQ(data->view.dtype, DType::kNVFP4);
  std::vector<float> actual(static_cast<size_t>(data->view.elements()));
  ASSERT_EQ(actual.size(), values.size());
  dequantize(data->view.dtype, data->view.data, data->view.elements(), actual.data());
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(actual[i], values[i]) << name << " " << i;
  }
}

std::vector<float> factors_of(const ModelFile& file, const std::string& name) {
  const auto data = file.read(name);
  EXPECT_TRUE(data.ok()) << data.status().message();
  if (!data.ok()) return {};
  const auto* floats = reinterpret_cast<const float*>(data->view.data);
  return {floats, floats + data->view.elements()};
}

TEST(Nvfp4Folders, AreBlocksAndAFactor) {
  for (const Package& package : {modelopt(), compressed_tensors()}) {
    SCOPED_TRACE(package.name);
    HuggingFaceFolder folder("qwen3", temporary_path("nvfp4"));
    folder.config["quantization_config"] = package.config;
    const std::vector<float> down =
        pack(folder, package, "model.layers.0.mlp.down_proj", package.divides ? 4000.0f : 0.003f);
    const std::vector<float> out =
        pack(folder, package, "model.layers.1.self_attn.o_proj", package.divides ? 3.0f : 0.3f);
    folder.write();
    const Status loaded = load_folder(folder.path());
    EXPECT_TRUE(loaded.ok()) << loaded.message();
    const auto file = open_hugging_face_folder(folder.path());
    ASSERT_TRUE(file.ok()) << file.status().message();
    expect_values(**file, "blk.0.ffn_down.weight", down);
    expect_values(**file, "blk.1.attn_output.weight", out);
    EXPECT_EQ(factors_of(**file, "blk.0.ffn_down.scale"),
              std::vector<float>{package.divides ? 1.0f / 4000.0f : 0.003f});
    EXPECT_EQ(factors_of(**file, "blk.1.attn_output.scale"),
              std::vector<float>{package.divides ? 1.0f / 3.0f : 0.3f});
    EXPECT_EQ((*file)->find_tensor("blk.1.ffn_down.scale"), nullptr);
  }
}

TEST(Nvfp4Folders, ExpertsAreStackedWithTheirFactors) {
  const Package package = modelopt();
  HuggingFaceFolder folder("mixtral", temporary_path("nvfp4_experts"));
  folder.config["quantization_config"] = package.config;
  folder.config["intermediate_size"] = 64;
  const auto layers = folder.config["num_hidden_layers"].get<int>();
  std::vector<float> stack, factors;
  for (int layer = 0; layer < layers; ++layer) {
    for (int expert = 0; expert < 8; ++expert) {
      const std::string stem = "model.layers." + std::to_string(layer) +
                               ".block_sparse_moe.experts." + std::to_string(expert) + ".";
      for (const char* wide : {"w1", "w2", "w3"}) {  // of 64 instead of 32
        FolderTensor& tensor = folder.tensor(stem + wide + ".weight");
        tensor.data.resize(2 * tensor.data.size());
        tensor.shape[std::string_view(wide) == "w2" ? 1 : 0] = 64;
      }
      const float factor = 0.001f * static_cast<float>(1 + expert);
      const std::vector<float> values = pack(folder, package, stem + "w2", factor);
      if (layer > 0) continue;
      stack.insert(stack.end(), values.begin(), values.end());
      factors.push_back(factor);
    }
  }
  folder.write();
  const Status loaded = load_folder(folder.path());
  EXPECT_TRUE(loaded.ok()) << loaded.message();
  const auto file = open_hugging_face_folder(folder.path());
  ASSERT_TRUE(file.ok()) << file.status().message();
  expect_values(**file, "blk.0.ffn_down_exps.weight", stack);
  EXPECT_EQ(factors_of(**file, "blk.0.ffn_down_exps.scale"), factors);
}

TEST(Nvfp4Folders, WhatDoesNotFitIsRefused) {
  const std::string stem = "model.layers.0.mlp.down_proj";
  const struct {
    std::function<void(HuggingFaceFolder&)> damage;
    StatusCode code;
    const char* what;
  } kCases[] = {
      {[&](auto& f) { f.remove_tensor(stem + ".weight_scale"); }, StatusCode::kInvalidData,
       "has no 'model.layers.0.mlp.down_proj.weight_scale' beside it"},
      {[&](auto& f) { f.remove_tensor(stem + ".weight_scale_2"); }, StatusCode::kInvalidData,
       "has no 'model.layers.0.mlp.down_proj.weight_scale_2' beside it"},
      {[&](auto& f) {
         f.tensor(stem + ".weight_scale").shape = {64, 2};
       },
       StatusCode::kInvalidData, "where 4-bit floats ask for F8_E4M3 with [32, 4]"},
      {[&](auto& f) { f.tensor(stem + ".weight_scale").type = "U8"; }, StatusCode::kInvalidData,
       "is of type U8"},
      {[&](auto& f) { f.tensor(stem + ".weight_scale").data[3] = std::byte{0xB0}; },
       StatusCode::kInvalidData, "negative or no number"},
      {[&](auto& f) { f.tensor(stem + ".weight_scale").data[3] = std::byte{0x7F}; },
       StatusCode::kInvalidData, "negative or no number"},
      {[&](auto& f) { f.tensor(stem + ".weight_scale_2") = number(stem + ".weight_scale_2", 0); },
       StatusCode::kInvalidData, "is not positive"},
      {[&](auto& f) {
         f.tensor(stem + ".weight_scale_2") = number(stem + ".weight_scale_2", std::nanf(""));
       },
       StatusCode::kInvalidData, "is not positive"},
      {[&](auto& f) {
         f.tensor(stem + ".weight").shape = {64, 16};
         f.tensor(stem + ".weight_scale").shape = {64, 2};
       },
       StatusCode::kUnsupported, "has rows of 32 elements"},
      {[&](auto& f) { f.tensor(stem + ".weight").shape = {32 * 32}; }, StatusCode::kInvalidData,
       "no matrix"},
      {[&](auto& f) { f.config["quantization_config"]["quant_algo"] = "W4A8_AWQ"; },
       StatusCode::kUnsupported, "'W4A8_AWQ'; of modelopt NVFP4 is supported"},
      {[&](auto& f) {
         f.config["quantization_config"]["config_groups"]["group_0"]["weights"]["group_size"] = 32;
       },
       StatusCode::kUnsupported, "in groups of 32"},
      {[&](auto& f) { f.config.erase("quantization_config"); }, StatusCode::kUnsupported,
       "is of type U8"},
  };
  for (const auto& [damage, code, what] : kCases) {
    SCOPED_TRACE(what);
    HuggingFaceFolder folder("qwen3", temporary_path("nvfp4_refused"));
    folder.config["quantization_config"] = modelopt().config;
    pack(folder, modelopt(), stem, 0.5f);
    damage(folder);
    folder.write();
    expect_refused(folder.path(), code, {what});
  }
}

}  // namespace aerie::nvfp4_weights_test
