// Safetensors: what is written is what is read, and broken and hostile files are refused with a
// message that says what is wrong where.
#include "format/safetensors/safetensors.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/format/safetensors/safetensors_writer.h"

namespace aerie::safetensors_test {

using test::safetensors_bytes;
using test::SafetensorsWriter;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

Status parse(const Bytes& bytes) {
  return SafetensorsFile::parse(bytes, "x.safetensors").status();
}

void expect_invalid(const Bytes& bytes, const std::string& message) {
  const Status status = parse(bytes);
  EXPECT_EQ(status.code(), StatusCode::kInvalidData) << message;
  EXPECT_THAT(status.message(), HasSubstr(message));
  EXPECT_TRUE(status.message().starts_with("x.safetensors: ")) << status.message();
}

// A header and so many bytes of data.
void expect_invalid(const std::string& header, size_t data_bytes, const std::string& message) {
  expect_invalid(safetensors_bytes(header, Bytes(data_bytes)), message);
}

std::string entry(const std::string& name, const std::string& shape, const std::string& offsets,
                  const std::string& dtype = "U8") {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape,
                     offsets);
}
std::string one(const std::string& shape, const std::string& offsets,
                const std::string& dtype = "U8") {
  return fmt::format("{{{}}}", entry("t", shape, offsets, dtype));
}

Bytes to_bytes(std::string_view text) {
  Bytes bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

TEST(Safetensors, TensorsAndMetadata) {
  SafetensorsWriter writer;
  writer.add_metadata("format", "pt").add_metadata("note", "");
  writer.add("b", {2, 3}, {1, 2, 3, 4, 5, 6});
  writer.add("a", "BF16", {2}, Bytes(4, std::byte{0x3F}));
  writer.add("scalar", "I64", {}, Bytes(8, std::byte{7}));
  writer.add("none", "F16", {4, 0, 5}, {});
  const Bytes bytes = writer.bytes();
  const auto file = SafetensorsFile::parse(bytes, "x.safetensors");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->name(), "x.safetensors");
  EXPECT_EQ(file->file_bytes(), static_cast<int64_t>(bytes.size()));
  EXPECT_THAT(file->metadata(), ElementsAre(std::pair("format", "pt"), std::pair("note", "")));
  ASSERT_EQ(file->tensors().size(), 4u);
  EXPECT_EQ(file->tensors()[0].name, "b") << "the header's order";

  const SafetensorsTensor* b = file->find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->type, SafetensorsType::kF32);
  EXPECT_THAT(b->shape, ElementsAre(2, 3));
  EXPECT_EQ(b->elements(), 6);
  ASSERT_EQ(b->data.size(), 24u);
  float last = 0.0f;
  std::memcpy(&last, b->data.data() + 20, sizeof(last));
  EXPECT_EQ(last, 6.0f);
  EXPECT_EQ(file->find("a")->data.data(), b->data.data() + 24);
  EXPECT_EQ(file->find("scalar")->elements(), 1);
  EXPECT_EQ(file->find("scalar")->data[0], std::byte{7});
  EXPECT_EQ(file->find("none")->elements(), 0);
  EXPECT_TRUE(file->find("none")->data.empty());
  EXPECT_EQ(file->find("c"), nullptr);
}

