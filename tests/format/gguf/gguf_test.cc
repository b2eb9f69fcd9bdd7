// Valid GGUF files: what is written is what is read.
#include "format/gguf/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "format/mapped_file.h"
#include "tests/format/gguf/gguf_writer.h"
#include "tests/format/gguf/test_quantize.h"

namespace aerie::gguf_test {

using test::GgufWriter;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kMaxU64 = std::numeric_limits<uint64_t>::max();
constexpr int64_t kMinI64 = std::numeric_limits<int64_t>::min();

// Keeps the bytes that the file points into.
struct Parsed {
  explicit Parsed(const GgufWriter& writer) : bytes(writer.bytes()) {
    auto result = GgufFile::parse(bytes, "test.gguf");
    EXPECT_TRUE(result.ok()) << result.status().message();
    if (result.ok()) file = std::move(result).value();
  }
  const GgufFile* operator->() const { return file.get(); }
  std::vector<std::byte> bytes;
  std::unique_ptr<GgufFile> file;
};

GgufWriter all_scalars(uint32_t version = 3) {
  GgufWriter writer(version);
  writer.add_u8("u8", 255).add_i8("i8", -128).add_u16("u16", 65535).add_i16("i16", -32768);
  writer.add_u32("u32", 4294967295u).add_i32("i32", std::numeric_limits<int32_t>::min());
  writer.add_u64("u64", kMaxU64).add_i64("i64", kMinI64).add_f32("f32", 0.1f).add_f64("f64", 0.1);
  writer.add_bool("yes", true).add_bool("no", false);
  writer.add_string("string", "text").add_string("empty", "");
  return writer;
}

class GgufVersions : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Gguf, GgufVersions, ::testing::Values(2u, 3u));

TEST_P(GgufVersions, ScalarsOfEveryType) {
  const Parsed gguf(all_scalars(GetParam()));
  EXPECT_EQ(gguf->version(), GetParam());
  EXPECT_EQ(gguf->name(), "test.gguf");
  EXPECT_EQ(gguf->file_bytes(), static_cast<int64_t>(gguf.bytes.size()));
  ASSERT_EQ(gguf->metadata().size(), 14u);
  EXPECT_EQ(gguf->metadata()[0].first, "u8") << "the file's order";
  EXPECT_EQ(gguf->metadata()[13].first, "empty");
  EXPECT_EQ(*gguf->integer("u8"), 255);
  EXPECT_EQ(*gguf->integer("i8"), -128);
  EXPECT_EQ(*gguf->integer("u16"), 65535);
  EXPECT_EQ(*gguf->integer("i16"), -32768);
  EXPECT_EQ(*gguf->integer("u32"), 4294967295);
  EXPECT_EQ(*gguf->integer("i32"), std::numeric_limits<int32_t>::min());
  EXPECT_EQ(*gguf->integer("i64"), kMinI64);
  EXPECT_EQ(*gguf->number("f32"), static_cast<double>(0.1f));
  EXPECT_EQ(*gguf->number("f64"), 0.1);
  EXPECT_EQ(*gguf->number("u64"), 18446744073709551616.0);
  EXPECT_EQ(*gguf->number("i8"), -128.0);
  EXPECT_TRUE(*gguf->boolean("yes"));
  EXPECT_FALSE(*gguf->boolean("no"));
  EXPECT_EQ(*gguf->string("string"), "text");
  EXPECT_EQ(*gguf->string("empty"), "");
  for (const auto& [key, value] : gguf->metadata()) {
    EXPECT_EQ(gguf->find(key), &value);
    const bool is_bool = key == "yes" || key == "no";
    EXPECT_EQ(value.type_name, is_bool ? "bool" : key == "empty" ? "string" : key);
  }
}

