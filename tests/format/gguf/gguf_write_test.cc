// Writing GGUF files: what was read comes out byte by byte, and a failure leaves nothing behind.
#include "format/gguf/gguf_write.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "format/gguf/gguf.h"
#include "format/gguf/gguf_split.h"
#include "format/gguf/gguf_types.h"
#include "format/gguf/metadata_builder.h"
#include "tests/format/gguf/gguf_writer.h"
#include "tests/testing/file_size_limit.h"

namespace aerie::gguf_write_test {

using test::GgufWriter;
using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

class GgufWrite : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = "/tmp/aerie_write_" + std::to_string(getpid());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string read(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  int files() const {
    return static_cast<int>(std::distance(std::filesystem::directory_iterator(folder_),
                                          std::filesystem::directory_iterator()));
  }
  // As llama.cpp writes it: every tensor is padded, the last too.
  static std::string canonical(const GgufWriter& writer, size_t alignment = 32) {
    Bytes bytes = writer.bytes();
    bytes.resize((bytes.size() + alignment - 1) / alignment * alignment);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  void expect_same(const GgufWriter& writer, size_t alignment = 32) const {
    const Bytes bytes = writer.bytes();
    const auto file = GgufFile::parse(bytes, "memory");
    ASSERT_TRUE(file.ok()) << file.status().message();
    const Status status = write_gguf(**file, path("out.gguf"));
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(read("out.gguf") == canonical(writer, alignment));
    EXPECT_EQ(files(), 1);
  }

  std::string folder_;
};

GgufWriter everything() {
  GgufWriter writer;
  writer.add_u8("u8", 255).add_i8("i8", -128).add_u16("u16", 65535).add_i16("i16", -32768);
  writer.add_u32("u32", 4294967295u).add_i32("i32", std::numeric_limits<int32_t>::min());
  writer.add_u64("u64", UINT64_MAX).add_i64("i64", INT64_MIN).add_f32("f32", 0.1f);
  writer.add_f64("f64", 0.1).add_bool("yes", true).add_bool("no", false);
  writer.add_f32("inf", std::numeric_limits<float>::infinity());
  writer.add_string("string", "text\n\xFF").add_string("empty", "");
  writer.add_array<uint8_t>("au8", {0, 255}).add_array<int8_t>("ai8", {-128, 127});
  writer.add_array<uint16_t>("au16", {65535}).add_array<int16_t>("ai16", {-32768});
  writer.add_array<uint32_t>("au32", {4294967295u}).add_array<int32_t>("ai32", {-7, 7});
  writer.add_array<uint64_t>("au64", {UINT64_MAX}).add_array<int64_t>("ai64", {INT64_MIN});
  writer.add_array<float>("af32", {0.1f, -0.0f}).add_array<double>("af64", {0.1});
  writer.add_array<bool>("abool", {true, false}).add_array<std::string>("as", {"a", "", "ä"});
  writer.add_array<float>("none", {}).add_array<std::string>("no strings", {});
  return writer;
}

GgufWriter& add_tensors(GgufWriter& writer) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto type = static_cast<DType>(i);
    const int64_t block = dtype_info(type).block_elements;
    Bytes bytes(static_cast<size_t>(dtype_bytes(type, block * 6)));
    for (size_t k = 0; k < bytes.size(); ++k) bytes[k] = static_cast<std::byte>(k * 7 + 1);
    writer.add_tensor_bytes(dtype_info(type).name, type, {block, 3, 2}, bytes);
  }
  return writer.add_tensor("one", DType::kF32, {1}, std::vector<float>{0.5f});
}

TEST_F(GgufWrite, MetadataOfEveryType) {
  expect_same(everything());
}

TEST_F(GgufWrite, TensorsOfEveryType) {
  GgufWriter writer = everything();
  expect_same(add_tensors(writer));
}

TEST_F(GgufWrite, NothingAtAll) {
  expect_same(GgufWriter());
}

TEST_F(GgufWrite, Alignments) {
  for (const uint32_t alignment : {8u, 64u, 4096u}) {
    GgufWriter writer;
    writer.set_alignment(alignment).add_u32("general.alignment", alignment);
    expect_same(add_tensors(writer), alignment);
  }
}

TEST_F(GgufWrite, OlderVersionsAndPartsBecomeOneFile) {
  for (const int number : {0, 1}) {
    GgufWriter writer(2);
    writer.add_u16("split.no", static_cast<uint16_t>(number)).add_u16("split.count", 2);
    writer.add_i32("split.tensors.count", 2);
    if (number == 0) writer.add_u32("a", 1);
    writer.add_tensor(number == 0 ? "x" : "y", DType::kF32, {4}, std::vector<float>(4, 0.5f));
    ASSERT_TRUE(writer.write(gguf_split_path(path("m"), number, 2)).ok());
  }
  const auto parts = GgufFile::open(gguf_split_path(path("m"), 0, 2));
  ASSERT_TRUE(parts.ok()) << parts.status().message();
  ASSERT_TRUE(write_gguf(**parts, path("out.gguf")).ok());
  GgufWriter whole;
  whole.add_u32("a", 1);
  for (const char* name : {"x", "y"}) {
    whole.add_tensor(name, DType::kF32, {4}, std::vector<float>(4, 0.5f));
  }
  EXPECT_TRUE(read("out.gguf") == canonical(whole));
}

