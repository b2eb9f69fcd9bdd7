// Matrices of integers with scales: what the package compressed-tensors wrote, what is refused, and
// models in folders written here.
#include "model/import/weights/quantization_scheme.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "format/converted_file.h"
#include "format/safetensors/int8_weights.h"
#include "format/safetensors/quantized_folder.h"
#include "format/safetensors/safetensors.h"
#include "model/import/head_file.h"
#include "model/import/hugging_face_file.h"
#include "tensor/quantize.h"
#include "tests/format/safetensors/safetensors_writer.h"
#include "tests/model/families/family_goldens.h"

namespace aerie::quantization_scheme_test {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr const char* kGoldens = "tests/golden/int8/";

std::vector<std::byte> bytes_of(const TensorData& data) {
  return {data.view.data, data.view.data + data.view.bytes()};
}

std::vector<float> floats_of(const TensorData& data) {
  std::vector<float> values(static_cast<size_t>(data.view.elements()));
  dequantize(data.view.dtype, data.view.data, data.view.elements(), values.data());
  return values;
}

std::vector<float> floats_of(const SafetensorsTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  dequantize(*safetensors_type_info(tensor.type).dtype, tensor.data.data(), tensor.elements(),
             values.data());
  return values;
}

std::unique_ptr<HeadFile> open_golden(const std::string& name,
                                      const HeadFileOptions& options = {}) {
  auto head = HeadFile::open(kGoldens + name, options);
  EXPECT_TRUE(head.ok()) << head.status().message();
  return head.ok() ? *std::move(head) : nullptr;
}

struct GoldenCase {
  const char* name;
  DType type;  // of its matrices in 8 bits
};

std::string golden_name(const testing::TestParamInfo<GoldenCase>& info) {
  std::string name = info.param.name;
  std::ranges::replace(name, '-', '_');
  return name;
}

class EightBitGoldens : public testing::TestWithParam<GoldenCase> {};

TEST_P(EightBitGoldens, AreWhatCompressedTensorsMakesOfThem) {
  const auto head = open_golden(GetParam().name);
  ASSERT_NE(head, nullptr);
  const auto values =
      SafetensorsFile::open(kGoldens + std::string(GetParam().name) + "/values.safetensors");
  ASSERT_TRUE(values.ok()) << values.status().message();
  ASSERT_EQ(values->tensors().size(), 3u);
  std::vector<std::string> names;
  for (const TensorInfo& tensor : head->tensors()) names.push_back(head->origin_of(tensor.name));
  EXPECT_THAT(names, UnorderedElementsAre("embed_tokens.weight", "layers.0.up_proj.weight",
                                          "layers.0.up_proj.bias", "layers.0.down_proj.weight",
                                          "lm_head.weight"));
  for (const SafetensorsTensor& expected : values->tensors()) {
    SCOPED_TRACE(expected.name);
    const auto data = head->read(expected.name);
    ASSERT_TRUE(data.ok()) << data.status().message();
    EXPECT_EQ(data->view.dtype, GetParam().type);
    EXPECT_EQ(data->view.shape, (Shape{expected.shape[1], expected.shape[0], 1, 1}));
    EXPECT_EQ(floats_of(*data), floats_of(expected));
  }
}

TEST_P(EightBitGoldens, AreConvertedAsFloatsAre) {
  const std::string name = "layers.0.down_proj.weight";
  const auto plain = open_golden(GetParam().name);
  ASSERT_NE(plain, nullptr);
  const std::vector<float> values = floats_of(*plain->read(name));
  for (const DType type : {DType::kQ4_0, DType::kBF16, DType::kQ8_0}) {
    SCOPED_TRACE(dtype_info(type).name);
    const auto head = open_golden(GetParam().name, {.dtype = type});
    ASSERT_NE(head, nullptr);
    const auto data = head->read(name);
    ASSERT_TRUE(data.ok()) << data.status().message();
    ASSERT_EQ(data->view.dtype, type);
    std::vector<std::byte> expected(
        static_cast<size_t>(dtype_bytes(type, static_cast<int64_t>(values.size()))));
    quantize(type, values.data(), static_cast<int64_t>(values.size()), expected.data());
    if (GetParam().type == type) expected = bytes_of(*plain->read(name));
    EXPECT_EQ(bytes_of(*data), expected);
  }
}

TEST_P(EightBitGoldens, RowsAreKept) {
  const auto plain = open_golden(GetParam().name), head = open_golden(GetParam().name);
  ASSERT_TRUE(plain != nullptr && head != nullptr);
  ASSERT_TRUE(head->keep_rows("embed_tokens.weight", {4, 1}).ok());
  const auto all = plain->read("embed_tokens.weight"), kept = head->read("embed_tokens.weight");
  ASSERT_TRUE(all.ok() && kept.ok());
  ASSERT_EQ(kept->view.shape[1], 2);
  const auto bytes = static_cast<size_t>(all->view.row_bytes());
  EXPECT_EQ(std::memcmp(kept->view.row(0), all->view.row(4), bytes), 0);
  EXPECT_EQ(std::memcmp(kept->view.row(1), all->view.row(1), bytes), 0);
}

// Scales of F32 fill more bits than binary16 has, and blocks of 32 have one scale.
INSTANTIATE_TEST_SUITE_P(
    CompressedTensors, EightBitGoldens,
    testing::Values(GoldenCase{"group", DType::kQ8_0}, GoldenCase{"group-64", DType::kQ8_0},
                    GoldenCase{"group-16", DType::kF32}, GoldenCase{"channel", DType::kQ8_0},
                    GoldenCase{"channel-f32", DType::kF32}, GoldenCase{"tensor", DType::kQ8_0},
                    GoldenCase{"packed", DType::kQ4_0}),
    golden_name);

TEST(EightBitWeights, OtherFormatsAreRefusedWithWhatIsSupported) {
  const Status asymmetric = HeadFile::open(std::string(kGoldens) + "asymmetric", {}).status();
  EXPECT_EQ(asymmetric.code(), StatusCode::kUnsupported);
  EXPECT_THAT(asymmetric.message(), HasSubstr("symmetric' is false; weights without zero points"));
}

class EightBitHead : public testing::Test {
 protected:
  EightBitHead()
      : path_(testing::TempDir() +
              fmt::format("/aerie_{}_{}", getpid(),
                          testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::remove_all(path_);
    fs::create_directories(path_);
    write_config(int8_quantization_config({}));
  }
  ~EightBitHead() override { fs::remove_all(path_); }

  void write_config(const Json& how) const {
    std::ofstream(path_ + "/config.json") << Json{{"quantization_config", how}}.dump();
  }
  // A matrix [3, 64] and scales of the type and shape; what opening the head says.
  Status open_with(const std::string& type, const std::vector<int64_t>& shape, size_t bytes,
                   const std::string& name = "fc.weight_scale") const {
    const std::vector<std::byte> codes(3 * 64), scales(bytes);
    const test::SafetensorsWriter writer = test::SafetensorsWriter()
                                               .add("fc.weight", "I8", {3, 64}, codes)
                                               .add(name, type, shape, scales);
    EXPECT_TRUE(writer.write(path_ + "/model.safetensors").ok());
    return HeadFile::open(path_, {}).status();
  }
  void expect_refused(const Status& status, StatusCode code, const std::string& part) const {
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_THAT(status.message(), testing::StartsWith(path_));
    EXPECT_THAT(status.message(), HasSubstr(part));
  }

  std::string path_;
};

TEST_F(EightBitHead, ScalesMustFit) {
  EXPECT_TRUE(open_with("F16", {3, 2}, 12).ok()) << open_with("F16", {3, 2}, 12).message();
  EXPECT_TRUE(open_with("F32", {3, 2}, 24).ok());
  const auto shaped = [&](const std::vector<int64_t>& shape) {
    size_t elements = 1;
    for (const int64_t size : shape) elements *= static_cast<size_t>(size);
    expect_refused(open_with("F16", shape, 2 * elements), StatusCode::kInvalidData,
                   "tensor 'fc.weight' of 3 x 64 elements has scales of the shape [");
  };
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{2, 3},
                                                                             {3, 0},
                                                                             {3, 1},
                                                                             {3},
                                                                             {1},
                                                                             {},
                                                                             {6},
                                                                             {3, 3},
                                                                             {3, 64},
                                                                             {2, 2},
                                                                             {3, 2, 1},
                                                                             {1, 3, 2}}) {
    shaped(shape);
  }
  const StatusCode invalid = StatusCode::kInvalidData;
  expect_refused(open_with("I32", {3, 2}, 24), invalid, "holds scales and is not of F32, F16 or");
  expect_refused(open_with("F16", {3, 2}, 12, "fc.scale"), invalid,
                 "'fc.weight' is of type I8 and has no scales beside it");
  expect_refused(open_with("F16", {3, 2}, 12, "fc.weight_scale_inv"), invalid, "has no scales");
  expect_refused(open_with("F16", {3, 2}, 12, "ab.weight_scale"), invalid, "");
  expect_refused(open_with("I8", {3, 2}, 6, "fc.weight_zero_point"), invalid, "has no scales");
  Json how = int8_quantization_config({});
  how["config_groups"]["group_0"]["weights"]["group_size"] = 48;
  write_config(how);
  expect_refused(open_with("F16", {3, 2}, 12), invalid, "which no group of quantization_config");
  how["config_groups"]["group_0"]["weights"] = nullptr;
  write_config(how);
  expect_refused(open_with("F16", {3, 2}, 12), invalid, "says nothing of integers");
}

