// Weights as integers with scales: that they are Q8_0, and folders of them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "format/safetensors/int8_weights.h"
#include "format/safetensors/quantized_folder.h"
#include "format/safetensors/safetensors.h"
#include "tensor/quantize.h"
#include "tests/format/safetensors/safetensors_writer.h"

namespace aerie::test::int8_test {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

std::vector<float> random_values(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    const double uniform = static_cast<double>(random() >> 11) * 0x1.0p-52 - 1.0;
    value = static_cast<float>(std::ldexp(uniform, static_cast<int>(random() % 24) - 20));
  }
  return values;
}

// As Q8_0 has them.
std::vector<std::byte> blocks_of(const Int8Rows& rows) {
  std::vector<std::byte> blocks;
  for (size_t i = 0; i < rows.scales.size(); ++i) {
    const auto scale = std::as_bytes(std::span(rows.scales)).subspan(2 * i, 2);
    const auto codes = std::as_bytes(std::span(rows.codes)).subspan(32 * i, 32);
    blocks.insert(blocks.end(), scale.begin(), scale.end());
    blocks.insert(blocks.end(), codes.begin(), codes.end());
  }
  return blocks;
}

std::vector<std::byte> quantized(const std::vector<float>& values) {
  const auto count = static_cast<int64_t>(values.size());
  std::vector<std::byte> blocks(static_cast<size_t>(dtype_bytes(DType::kQ8_0, count)));
  quantize(DType::kQ8_0, values.data(), count, blocks.data());
  return blocks;
}

TEST(Int8Weights, AreThoseOfQ8_0) {
  std::vector<float> values = random_values(size_t{7} * 96, 1);
  std::fill_n(values.begin() + 32, 32, 0.0f);
  values[64] = 65504.0f * 127.0f;
  values[96] = std::numeric_limits<float>::denorm_min();
  const auto rows = quantize_rows_int8(values, 96);
  ASSERT_TRUE(rows.ok()) << rows.status().message();
  ASSERT_EQ(rows->codes.size(), values.size());
  ASSERT_EQ(rows->scales.size(), values.size() / 32);
  EXPECT_EQ(blocks_of(*rows), quantized(values));
  EXPECT_TRUE(quantize_rows_int8({}, 32).ok());
}

TEST(Int8Weights, RefusesOtherRowsAndOtherValues) {
  std::vector<float> values = random_values(192, 2);
  for (const int64_t k : {int64_t{-32}, int64_t{0}, int64_t{48}, int64_t{128}}) {
    EXPECT_EQ(quantize_rows_int8(values, k).status().code(), StatusCode::kInvalidArgument) << k;
  }
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity(), 1e30f}) {
    values[70] = bad;
    const Status status = quantize_rows_int8(values, 64).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidData);
    EXPECT_THAT(status.message(), HasSubstr(fmt::format("element 6 of row 1 is {}", bad)));
  }
}

class Int8Folder : public testing::Test {
 protected:
  Int8Folder()
      : base_(fs::path(testing::TempDir()) /
              fmt::format("aerie_{}_{}", getpid(),
                          testing::UnitTest::GetInstance()->current_test_info()->name())),
        from_(base_ / "from"),
        to_(base_ / "to") {
    fs::remove_all(base_);
    fs::create_directories(from_);
  }
  ~Int8Folder() override { fs::remove_all(base_); }

  void write(const SafetensorsWriter& writer, const std::string& name = "model.safetensors") const {
    ASSERT_TRUE(writer.write(from_ / name).ok());
  }
  void write_text(const std::string& name, const std::string& text) const {
    std::ofstream(from_ / name, std::ios::binary) << text;
  }
  void expect_refused(StatusCode code, const std::string& part) const {
    const Status status = write_quantized_folder(from_, to_, DType::kQ8_0).status();
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_THAT(status.message(), HasSubstr(part));
    EXPECT_FALSE(fs::exists(to_));
  }

  fs::path base_, from_, to_;
};

std::vector<std::byte> bytes_of(const SafetensorsTensor& tensor) {
  return {tensor.data.begin(), tensor.data.end()};
}

std::vector<std::byte> converted(DType type, const std::vector<float>& values) {
  const auto count = static_cast<int64_t>(values.size());
  std::vector<std::byte> bytes(static_cast<size_t>(dtype_bytes(type, count)));
  quantize(type, values.data(), count, bytes.data());
  return bytes;
}