TEST_F(GgufWrite, ReplacesAFileButNotItsSource) {
  std::ofstream(path("out.gguf")) << "old";
  ASSERT_TRUE(everything().write(path("in.gguf")).ok());
  std::filesystem::create_hard_link(path("in.gguf"), path("link.gguf"));
  const auto file = GgufFile::open(path("in.gguf"));
  ASSERT_TRUE(file.ok());
  for (const char* name : {"in.gguf", "./in.gguf", "link.gguf"}) {
    const Status status = write_gguf(**file, path(name));
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("is the file that is read"));
  }
  EXPECT_TRUE(write_gguf(**file, path("out.gguf")).ok());
  EXPECT_TRUE(read("out.gguf") == canonical(everything()));
}

TEST_F(GgufWrite, PlacesThatCannotBeWritten) {
  const Bytes bytes = everything().bytes();
  const auto file = GgufFile::parse(bytes, "memory");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(write_gguf(**file, path("no/such/out.gguf")).code(), StatusCode::kNotFound);
  const Status folder = write_gguf(**file, folder_);
  EXPECT_EQ(folder.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(folder.message(), HasSubstr("is not a regular file"));
  EXPECT_EQ(files(), 0);
}

TEST_F(GgufWrite, WhatCannotBeWritten) {
  const auto refuse = [&](const GgufWriter& writer, const std::string& message) {
    const Bytes bytes = writer.bytes();
    const auto file = GgufFile::parse(bytes, "memory");
    ASSERT_TRUE(file.ok()) << file.status().message();
    const Status status = write_gguf(**file, path("out.gguf"));
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_THAT(status.message(), HasSubstr(message));
    EXPECT_EQ(files(), 0);
  };
  GgufWriter nested;
  Bytes value(24);  // an array of one array of no u8
  value[0] = std::byte{9};
  value[4] = std::byte{1};
  nested.add_raw("deep", 9, value);
  refuse(nested, "memory: metadata key 'deep': is an array of array, whose values were not kept");
  GgufWriter tensor;
  tensor.add_raw_tensor("odd", 26, {4}, Bytes(16));
  refuse(tensor, "tensor 'odd' is of type i32");
  GgufWriter aligned;
  aligned.set_alignment(8192).add_u32("general.alignment", 8192);
  refuse(aligned, "'general.alignment' is 8192");
}

TEST_F(GgufWrite, AFullDiskLeavesNothing) {
  GgufWriter writer = everything();
  const Bytes bytes = add_tensors(writer).bytes();
  const auto file = GgufFile::parse(bytes, "memory");
  ASSERT_TRUE(file.ok());
  std::ofstream(path("out.gguf")) << "old";
  for (const size_t room : {size_t{0}, size_t{100}, writer.header_size() + 33, bytes.size() - 1}) {
    Status status;
    {
      const test::FileSizeLimit limit(room);
      status = write_gguf(**file, path("out.gguf"));
    }
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(status.message(), HasSubstr("out.gguf: cannot write: "));
    EXPECT_EQ(files(), 1);
    EXPECT_EQ(read("out.gguf"), "old");
  }
}

// Two tensors, of which the second turns out as `second`. Counts what is released.
class MadeFile final : public ModelFile {
 public:
  explicit MadeFile(Expected<Shape> second) : ModelFile("made"), second_(std::move(second)) {
    const GgmlType& f32 = ggml_type_of(DType::kF32);
    std::vector<TensorInfo> tensors;
    for (const char* name : {"a", "b"}) {
      tensors.push_back({name, f32.name, f32.id, {4, 1, 1, 1}, 0, 16, DType::kF32});
    }
    builder_.add_string("key", "value");
    set_contents(builder_.release(), std::move(tensors));
  }
  std::string format() const override { return "made"; }
  int64_t file_bytes() const override { return 0; }
  void release(const TensorView&) const override { ++released; }
  mutable int released = 0;

 private:
  Expected<TensorData> read_tensor(const TensorInfo& tensor) const override {
    TensorData data;
    AERIE_ASSIGN_OR_RETURN(data.owned, Buffer::allocate(64));
    data.view = {DType::kF32, Device::kCpu, tensor.shape, data.owned.data()};
    if (tensor.name == "a") return data;
    AERIE_ASSIGN_OR_RETURN(data.view.shape, second_);
    return data;
  }
  Expected<Shape> second_;
  MetadataBuilder builder_;
};

TEST_F(GgufWrite, MadeTensorsAreReleased) {
  const MadeFile file(Shape{4, 1, 1, 1});
  ASSERT_TRUE(write_gguf(file, path("out.gguf")).ok());
  EXPECT_EQ(file.released, 2);
  const auto again = GgufFile::open(path("out.gguf"));
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(*(*again)->string("key"), "value");
  EXPECT_TRUE((*again)->tensor("b").ok());
}

TEST_F(GgufWrite, ATensorThatCannotBeReadLeavesNothing) {
  const MadeFile file(Status(StatusCode::kResourceExhausted, "no memory for b"));
  const Status status = write_gguf(file, path("out.gguf"));
  EXPECT_EQ(status.message(), "no memory for b");
  EXPECT_EQ(files(), 0);
  const MadeFile wrong(Shape{2, 2, 1, 1});
  EXPECT_THAT(write_gguf(wrong, path("out.gguf")).message(),
              HasSubstr("made: tensor 'b' is not as it was described"));
  EXPECT_EQ(files(), 0);
}

}  // namespace aerie::gguf_write_test