TEST_F(EightBitHead, OtherTensorsOfItsKindAreRefused) {
  const std::vector<std::byte> codes(3 * 64), scales(12);
  const auto opened = [&](const std::string& name, const std::string& type,
                          const std::vector<int64_t>& shape, size_t bytes) {
    const test::SafetensorsWriter writer =
        test::SafetensorsWriter()
            .add("fc.weight", "I8", {3, 64}, codes)
            .add("fc.weight_scale", "F16", {3, 2}, scales)
            .add(name, type, shape, std::vector<std::byte>(bytes));
    EXPECT_TRUE(writer.write(path_ + "/model.safetensors").ok());
    return HeadFile::open(path_, {}).status();
  };
  expect_refused(opened("fc.weight_zero_point", "I8", {3, 2}, 6), StatusCode::kUnsupported,
                 "zero points or reordered columns");
  expect_refused(opened("fc.weight_g_idx", "I32", {64}, 256), StatusCode::kUnsupported,
                 "zero points or reordered columns");
  expect_refused(opened("other.weight_scale", "F16", {3, 2}, 12), StatusCode::kInvalidData,
                 "is a scale, and there is no tensor 'other.weight' of type F8_E4M3 or I8");
  expect_refused(opened("norm.weight", "I8", {64}, 64), StatusCode::kInvalidData,
                 "'norm.weight' is of type I8 and no matrix");
  EXPECT_TRUE(opened("fc.input_scale", "F16", {1}, 2).ok());
  EXPECT_TRUE(opened("fc.input_zero_point", "I8", {1}, 1).ok());
}

