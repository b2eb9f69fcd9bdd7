// Conversion of weights while they are read: which tensors become what, and with which values.
#include "format/converted_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "format/gguf/gguf.h"
#include "format/gguf/gguf_write.h"
#include "tensor/quantize.h"
#include "tests/format/gguf/gguf_writer.h"

namespace aerie::converted_file_test {

using test::GgufWriter;
using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

std::vector<float> random_floats(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

// A model's tensors, as one finds them; matrices are of `type`.
GgufWriter model(DType type = DType::kF32) {
  GgufWriter writer;
  writer.add_string("general.architecture", "llama").add_u32("general.file_type", 0);
  writer.add_array<std::string>("tokens", {"a", "b"});
  const auto add = [&](const char* name, DType dtype, std::vector<int64_t> shape) {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    writer.add_tensor(name, dtype, shape, random_floats(count, static_cast<uint32_t>(count)));
  };
  add("token_embd.weight", type, {256, 300});
  add("output.weight", type, {256, 301});
  add("output_norm.weight", DType::kF32, {256});
  add("position_embd.weight", DType::kF32, {256, 8});
  add("blk.0.attn_q.weight", type, {256, 70});
  add("blk.0.attn_q.bias", DType::kF32, {70});
  add("blk.0.attn_q_norm.weight", DType::kF32, {32, 2});
  add("blk.0.ffn_gate_exps.weight", type, {256, 3, 4});
  add("blk.0.ffn_gate_inp.weight", DType::kF32, {256, 4});
  add("blk.0.one_row.weight", DType::kF32, {256, 1});
  add("rope_freqs.weight", DType::kF32, {16});
  return writer;
}

class Converted : public ::testing::Test {
 protected:
  Expected<std::unique_ptr<ConvertedFile>> wrap(const GgufWriter& writer, DType type,
                                                bool requantize = false) {
    bytes_ = writer.bytes();
    auto source = GgufFile::parse(bytes_, "m.gguf");
    EXPECT_TRUE(source.ok()) << source.status().message();
    source_ = source->get();
    return ConvertedFile::wrap(*std::move(source), {type, requantize}, pool_);
  }
  std::unique_ptr<ConvertedFile> convert(const GgufWriter& writer, DType type,
                                         bool requantize = false) {
    auto file = wrap(writer, type, requantize);
    EXPECT_TRUE(file.ok()) << file.status().message();
    return file.ok() ? *std::move(file) : nullptr;
  }

  ThreadPool pool_{3};
  Bytes bytes_;
  const GgufFile* source_ = nullptr;  // what was wrapped
};

std::map<std::string, DType> types_of(const ModelFile& file) {
  std::map<std::string, DType> types;
  for (const TensorInfo& tensor : file.tensors()) types[std::string(tensor.name)] = *tensor.dtype;
  return types;
}

TEST_F(Converted, WhichTensorsBecomeWhat) {
  for (const DType type : {DType::kQ8_0, DType::kQ5_1, DType::kF16, DType::kQ4_0, DType::kQ4_1}) {
    const auto file = convert(model(), type);
    ASSERT_NE(file, nullptr);
    const bool four_bits = type == DType::kQ4_0 || type == DType::kQ4_1;
    const DType end = four_bits ? DType::kQ8_0 : type;
    const std::map<std::string, DType> expected = {
        {"token_embd.weight", end},
        {"output.weight", end},
        {"output_norm.weight", DType::kF32},
        {"position_embd.weight", DType::kF32},
        {"blk.0.attn_q.weight", type},
        {"blk.0.attn_q.bias", DType::kF32},
        {"blk.0.attn_q_norm.weight", DType::kF32},
        {"blk.0.ffn_gate_exps.weight", type},
        {"blk.0.ffn_gate_inp.weight", DType::kF32},
        {"blk.0.one_row.weight", DType::kF32},
        {"rope_freqs.weight", DType::kF32},
    };
    EXPECT_EQ(types_of(*file), expected);
  }
}

TEST_F(Converted, RowsThatAreNotWholeBlocks) {
  for (const DType source : {DType::kF32, DType::kF16, DType::kBF16}) {
    GgufWriter writer;
    writer.add_tensor("a.weight", source, {48, 5}, random_floats(240, 1));
    const auto file = convert(writer, DType::kQ8_0);
    ASSERT_NE(file, nullptr);
    const DType kept = source == DType::kBF16 ? DType::kBF16 : DType::kF16;
    EXPECT_EQ(file->tensors()[0].dtype, kept);
    EXPECT_EQ(file->read("a.weight")->view.dtype, kept);
  }
}

TEST_F(Converted, Descriptions) {
  const auto file = convert(model(), DType::kQ4_0);
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(file->name(), "m.gguf");
  EXPECT_EQ(file->format(), "GGUF version 3, converted to q4_0");
  EXPECT_EQ(file->file_bytes(), static_cast<int64_t>(bytes_.size()));
  EXPECT_EQ(*file->integer("general.file_type"), 2);
  EXPECT_EQ(*file->integer("general.quantization_version"), 2);
  EXPECT_EQ(*file->string("general.architecture"), "llama");
  EXPECT_EQ((*file->strings("tokens"))[1], "b");
  EXPECT_EQ(file->metadata().size(), source_->metadata().size() + 1);
  const TensorInfo* tensor = file->find_tensor("blk.0.attn_q.weight");
  EXPECT_EQ(tensor->type_name, "q4_0");
  EXPECT_EQ(tensor->type_id, 2u);
  EXPECT_EQ(tensor->bytes, 256 / 32 * 18 * 70);
  EXPECT_EQ(tensor->shape, (Shape{256, 70, 1, 1}));
  EXPECT_EQ(file->read("none").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(convert(model(), DType::kF16)->find("general.quantization_version"), nullptr);
}

TEST_F(Converted, ValuesAreTheQuantisers) {
  for (const DType from : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const DType to : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0}) {
      const auto file = convert(model(from), to);
      ASSERT_NE(file, nullptr);
      for (const TensorInfo& tensor : file->tensors()) {
        const TensorView original = source_->tensor(tensor.name).value();
        const auto data = file->read(tensor.name);
        ASSERT_TRUE(data.ok()) << data.status().message();
        ASSERT_EQ(data->view.dtype, tensor.dtype);
        ASSERT_EQ(data->view.bytes(), tensor.bytes);
        if (tensor.dtype == original.dtype) {
          EXPECT_EQ(data->view.data, original.data) << "a view of the file";
          continue;
        }
        std::vector<float> floats(static_cast<size_t>(original.elements()));
        dequantize(original.dtype, original.data, original.elements(), floats.data());
        Bytes expected(static_cast<size_t>(tensor.bytes));
        quantize(*tensor.dtype, floats.data(), original.elements(), expected.data());
        EXPECT_EQ(std::memcmp(data->view.data, expected.data(), expected.size()), 0) << tensor.name;
        file->release(data->view);
      }
    }
  }
}

TEST_F(Converted, QuantisedSources) {
  for (const DType from : {DType::kQ8_0, DType::kQ4_K}) {
    const Status status = wrap(model(from), DType::kQ4_1).status();
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_THAT(status.message(), HasSubstr("m.gguf: tensor '"));
    EXPECT_THAT(status.message(), HasSubstr("is of type " + std::string(dtype_info(from).name)));
    const auto file = convert(model(from), DType::kQ4_1, true);
    ASSERT_NE(file, nullptr);
    EXPECT_EQ(file->read("blk.0.attn_q.weight")->view.dtype, DType::kQ4_1);
  }
  const auto same = convert(model(DType::kQ8_0), DType::kQ8_0);
  ASSERT_NE(same, nullptr) << "nothing is converted";
  EXPECT_TRUE(same->read("output.weight")->view.data == source_->tensor("output.weight")->data);
  EXPECT_EQ(wrap(model(), DType::kQ4_K).status().message(), "there is no conversion to q4_k");
}

TEST_F(Converted, ValuesThatDoNotFit) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const auto expect = [&](float value, DType type, const std::string& message) {
    std::vector<float> values = random_floats(256 * 70, 1);
    values[256 * 69 + 7] = std::nanf("");  // the first one is named, whoever finds it
    values[256 * 17 + 5] = value;
    GgufWriter writer;
    writer.add_tensor("a.weight", DType::kF32, {256, 70}, values);
    const auto file = convert(writer, type);
    ASSERT_NE(file, nullptr);
    const Status status = file->read("a.weight").status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidData);
    EXPECT_EQ(status.message(), "m.gguf: tensor 'a.weight': element 5 of row 17 is " + message);
  };
  expect(std::nanf(""), DType::kQ8_0, "nan, which q8_0 cannot hold");
  expect(-kInf, DType::kQ4_0, "-inf, which q4_0 cannot hold");
  expect(70000.0f, DType::kF16, "70000, which f16 cannot hold");
}