TEST_F(Int8Folder, MatricesAreInEightBitsAndTheRestIsKept) {
  const std::vector<float> wide = random_values(3 * 64, 3), narrow = random_values(4 * 6, 4);
  const std::vector<float> norm = random_values(64, 5);
  const std::vector<int64_t> ids = {0, 7, -1};
  write(SafetensorsWriter()
            .add_metadata("writer", "a test")
            .add("wide.weight", {3, 64}, wide)
            .add("half.weight", "BF16", {3, 64}, converted(DType::kBF16, wide))
            .add("narrow.weight", {4, 6}, narrow)
            .add("narrow_half.weight", "BF16", {4, 6}, converted(DType::kBF16, narrow))
            .add("norm.weight", {64}, norm)
            .add("row.weight", {1, 64}, norm)
            .add("mask", {2, 32}, norm)
            .add("deep.weight", {1, 2, 32}, norm)
            .add("d2t", "I64", {3}, std::as_bytes(std::span(ids))));
  write_text("config.json", R"({"model_type": "llama", "rms_norm_eps": 1e-06, "nothing": null})");
  const auto written = write_quantized_folder(from_, to_, DType::kQ8_0);
  ASSERT_TRUE(written.ok()) << written.status().message();
  EXPECT_EQ(static_cast<uintmax_t>(*written), fs::file_size(to_ / "model.safetensors"));
  const auto file = SafetensorsFile::open(to_ / "model.safetensors");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_THAT(file->metadata(),
              UnorderedElementsAre(std::pair("writer", "a test"), std::pair("format", "pt")));
  EXPECT_EQ(file->tensors().size(), 11u);
  const auto expect = [&](const char* name, SafetensorsType type, std::vector<int64_t> shape,
                          const std::vector<std::byte>& bytes) {
    SCOPED_TRACE(name);
    const SafetensorsTensor* tensor = file->find(name);
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(tensor->type, type);
    EXPECT_EQ(tensor->shape, shape);
    EXPECT_EQ(bytes_of(*tensor), bytes);
  };
  const auto as_bytes = [](const auto& values) {
    const auto bytes = std::as_bytes(std::span(values));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  std::vector<float> rounded;
  for (const float value : wide) rounded.push_back(bf16_to_f32(f32_to_bf16(value)));
  const Int8Rows rows = *quantize_rows_int8(wide, 64), half = *quantize_rows_int8(rounded, 64);
  expect("wide.weight", SafetensorsType::kI8, {3, 64}, as_bytes(rows.codes));
  expect("wide.weight_scale", SafetensorsType::kF16, {3, 2}, as_bytes(rows.scales));
  expect("half.weight", SafetensorsType::kI8, {3, 64}, as_bytes(half.codes));
  expect("half.weight_scale", SafetensorsType::kF16, {3, 2}, as_bytes(half.scales));
  expect("narrow.weight", SafetensorsType::kF16, {4, 6}, converted(DType::kF16, narrow));
  expect("narrow_half.weight", SafetensorsType::kBF16, {4, 6}, converted(DType::kBF16, narrow));
  expect("norm.weight", SafetensorsType::kF32, {64}, as_bytes(norm));
  expect("row.weight", SafetensorsType::kF32, {1, 64}, as_bytes(norm));
  expect("mask", SafetensorsType::kF32, {2, 32}, as_bytes(norm));
  expect("deep.weight", SafetensorsType::kF32, {1, 2, 32}, as_bytes(norm));
  expect("d2t", SafetensorsType::kI64, {3}, as_bytes(ids));

  const auto config = read_json(to_ / "config.json");
  ASSERT_TRUE(config.ok()) << config.status().message();
  Json kept = *config;
  kept.erase("quantization_config");
  EXPECT_EQ(kept,
            Json::parse(R"({"model_type": "llama", "rms_norm_eps": 1e-06, "nothing": null})"));
  const Json& how = config->at("quantization_config");
  EXPECT_EQ(how["quant_method"], "compressed-tensors");
  EXPECT_EQ(how["format"], "int-quantized");
  EXPECT_EQ(how["config_groups"]["group_0"]["weights"]["group_size"], 32);
  EXPECT_THAT(how["ignore"], ElementsAre("narrow", "narrow_half"));
}

TEST_F(Int8Folder, MatricesOfManyRowsAreWrittenInParts) {
  const std::vector<float> values = random_values(size_t{9000} * 64, 6);
  write(SafetensorsWriter().add("a.weight", {9000, 64}, values));
  ASSERT_TRUE(write_quantized_folder(from_ / "model.safetensors", to_, DType::kQ8_0).ok());
  const auto file = SafetensorsFile::open(to_ / "model.safetensors");
  ASSERT_TRUE(file.ok()) << file.status().message();
  const auto codes = file->find("a.weight")->data, scales = file->find("a.weight_scale")->data;
  Int8Rows rows;
  rows.codes.resize(codes.size());
  rows.scales.resize(scales.size() / 2);
  std::memcpy(rows.codes.data(), codes.data(), codes.size());
  std::memcpy(rows.scales.data(), scales.data(), scales.size());
  EXPECT_EQ(blocks_of(rows), quantized(values));
}

TEST_F(Int8Folder, OtherFilesAreCopiedButForWeights) {
  write(SafetensorsWriter().add("a.weight", {2, 32}, random_values(64, 7)), "a.safetensors");
  write(SafetensorsWriter().add("b.weight", {2, 32}, random_values(64, 8)), "b.safetensors");
  write_text("model.safetensors.index.json",
             R"({"weight_map": {"a.weight": "a.safetensors", "b.weight": "b.safetensors"}})");
  for (const char* name : {"tokenizer.json", "README.md", ".gitattributes", "head.pt", "x.gguf"}) {
    write_text(name, name);
  }
  fs::create_directory(from_ / "more");
  fs::create_directory(to_);
  const auto written = write_quantized_folder(from_, to_, DType::kQ8_0);
  ASSERT_TRUE(written.ok()) << written.status().message();
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(to_)) names.push_back(entry.path().filename());
  EXPECT_THAT(names, UnorderedElementsAre("config.json", "model.safetensors", "tokenizer.json",
                                          "README.md"));
  std::string text;
  std::getline(std::ifstream(to_ / "README.md"), text);
  EXPECT_EQ(text, "README.md");
  // Of one file, only its configuration.
  fs::remove_all(to_);
  ASSERT_TRUE(write_quantized_folder(from_ / "b.safetensors", to_, DType::kQ8_0).ok());
  EXPECT_EQ(std::distance(fs::directory_iterator(to_), {}), 2);
  EXPECT_NE(SafetensorsFile::open(to_ / "model.safetensors")->find("b.weight_scale"), nullptr);
}