// Without quantization_config, and where they are no weights, 8 bits are numbers.
TEST_F(EightBitHead, ListsOfIntegersStay) {
  const std::vector<int8_t> ids = {3, -1};
  const test::SafetensorsWriter writer =
      test::SafetensorsWriter().add("d2t", "I8", {2}, std::as_bytes(std::span(ids)));
  ASSERT_TRUE(writer.write(path_ + "/model.safetensors").ok());
  for (const bool quantized : {true, false}) {
    if (!quantized) fs::remove(path_ + "/config.json");
    const auto head = HeadFile::open(path_, {});
    ASSERT_TRUE(head.ok()) << head.status().message();
    EXPECT_THAT(*(*head)->integers("d2t"), testing::ElementsAre(3, -1));
  }
}

TEST_F(EightBitHead, ScalesOutsideBinary16MakeFloats) {
  const struct {
    float scale;
    DType type;
  } kScales[] = {{0.5f, DType::kQ8_0},
                 {-0.0f, DType::kQ8_0},
                 {65504.0f, DType::kQ8_0},
                 {0x1p-24f, DType::kQ8_0},
                 {65536.0f, DType::kF32},
                 {0x1p-25f, DType::kF32},
                 {1.0f + 0x1p-11f, DType::kF32},
                 {std::nanf(""), DType::kF32},
                 {std::numeric_limits<float>::infinity(), DType::kF32}};
  std::vector<int8_t> codes(3 * 64);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<int8_t>(i - 128);
  for (const auto& [scale, type] : kScales) {
    SCOPED_TRACE(scale);
    std::vector<float> scales(6, 1.0f);
    scales.back() = scale;
    const test::SafetensorsWriter writer =
        test::SafetensorsWriter()
            .add("fc.weight", "I8", {3, 64}, std::as_bytes(std::span(codes)))
            .add("fc.weight_scale", {3, 2}, scales);
    ASSERT_TRUE(writer.write(path_ + "/model.safetensors").ok());
    const auto head = HeadFile::open(path_, {});
    ASSERT_TRUE(head.ok()) << head.status().message();
    const auto data = (*head)->read("fc.weight");
    ASSERT_TRUE(data.ok()) << data.status().message();
    EXPECT_EQ(data->view.dtype, type);
    const std::vector<float> values = floats_of(*data);
    for (size_t i = 0; i < values.size(); ++i) {
      const float expected = static_cast<float>(codes[i]) * scales[i / 32];
      if (expected == expected) {
        EXPECT_EQ(values[i], expected) << i;
      }
    }
  }
}