TEST_P(GgufVersions, ArraysOfEveryType) {
  GgufWriter writer(GetParam());
  writer.add_array<uint8_t>("u8", {0, 255}).add_array<int8_t>("i8", {-128, 127});
  writer.add_array<uint16_t>("u16", {65535}).add_array<int16_t>("i16", {-32768});
  writer.add_array<uint32_t>("u32", {7, 4294967295u}).add_array<int32_t>("i32", {-7});
  writer.add_array<uint64_t>("u64", {kMaxU64}).add_array<int64_t>("i64", {kMinI64});
  writer.add_array<float>("f32", {0.5f, -2.0f}).add_array<double>("f64", {0.1});
  writer.add_array<bool>("bool", {true, false, true});
  writer.add_array<std::string>("string", {"a", "", "long enough to be on the heap"});
  writer.add_array<float>("none", {});
  const Parsed gguf(writer);
  EXPECT_THAT(*gguf->numbers("u8"), ElementsAre(0, 255));
  EXPECT_THAT(*gguf->numbers("i8"), ElementsAre(-128, 127));
  EXPECT_THAT(*gguf->numbers("u16"), ElementsAre(65535));
  EXPECT_THAT(*gguf->numbers("i16"), ElementsAre(-32768));
  EXPECT_THAT(*gguf->numbers("u32"), ElementsAre(7, 4294967295.0));
  EXPECT_THAT(*gguf->numbers("i32"), ElementsAre(-7));
  EXPECT_THAT(*gguf->numbers("f32"), ElementsAre(0.5, -2.0));
  EXPECT_THAT(*gguf->numbers("f64"), ElementsAre(0.1));
  EXPECT_TRUE(gguf->numbers("none")->empty());
  EXPECT_THAT(*gguf->strings("string"), ElementsAre("a", "", "long enough to be on the heap"));
  EXPECT_EQ(gguf->find("f32")->type_name, "array of f32");

  const auto& u64 = std::get<MetadataArray>(gguf->find("u64")->value);
  EXPECT_THAT(std::get<std::vector<uint64_t>>(u64), ElementsAre(kMaxU64));
  const auto& i64 = std::get<MetadataArray>(gguf->find("i64")->value);
  EXPECT_THAT(std::get<std::vector<int64_t>>(i64), ElementsAre(kMinI64));
  const auto& bools = std::get<MetadataArray>(gguf->find("bool")->value);
  EXPECT_THAT(std::get<std::vector<bool>>(bools), ElementsAre(true, false, true));
}

TEST(Gguf, ArraysOfArraysAreSkipped) {
  std::vector<std::byte> nested;
  const auto put = [&](auto value) {
    const size_t at = nested.size();
    nested.resize(at + sizeof(value));
    std::memcpy(nested.data() + at, &value, sizeof(value));
  };
  put(uint32_t{9}), put(uint64_t{2});              // two arrays:
  put(uint32_t{0}), put(uint64_t{1}), put('x');    // of one u8,
  put(uint32_t{8}), put(uint64_t{1});              // and of one string
  put(uint64_t{3}), put('a'), put('b'), put('c');  // of three bytes
  GgufWriter writer;
  writer.add_raw("nested", 9, nested).add_u8("after", 5);
  const Parsed gguf(writer);
  EXPECT_EQ(gguf->find("nested")->type_name, "array of array");
  EXPECT_TRUE(std::holds_alternative<std::monostate>(gguf->find("nested")->value));
  EXPECT_EQ(*gguf->integer("after"), 5);
  EXPECT_FALSE(gguf->numbers("nested").ok());
}

TEST(Gguf, WantingAnotherKindSaysWhichFileKeyAndKind) {
  GgufWriter writer = all_scalars();
  writer.add_array<float>("floats", {1.0f});
  const Parsed gguf(writer);
  const Status statuses[] = {gguf->integer("string").status(), gguf->number("string").status(),
                             gguf->boolean("string").status(), gguf->strings("string").status(),
                             gguf->numbers("string").status()};
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidData);
    EXPECT_THAT(status.message(),
                HasSubstr("test.gguf: metadata key 'string' is of type string; "));
  }
  EXPECT_EQ(gguf->string("floats").status().message(),
            "test.gguf: metadata key 'floats' is of type array of f32; a string is wanted");
  EXPECT_EQ(gguf->strings("floats").status().code(), StatusCode::kInvalidData);
  EXPECT_EQ(gguf->integer("f32").status().code(), StatusCode::kInvalidData);
  EXPECT_EQ(gguf->integer("yes").status().code(), StatusCode::kInvalidData);
  EXPECT_EQ(gguf->boolean("u8").status().code(), StatusCode::kInvalidData);
  EXPECT_EQ(gguf->integer("u64").status().message(),
            "test.gguf: metadata key 'u64' is 18446744073709551615, too large");
}