TEST_F(Converted, ADraftModelsEndsToo) {
  GgufWriter writer = model();
  writer.add_array("draft.d2t", std::vector<int32_t>{0, 3});
  const auto file = convert(writer, DType::kQ4_0);
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(types_of(*file)["token_embd.weight"], DType::kQ4_0);
  EXPECT_EQ(types_of(*file)["output.weight"], DType::kQ4_0);
}

TEST_F(Converted, ThreadsDoNotMatter) {
  const auto three = convert(model(), DType::kQ4_0);
  ThreadPool one(1);
  auto source = GgufFile::parse(bytes_, "m.gguf");
  ASSERT_TRUE(source.ok());
  const auto alone = ConvertedFile::wrap(*std::move(source), {DType::kQ4_0}, one);
  ASSERT_TRUE(alone.ok());
  for (const TensorInfo& tensor : three->tensors()) {
    const auto a = three->read(tensor.name), b = (*alone)->read(tensor.name);
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_EQ(std::memcmp(a->view.data, b->view.data, static_cast<size_t>(tensor.bytes)), 0);
  }
}

TEST_F(Converted, WrittenToAFile) {
  const auto file = convert(model(DType::kBF16), DType::kQ4_0);
  ASSERT_NE(file, nullptr);
  const std::string path = "/tmp/aerie_converted_" + std::to_string(getpid()) + ".gguf";
  const Status status = write_gguf(*file, path);
  ASSERT_TRUE(status.ok()) << status.message();
  const auto written = GgufFile::open(path);
  std::filesystem::remove(path);
  ASSERT_TRUE(written.ok()) << written.status().message();
  EXPECT_EQ(*(*written)->integer("general.file_type"), 2);
  ASSERT_EQ((*written)->tensors().size(), file->tensors().size());
  for (const TensorInfo& tensor : file->tensors()) {
    const auto made = file->read(tensor.name), kept = (*written)->read(tensor.name);
    ASSERT_TRUE(made.ok() && kept.ok());
    ASSERT_EQ(kept->view.dtype, made->view.dtype);
    EXPECT_EQ(kept->view.shape, made->view.shape);
    EXPECT_EQ(
        std::memcmp(kept->view.data, made->view.data, static_cast<size_t>(made->view.bytes())), 0);
  }
}

}  // namespace aerie::converted_file_test