TEST_F(Int8Folder, WhatCannotBeWrittenLeavesNothing) {
  expect_refused(StatusCode::kNotFound, "holds no safetensors");
  std::vector<float> values = random_values(size_t{5000} * 64, 9);
  values[4500 * 64 + 3] = std::numeric_limits<float>::infinity();
  write(SafetensorsWriter().add("a.weight", {5000, 64}, values));
  expect_refused(StatusCode::kInvalidData,
                 "tensor 'a.weight': element 3 of row 4500 is inf, which q8_0 cannot hold");
  write(SafetensorsWriter().add("a.weight", {2, 2}, {1.0f, 2.0f, 3.0f, 1e6f}));
  expect_refused(StatusCode::kInvalidData, "element 1 of row 1 is 1000000, which f16 cannot hold");
  write(SafetensorsWriter()
            .add("a.weight", {2, 32}, random_values(64, 10))
            .add("a.weight_scale", {2, 1}, {1.0f, 1.0f}));
  expect_refused(StatusCode::kInvalidArgument, "'a.weight_scale' is there twice");
  write_text("config.json", R"({"quantization_config": {"quant_method": "fp8"}})");
  expect_refused(StatusCode::kUnsupported, "quantised already");
  write_text("config.json", "[]");
  expect_refused(StatusCode::kInvalidData, "config.json");
  fs::remove(from_ / "config.json");
  write(SafetensorsWriter().add("a.weight", {2, 32}, random_values(64, 11)));
  const Status same = write_quantized_folder(from_, from_, DType::kQ8_0).status();
  EXPECT_EQ(same.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(same.message(), HasSubstr("is there already"));
  EXPECT_EQ(write_quantized_folder(from_, to_ / "deeper", DType::kQ8_0).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_TRUE(write_quantized_folder(from_, to_, DType::kQ8_0).ok());
}

}  // namespace aerie::test::int8_test