TEST(Gguf, AnAbsentKeyIsNotFound) {
  const Parsed gguf(all_scalars());
  EXPECT_EQ(gguf->find("absent"), nullptr);
  EXPECT_EQ(gguf->find(""), nullptr);
  const Status status = gguf->integer("absent").status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "test.gguf: there is no metadata key 'absent'");
  EXPECT_EQ(gguf->strings("absent").status().code(), StatusCode::kNotFound);
}

TEST(Gguf, StringsMayHoldAnyBytes) {
  using std::string_literals::operator""s;
  GgufWriter writer;
  writer.add_string("s", "a\0b\xFF"s);
  EXPECT_EQ(*Parsed(writer)->string("s"), "a\0b\xFF"s);
}

TEST(Gguf, AFileOfNothing) {
  const Parsed gguf{GgufWriter()};
  EXPECT_TRUE(gguf->metadata().empty());
  EXPECT_TRUE(gguf->tensors().empty());
  EXPECT_EQ(gguf.bytes.size(), 24u);
}

TEST_P(GgufVersions, TensorsOfEveryType) {
  GgufWriter writer(GetParam());
  std::vector<float> values(256 * 3);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto type = static_cast<DType>(i);
    writer.add_tensor(dtype_info(type).name, type, {256, 3}, values);
  }
  const Parsed gguf(writer);
  ASSERT_EQ(gguf->tensors().size(), static_cast<size_t>(kDTypeCount));
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto type = static_cast<DType>(i);
    const TensorInfo& tensor = gguf->tensors()[static_cast<size_t>(i)];
    EXPECT_EQ(tensor.name, dtype_info(type).name);
    EXPECT_EQ(tensor.type_name, dtype_info(type).name);
    EXPECT_EQ(tensor.type_id, test::ggml_type_id(type));
    EXPECT_EQ(tensor.shape, (Shape{256, 3, 1, 1}));
    EXPECT_EQ(tensor.offset % 32, 0);
    EXPECT_EQ(tensor.bytes, dtype_bytes(type, 768));
    EXPECT_EQ(gguf->find_tensor(tensor.name), &tensor);

    const Expected<TensorView> view = gguf->tensor(tensor.name);
    ASSERT_TRUE(view.ok());
    EXPECT_EQ(view->dtype, type);
    EXPECT_EQ(view->shape, tensor.shape);
    EXPECT_EQ(view->data, gguf.bytes.data() + tensor.offset);
    std::vector<float> floats(768);
    dequantize(type, view->data, 768, floats.data());
    EXPECT_EQ(floats, test::quantize_dequantize(type, values));
  }
  EXPECT_EQ(gguf->find_tensor("absent"), nullptr);
  EXPECT_EQ(gguf->tensor("absent").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(gguf->tensor("absent").status().message(), "test.gguf: there is no tensor 'absent'");
}

TEST(Gguf, ShapesOfEveryRank) {
  GgufWriter writer;
  writer.add_tensor("r0", DType::kF32, {}, std::vector<float>{1.0f});
  writer.add_tensor("r1", DType::kF32, {3}, std::vector<float>(3));
  writer.add_tensor("r4", DType::kF16, {5, 4, 3, 2}, std::vector<float>(120));
  const Parsed gguf(writer);
  EXPECT_EQ(gguf->tensor("r0")->shape, (Shape{1, 1, 1, 1}));
  EXPECT_EQ(gguf->tensor("r1")->shape, (Shape{3, 1, 1, 1}));
  EXPECT_EQ(gguf->tensor("r4")->shape, (Shape{5, 4, 3, 2}));
  EXPECT_EQ(gguf->tensor("r4")->bytes(), 240);
}

TEST(Gguf, AnotherAlignment) {
  for (const uint32_t alignment : {8u, 64u, 4096u}) {
    GgufWriter writer;
    writer.set_alignment(alignment).add_u32("general.alignment", alignment);
    writer.add_tensor("a", DType::kF32, {3}, std::vector<float>{1, 2, 3});
    writer.add_tensor("b", DType::kF32, {1}, std::vector<float>{4});
    const Parsed gguf(writer);
    EXPECT_EQ(gguf->find_tensor("b")->offset % alignment, 0);
    float value = 0;
    std::memcpy(&value, gguf->tensor("b")->data, sizeof(value));
    EXPECT_EQ(value, 4.0f);
  }
}

