// Folders whose matrices are packed integers of 4 bits: what compressed-tensors publishes, what is
// written here, and what is refused.
#include "model/import/weights/int4_matrix.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <functional>

#include "base/thread_pool.h"
#include "format/converted_file.h"
#include "format/safetensors/int4_weights.h"
#include "format/safetensors/quantized_folder.h"
#include "model/import/hugging_face_file.h"
#include "tests/model/import/hugging_face_folder.h"

namespace aerie::int4_matrix_test {

namespace fs = std::filesystem;
using test::expect_refused;
using test::FolderTensor;
using test::HuggingFaceFolder;
using test::load_folder;
using test::temporary_path;

const std::string kStem = "model.layers.0.mlp.down_proj";

Json scheme(int64_t group) {
  return {{"quant_method", "compressed-tensors"},
          {"format", "pack-quantized"},
          {"config_groups",
           {{"group_0",
             {{"weights",
               {{"num_bits", 4},
                {"type", "int"},
                {"symmetric", true},
                {"strategy", "group"},
                {"actorder", nullptr},
                {"group_size", group}}}}}}}};
}

// Puts packed integers in the place of a matrix; all codes occur. Returns the weights. `type`: of
// the scales.
std::vector<float> pack(HuggingFaceFolder& folder, const std::string& stem, int64_t group,
                        const std::string& type) {
  FolderTensor& tensor = folder.tensor(stem + ".weight");
  const int64_t rows = tensor.shape[0], columns = tensor.shape[1];
  std::vector<float> values(static_cast<size_t>(rows * columns));
  FolderTensor scales{stem + ".weight_scale", type, {rows, columns / group}, {}};
  tensor.name = stem + ".weight_packed";
  tensor.type = "I32";
  tensor.shape = {rows, columns / 8};
  tensor.data.assign(values.size() / 2, {});
  float scale = 0.0f;
  for (size_t i = 0; i < values.size(); ++i) {
    if (i % static_cast<size_t>(group) == 0) {
      // Of few bits, so that all types hold them; some are negative.
      scale = static_cast<float>(static_cast<int>(i / static_cast<size_t>(group) % 7) - 3) / 64.0f;
      const uint16_t half = type == "F16" ? f32_to_f16(scale) : f32_to_bf16(scale);
      const auto* bytes = reinterpret_cast<const std::byte*>(&half);
      scales.data.insert(scales.data.end(), bytes, bytes + sizeof(half));
    }
    const size_t code = (i * 7 + i / 16 + i / 64) % 16;
    tensor.data[i / 2] |= static_cast<std::byte>(code << (i % 2 * 4));
    values[i] = scale * static_cast<float>(static_cast<int>(code) - 8);
  }
  FolderTensor shape{stem + ".weight_shape", "I64", {2}, std::vector<std::byte>(16)};
  const int64_t sizes[] = {rows, columns};
  std::memcpy(shape.data.data(), sizes, sizeof(sizes));
  folder.tensors.push_back(std::move(scales));
  folder.tensors.push_back(std::move(shape));
  return values;
}

void expect_values(const ModelFile& file, const std::string& name, DType type,
                   const std::vector<float>& values) {
  const auto data = file.read(name);
  ASSERT_TRUE(data.ok()) << data.status().message();
  ASSERT_EQ(data->view.dtype, type) << name;
  std::vector<float> actual(static_cast<size_t>(data->view.elements()));
  dequantize(data->view.dtype, data->view.data, data->view.elements(), actual.data());
  EXPECT_EQ(actual, values) << name;
}

TEST(Int4Folders, AreBlocksOfFourBitsOrFloats) {
  for (const char* type : {"F16", "BF16"}) {
    HuggingFaceFolder folder("qwen3", temporary_path("int4"));
    folder.config["quantization_config"] = scheme(32);
    const auto down = pack(folder, kStem, 64, type);
    const auto out = pack(folder, "model.layers.1.self_attn.o_proj", 32, type);
    const auto small = pack(folder, "model.layers.1.mlp.down_proj", 16, type);
    folder.write();
    const Status loaded = load_folder(folder.path());
    EXPECT_TRUE(loaded.ok()) << loaded.message();
    const auto file = open_hugging_face_folder(folder.path());
    ASSERT_TRUE(file.ok()) << file.status().message();
    expect_values(**file, "blk.0.ffn_down.weight", DType::kQ4_0, down);
    expect_values(**file, "blk.1.attn_output.weight", DType::kQ4_0, out);
    expect_values(**file, "blk.1.ffn_down.weight", DType::kF32, small);
  }
}

TEST(Int4Folders, ModelsWrittenSoAreThoseConvertedAtLoad) {
  // Llama turns the rows of queries and keys, Qwen2 has biases, Mixtral experts by themselves.
  for (const std::string family : {"llama3", "qwen2", "mixtral"}) {
    SCOPED_TRACE(family);
    const std::string from = "tests/golden/families/" + family;
    const fs::path folder =
        fs::path(testing::TempDir()) / fmt::format("aerie_{}_int4_{}", getpid(), family);
    fs::remove_all(folder);
    const auto written = write_quantized_folder(from, folder, DType::kQ4_0);
    ASSERT_TRUE(written.ok()) << written.status().message();
    const auto stored = open_hugging_face_folder(folder);
    ASSERT_TRUE(stored.ok()) << stored.status().message();
    auto original = open_hugging_face_folder(from);
    ASSERT_TRUE(original.ok()) << original.status().message();
    ThreadPool pool(1);
    const auto converted = ConvertedFile::wrap(*std::move(original), {DType::kQ4_0, false}, pool);
    ASSERT_TRUE(converted.ok()) << converted.status().message();
    int blocks = 0;
    for (const TensorInfo& tensor : (*converted)->tensors()) {
      SCOPED_TRACE(tensor.name);
      const auto one = (*stored)->read(tensor.name), other = (*converted)->read(tensor.name);
      ASSERT_TRUE(one.ok()) << one.status().message();
      ASSERT_TRUE(other.ok()) << other.status().message();
      EXPECT_EQ(one->view.shape, other->view.shape);
      // Conversion keeps output matrices in 8 bits.
      if (other->view.dtype == DType::kQ8_0) continue;
      ASSERT_EQ(one->view.dtype, other->view.dtype);
      EXPECT_EQ(
          std::memcmp(one->view.data, other->view.data, static_cast<size_t>(one->view.bytes())), 0);
      blocks += one->view.dtype == DType::kQ4_0 ? 1 : 0;
    }
    EXPECT_GE(blocks, 8);
    fs::remove_all(folder);
  }
}

TEST(Int4Folders, WhatDoesNotFitIsRefused) {
  const struct {
    std::function<void(HuggingFaceFolder&)> damage;
    StatusCode code;
    const char* what;
  } kCases[] = {
      {[&](auto& f) { f.remove_tensor(kStem + ".weight_scale"); }, StatusCode::kInvalidData,
       "has no 'model.layers.0.mlp.down_proj.weight_scale' beside it"},
      {[&](auto& f) {
         f.tensor(kStem + ".weight_scale").shape = {32, 2, 1};
       },
       StatusCode::kInvalidData, "are no scales of"},
      {[&](auto& f) { f.tensor(kStem + ".weight_scale").type = "I16"; }, StatusCode::kInvalidData,
       "are no scales of"},
      {[&](auto& f) { f.tensor(kStem + ".weight_shape").data[8] = std::byte{9}; },
       StatusCode::kInvalidData, "and there are 32 rows of 64 packed columns"},
      {[&](auto& f) {
         FolderTensor zeros = f.tensor(kStem + ".weight_scale");
         zeros.name = kStem + ".weight_zero_point";
         f.tensors.push_back(std::move(zeros));
       },
       StatusCode::kUnsupported, "weight_zero_point' beside it; symmetric integers"},
      {[&](auto& f) {
         f.config["quantization_config"]["config_groups"]["group_0"]["weights"]["num_bits"] = 8;
       },
       StatusCode::kUnsupported, "is 8 of type int"},
      {[&](auto& f) {
         f.config["quantization_config"]["config_groups"]["group_0"]["weights"]["symmetric"] =
             false;
       },
       StatusCode::kUnsupported, "symmetric integers"},
      {[&](auto& f) {
         f.config["quantization_config"]["config_groups"]["group_0"]["weights"]["actorder"] =
             "group";
       },
       StatusCode::kUnsupported, "columns in their order"},
      {[&](auto& f) { f.config["quantization_config"]["format"] = "marlin-24"; },
       StatusCode::kUnsupported,
       "is 'marlin-24'; float-quantized, int-quantized, naive-quantized, pack-quantized"},
      {[&](auto& f) { f.config.erase("quantization_config"); }, StatusCode::kUnsupported,
       "weight_packed"},
  };
  for (const auto& [damage, code, what] : kCases) {
    SCOPED_TRACE(what);
    HuggingFaceFolder folder("qwen3", temporary_path("int4_refused"));
    folder.config["quantization_config"] = scheme(32);
    pack(folder, kStem, 32, "F16");
    damage(folder);
    folder.write();
    expect_refused(folder.path(), code, {what});
  }
}

TEST(Int4Folders, RowsAreCheckedBeforeTheyAreWritten) {
  std::vector<float> values(64, 0.5f);
  EXPECT_TRUE(quantize_rows_int4(values, 64).ok());
  EXPECT_EQ(quantize_rows_int4(values, 48).status().code(), StatusCode::kInvalidArgument);
  values[40] = 1e30f;
  EXPECT_EQ(quantize_rows_int4(values, 32).status().code(), StatusCode::kInvalidData);
  EXPECT_EQ(write_quantized_folder("tests/golden/families/qwen2", "/nowhere", DType::kQ4_1)
                .status()
                .code(),
            StatusCode::kInvalidArgument);
}

}  // namespace aerie::int4_matrix_test