TEST(Safetensors, EveryType) {
  const std::vector<std::pair<std::string, int>> types = {
      {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
      {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
      {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
      {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
      {"I64", 64},        {"U64", 64}};
  SafetensorsWriter writer;
  for (const auto& [name, bits] : types) {
    writer.add(name, name, {2, 4}, Bytes(static_cast<size_t>(bits)));
  }
  const Bytes bytes = writer.bytes();
  const auto file = SafetensorsFile::parse(bytes, "x");
  ASSERT_TRUE(file.ok()) << file.status().message();
  for (size_t i = 0; i < types.size(); ++i) {
    const SafetensorsTypeInfo& info = safetensors_type_info(file->tensors()[i].type);
    EXPECT_EQ(info.name, types[i].first);
    EXPECT_EQ(info.bits, types[i].second);
    if (info.dtype) {
      EXPECT_EQ(dtype_bytes(*info.dtype, 8), info.bits);
    }
  }
  EXPECT_EQ(safetensors_type_info(SafetensorsType::kF32).dtype, DType::kF32);
  EXPECT_EQ(safetensors_type_info(SafetensorsType::kF16).dtype, DType::kF16);
  EXPECT_EQ(safetensors_type_info(SafetensorsType::kBF16).dtype, DType::kBF16);
}

TEST(Safetensors, FilesAndMoves) {
  const std::string path = "/tmp/aerie_safetensors_" + std::to_string(getpid());
  ASSERT_TRUE(SafetensorsWriter().add("t", {3}, {1, 2, 3}).write(path).ok());
  auto opened = SafetensorsFile::open(path);
  std::filesystem::remove(path);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const SafetensorsTensor* before = opened->find("t");
  const SafetensorsFile file = *std::move(opened);
  EXPECT_EQ(file.find("t"), before);
  EXPECT_EQ(file.name(), path);
  file.release(before->data);
  float value = 0.0f;
  std::memcpy(&value, before->data.data() + 8, sizeof(value));
  EXPECT_EQ(value, 3.0f);
  EXPECT_EQ(SafetensorsFile::open(path).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(SafetensorsFile::open("/tmp").status().code(), StatusCode::kInvalidArgument);
}

TEST(Safetensors, EmptyButValid) {
  EXPECT_TRUE(parse(safetensors_bytes("{}", {})).ok());
  EXPECT_TRUE(parse(safetensors_bytes("{}      ", {})).ok());
  EXPECT_TRUE(parse(safetensors_bytes(R"({"__metadata__":{}})", {})).ok());
  EXPECT_TRUE(parse(safetensors_bytes(one("[0]", "[0,0]"), {})).ok());
}

TEST(SafetensorsHostile, OtherFiles) {
  expect_invalid({}, "is empty");
  expect_invalid(to_bytes("abc"), "5 bytes are missing");
  expect_invalid(to_bytes("<!DOCTYPE html>\n<html>"), "it starts with \"<!DOCTYPE html>\\n\"");
  expect_invalid(to_bytes("version https://git-lfs.github.com/spec/v1\noid"), "git lfs pull");
  expect_invalid(to_bytes({"GGUF\3\0\0\0", 8}), "is a GGUF file, not a safetensors file");
}

TEST(SafetensorsHostile, HeaderLengths) {
  Bytes bytes = safetensors_bytes("{}", {});
  const auto with_length = [&](uint64_t length) {
    Bytes changed = bytes;
    std::memcpy(changed.data(), &length, sizeof(length));
    return changed;
  };
  expect_invalid(with_length(0), "the header is empty");
  expect_invalid(with_length(1), "line 1, column 2: ");
  expect_invalid(with_length(3), "a header of 3 bytes is declared, but 2 bytes follow");
  expect_invalid(with_length(100'000'000), "a header of 100000000 bytes is declared");
  expect_invalid(with_length(100'000'001), "a header of 100000001 bytes; at most 100000000");
  expect_invalid(with_length(uint64_t{1} << 63), "9223372036854775808");
  expect_invalid(with_length(UINT64_MAX), "18446744073709551615");
}

TEST(SafetensorsHostile, HeaderText) {
  expect_invalid("[]", 0, "starts with \"[]\", not with a brace");
  expect_invalid(" {}", 0, "not with a brace");
  expect_invalid("{]", 0, "header: line 1, column 2: ");
  expect_invalid("{}{}", 0, "header: line 1, column 3: ");
  expect_invalid(std::string("{}\0", 3), 0, "a NUL byte");
  expect_invalid("{\"t\xFF\":{}}", 0, "ill-formed UTF-8");
  expect_invalid("{\"a\":" + std::string(100000, '['), 0, "nested more than 64 deep");
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
  expect_invalid(objects, 0, "nested more than 64 deep");
}

TEST(SafetensorsHostile, Names) {
  expect_invalid(fmt::format("{{{0},{0}}}", entry("a", "[1]", "[0,1]")), 2, "key 'a' occurs twice");
  expect_invalid(fmt::format("{{{}}}", entry("", "[1]", "[0,1]")), 1, "the name is empty");
  expect_invalid(fmt::format("{{{}}}", entry("a\\u0000", "[1]", "[0,1]")), 1,
                 "contains a NUL byte");
  expect_invalid(fmt::format("{{{}}}", entry("a\\nb", "[1]", "[0,2]")), 2, "tensor 'a\\nb': ");
}

TEST(SafetensorsHostile, Entries) {
  expect_invalid(R"({"t":1})", 0, "tensor 't': holds JSON of type number; an object is wanted");
  expect_invalid(R"({"t":{}})", 0, "tensor 't': there is no key 'dtype'");
  expect_invalid(R"({"t":{"dtype":"U8"}})", 0, "there is no key 'shape'");
  expect_invalid(R"({"t":{"dtype":"U8","shape":[1]}})", 0, "there is no key 'data_offsets'");
  expect_invalid(R"({"t":{"dtype":8}})", 0, "key 'dtype' is 8; a string is wanted");
  expect_invalid(R"({"__metadata__":[]})", 0, "__metadata__: holds JSON of type array");
  expect_invalid(R"({"__metadata__":{"a":1}})", 0, "key 'a' is a number; a string is wanted");
  const Status status = parse(safetensors_bytes(one("[1]", "[0,1]", "Q4_0"), Bytes(1)));
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_EQ(status.message(),
            "x.safetensors: tensor 't': key 'dtype' is 'Q4_0', which is not known");
}

TEST(SafetensorsHostile, Shapes) {
  expect_invalid(one("7", "[0,1]"), 1, "key 'shape' is 7; an array of integers is wanted");
  expect_invalid(one("[1.0]", "[0,1]"), 1, "key 'shape[0]' is 1.0; an array of integers");
  expect_invalid(one("[1,-1]", "[0,1]"), 1, "has the size -1");
  expect_invalid(one("[-9223372036854775808]", "[0,1]"), 1, "has the size -9223372036854775808");
  expect_invalid(one("[18446744073709551615]", "[0,1]"), 1, "an array of integers is wanted");
  expect_invalid(one("[99999999999999999999]", "[0,1]"), 1, "an array of integers is wanted");
  expect_invalid(one("[4294967296,4294967296]", "[0,0]"), 0, "more bytes than a file can hold");
  expect_invalid(one("[9223372036854775807]", "[0,0]", "F64"), 0, "more bytes than a file can");
  expect_invalid(one("[0,9223372036854775807,9]", "[0,0]"), 0, "more bytes than a file can hold");
  expect_invalid(one("[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,1]"), 1, "has 17 sizes");
  expect_invalid(one("[3]", "[0,1]", "F4"), 1, "does not fill whole bytes");
}

TEST(SafetensorsHostile, Offsets) {
  expect_invalid(one("[1]", "[0]"), 1, "has 1 numbers; 2 are wanted");
  expect_invalid(one("[1]", "[0,1,2]"), 1, "has 3 numbers");
  expect_invalid(one("[1]", "[0,1.0]"), 1, "key 'data_offsets[1]' is 1.0");
  expect_invalid(one("[1]", "[-1,0]"), 1, "is [-1, 0], which is no range");
  expect_invalid(one("[1]", "[1,0]"), 1, "is [1, 0], which is no range");
  expect_invalid(one("[9]", "[0,9]"), 7, "2 bytes are missing (the download may be incomplete)");
  expect_invalid(one("[1]", "[9223372036854775806,9223372036854775807]"), 1, "bytes are missing");
  expect_invalid(one("[3]", "[0,4]"), 4, "is [0, 4], 4 bytes; type U8 and shape [3] make 3");
  expect_invalid(one("[2,2]", "[0,4]", "F16"), 4, "type F16 and shape [2, 2] make 8");
  expect_invalid(one("[0]", "[0,4]"), 4, "type U8 and shape [0] make 0");
}

TEST(SafetensorsHostile, Layout) {
  const auto two = [](const std::string& a, const std::string& a_at, const std::string& b,
                      const std::string& b_at) {
    return fmt::format("{{{},{}}}", entry("a", a, a_at), entry("b", b, b_at));
  };
  EXPECT_TRUE(parse(safetensors_bytes(two("[4]", "[4,8]", "[4]", "[0,4]"), Bytes(8))).ok())
      << "any order";
  EXPECT_TRUE(parse(safetensors_bytes(two("[4]", "[0,4]", "[0]", "[4,4]"), Bytes(4))).ok());
  EXPECT_TRUE(parse(safetensors_bytes(two("[4]", "[0,4]", "[0]", "[0,0]"), Bytes(4))).ok());
  expect_invalid(two("[4]", "[0,4]", "[4]", "[0,4]"), 4, "overlap in the file");
  expect_invalid(two("[4]", "[0,4]", "[5]", "[3,8]"), 8, "tensor 'a' and tensor 'b' overlap");
  expect_invalid(two("[4]", "[0,4]", "[0]", "[2,2]"), 4, "tensor 'a' and tensor 'b' overlap");
  expect_invalid(two("[4]", "[0,4]", "[3]", "[5,8]"), 8, "1 bytes before tensor 'b'");
  expect_invalid(one("[4]", "[1,5]"), 5, "1 bytes before tensor 't' belong to no tensor");
  expect_invalid(one("[4]", "[0,4]"), 7, "3 bytes behind the last tensor belong to none");
  expect_invalid("{}", 1, "1 bytes behind the last tensor");
}

}  // namespace aerie::safetensors_test