TEST(Gguf, TensorsOfOtherTypesAreListedButHaveNoView) {
  GgufWriter writer;
  const std::vector<std::byte> data(100);
  writer.add_raw_tensor("iq1", 19, {256, 2}, data).add_raw_tensor("new", 999, {7}, data);
  writer.add_tensor("fine", DType::kF32, {1}, std::vector<float>{1});
  const Parsed gguf(writer);
  const TensorInfo& iq1 = gguf->tensors()[0];
  EXPECT_EQ(iq1.type_name, "iq1_s");
  EXPECT_EQ(iq1.bytes, 100);
  EXPECT_FALSE(iq1.dtype.has_value());
  const TensorInfo& unknown = gguf->tensors()[1];
  EXPECT_EQ(unknown.type_name, "unknown");
  EXPECT_EQ(unknown.type_id, 999u);
  EXPECT_EQ(unknown.bytes, 0);
  EXPECT_EQ(gguf->tensor("iq1").status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(gguf->tensor("iq1").status().message(),
              HasSubstr("test.gguf: tensor 'iq1' is of type iq1_s (number 19), which is not"));
  EXPECT_THAT(gguf->tensor("iq1").status().message(), HasSubstr("q2_k, q3_k, q4_k"));
  EXPECT_THAT(gguf->tensor("iq1").status().message(), HasSubstr("iq2_xxs, iq2_xs, iq3_xxs"));
  EXPECT_THAT(gguf->tensor("new").status().message(), HasSubstr("of type unknown (number 999)"));
  EXPECT_TRUE(gguf->tensor("fine").ok());
}

TEST(Gguf, OpensAFileAndReleasesItsPages) {
  const std::string path = ::testing::TempDir() + "aerie_gguf_test.gguf";
  GgufWriter writer;
  std::vector<float> values(64 * 1024);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  writer.add_tensor("w", DType::kF32, {1024, 64}, values);
  ASSERT_TRUE(writer.write(path).ok());
  {
    const auto opened = GgufFile::open(path);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    const GgufFile& file = **opened;
    EXPECT_EQ(file.name(), path);
    EXPECT_EQ(file.file_bytes(), static_cast<int64_t>(writer.bytes().size()));
    const TensorView view = *file.tensor("w");
    for (int pass = 0; pass < 2; ++pass) {
      EXPECT_EQ(std::memcmp(view.data, values.data(), values.size() * sizeof(float)), 0);
      file.release(view);
    }
    const std::vector<std::byte> elsewhere(1 << 16, std::byte{1});
    file.release({DType::kF32, Device::kCpu, {1 << 14, 1, 1, 1}, elsewhere.data()});
    EXPECT_EQ(elsewhere[1 << 15], std::byte{1});
    file.release(TensorView());
  }
  std::remove(path.c_str());
}

TEST(Gguf, ReleaseHasNoEffectOnParsedBytes) {
  GgufWriter writer;
  writer.add_tensor("w", DType::kF32, {16384}, std::vector<float>(16384, 3.0f));
  const Parsed gguf(writer);
  gguf->release(*gguf->tensor("w"));
  float value = 0;
  std::memcpy(&value, gguf->tensor("w")->data + 32768, sizeof(value));
  EXPECT_EQ(value, 3.0f);
}

TEST(MappedFile, MovesWithoutMovingItsBytes) {
  const std::string path = ::testing::TempDir() + "aerie_mapped_test";
  ASSERT_TRUE(GgufWriter().write(path).ok());
  auto opened = MappedFile::open(path);
  ASSERT_TRUE(opened.ok());
  const std::byte* data = opened->bytes().data();
  MappedFile moved = std::move(opened).value();
  EXPECT_EQ(moved.bytes().data(), data);
  EXPECT_EQ(moved.bytes().size(), 24u);
  MappedFile assigned;
  assigned = std::move(moved);
  EXPECT_EQ(assigned.bytes().data(), data);
  assigned.release(assigned.bytes().subspan(1));
  EXPECT_EQ(assigned.bytes()[0], std::byte{'G'});
  std::remove(path.c_str());
}

}  // namespace aerie::gguf_test