// Families of whose folders some matrices are rows of products, and none in 8 bits already.
std::vector<std::string> families_of_floats() {
  std::vector<std::string> names = family_models();
  std::erase_if(names, [](const std::string& name) {
    const bool stacked = name == "granitemoe" || name == "granite-hybrid-moe" ||
                         name == "qwen35-moe" || name == "gemma4-moe" ||
                         name.starts_with("gpt-oss");
    const bool turned = name.starts_with("deepseek") || name.starts_with("glm4-moe");
    if (turned) return true;
    return name.starts_with("gpt2") || stacked || name.find("fp8") != std::string::npos;
  });
  return names;
}

// Columns of heads of 16 that change places, in blocks of 32, become floats.
bool is_in_small_heads(const std::string& family, std::string_view tensor) {
  return family == "qwen35" && tensor.ends_with("ssm_out.weight");
}

// Both rounded to 8 bits in groups of their own.
void expect_near(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  float largest = 0.0f;
  for (const float value : a) largest = std::max(largest, std::fabs(value));
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], largest / 100) << i;
}

class EightBitModels : public testing::TestWithParam<std::string> {};

TEST_P(EightBitModels, AreTheSameAsConvertedAtLoad) {
  const fs::path folder =
      fs::path(testing::TempDir()) / fmt::format("aerie_{}_{}", getpid(), GetParam());
  fs::remove_all(folder);
  const auto written =
      write_quantized_folder("tests/golden/families/" + GetParam(), folder, DType::kQ8_0);
  ASSERT_TRUE(written.ok()) << written.status().message();
  const auto stored = open_model_file(folder);
  ASSERT_TRUE(stored.ok()) << stored.status().message();
  ThreadPool pool(1);
  const auto converted =
      ConvertedFile::wrap(open_family_model(GetParam()), {DType::kQ8_0, false}, pool);
  ASSERT_TRUE(converted.ok()) << converted.status().message();
  ASSERT_EQ((*stored)->tensors().size(), (*converted)->tensors().size());
  int blocks = 0;
  for (const TensorInfo& tensor : (*converted)->tensors()) {
    SCOPED_TRACE(tensor.name);
    const auto one = (*stored)->read(tensor.name), other = (*converted)->read(tensor.name);
    ASSERT_TRUE(one.ok()) << one.status().message();
    ASSERT_TRUE(other.ok()) << other.status().message();
    EXPECT_EQ(one->view.shape, other->view.shape);
    if (is_in_small_heads(GetParam(), tensor.name)) {
      EXPECT_EQ(one->view.dtype, DType::kF32);
      expect_near(floats_of(*one), floats_of(*other));
      continue;
    }
    EXPECT_EQ(one->view.dtype, other->view.dtype);
    EXPECT_EQ(bytes_of(*one), bytes_of(*other));
    blocks += one->view.dtype == DType::kQ8_0 ? 1 : 0;
  }
  std::printf("%d of %zu tensors are in 8 bits\n", blocks, (*stored)->tensors().size());
  fs::remove_all(folder);
}

TEST(EightBitFolders, KeepStacksOfExpertsAndTheirRouters) {
  const std::pair<std::string, std::string> families[] = {{"granitemoe", "blk.0.attn_q.weight"},
                                                          {"gpt-oss", "blk.0.attn_q.weight"},
                                                          {"qwen35-moe", "blk.1.attn_q.weight"},
                                                          {"gemma4-moe", "blk.1.attn_q.weight"}};
  for (const auto& [name, matrix] : families) {
    const fs::path folder = fs::path(testing::TempDir()) / fmt::format("aerie_{}_stacks", getpid());
    fs::remove_all(folder);
    ASSERT_TRUE(write_quantized_folder("tests/golden/families/" + name, folder, DType::kQ8_0).ok());
    const auto stored = open_model_file(folder);
    ASSERT_TRUE(stored.ok()) << stored.status().message();
    const auto file = open_family_model(name);
    int kept = 0;
    for (const TensorInfo& tensor : file->tensors()) {
      const bool is_stack = tensor.name.find("_exps") != std::string_view::npos;
      if (!is_stack && tensor.name.find("ffn_gate_inp") == std::string_view::npos) continue;
      SCOPED_TRACE(tensor.name);
      const auto one = (*stored)->read(tensor.name), other = file->read(tensor.name);
      ASSERT_TRUE(one.ok() && other.ok());
      EXPECT_EQ(one->view.dtype, other->view.dtype);
      EXPECT_EQ(bytes_of(*one), bytes_of(*other));
      ++kept;
    }
    EXPECT_GE(kept, 8);
    EXPECT_EQ((*stored)->find_tensor(matrix)->dtype, DType::kQ8_0);
    fs::remove_all(folder);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, EightBitModels, testing::ValuesIn(families_of_floats()),
                         family_test_name);

}  // namespace aerie::quantization_scheme_test
