// Models in several GGUF files: any part opens all of them, and parts that do not belong together
// are refused.
#include "format/gguf/gguf_split.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "format/gguf/gguf.h"
#include "tests/format/gguf/gguf_writer.h"

namespace aerie::gguf_split_test {

using test::GgufWriter;
using ::testing::HasSubstr;

// A part with tensors t0, t1, ..., each of four floats: its number.
GgufWriter part(int number, int count, int tensors, int first, int last) {
  GgufWriter writer;
  if (number == 0) writer.add_string("general.architecture", "llama").add_u32("llama.x", 7);
  writer.add_u16("split.no", static_cast<uint16_t>(number));
  writer.add_u16("split.count", static_cast<uint16_t>(count));
  writer.add_i32("split.tensors.count", tensors);
  for (int i = first; i < last; ++i) {
    writer.add_tensor(fmt::format("t{}", i), DType::kF32, {4},
                      std::vector<float>(4, static_cast<float>(i)));
  }
  return writer;
}

class GgufSplits : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = "/tmp/aerie_split_" + std::to_string(getpid());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
    write(0, part(0, 3, 5, 0, 2));
    write(1, part(1, 3, 5, 2, 4));
    write(2, part(2, 3, 5, 4, 5));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(int number, int count = 3) const {
    return gguf_split_path(folder_ + "/m", number, count);
  }
  void write(int number, const GgufWriter& writer) const {
    ASSERT_TRUE(writer.write(path(number)).ok());
  }
  void expect_invalid(const std::string& message) const {
    const Status status = GgufFile::open(path(0)).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidData);
    EXPECT_THAT(status.message(), HasSubstr(message));
    EXPECT_TRUE(status.message().starts_with(folder_)) << status.message();
  }

  std::string folder_;
};

TEST_F(GgufSplits, AnyPartOpensAll) {
  for (const int opened : {0, 1, 2}) {
    const auto file = GgufFile::open(path(opened));
    ASSERT_TRUE(file.ok()) << file.status().message();
    const GgufFile& gguf = **file;
    EXPECT_EQ(gguf.name(), path(opened));
    EXPECT_EQ(gguf.format(), "GGUF version 3 in 3 parts");
    EXPECT_EQ(gguf.metadata().size(), 2u) << "the keys about parts are gone";
    EXPECT_EQ(*gguf.integer("llama.x"), 7);
    EXPECT_EQ(gguf.find("split.count"), nullptr);
    ASSERT_EQ(gguf.tensors().size(), 5u);
    for (int i = 0; i < 5; ++i) {
      const std::string name = fmt::format("t{}", i);
      EXPECT_EQ(gguf.tensors()[static_cast<size_t>(i)].name, name);
      const TensorData data = gguf.read(name).value();
      float last = -1.0f;
      std::memcpy(&last, data.view.data + 12, sizeof(last));
      EXPECT_EQ(last, static_cast<float>(i));
      gguf.release(data.view);
    }
    int64_t bytes = 0;
    for (const int i : {0, 1, 2})
      bytes += static_cast<int64_t>(std::filesystem::file_size(path(i)));
    EXPECT_EQ(gguf.file_bytes(), bytes);
  }
}

TEST_F(GgufSplits, AFirstPartWithoutTensors) {
  write(0, part(0, 3, 3, 0, 0));
  write(1, part(1, 3, 3, 2, 4));
  write(2, part(2, 3, 3, 4, 5));
  const auto file = GgufFile::open(path(2));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ((*file)->tensors().size(), 3u);
}

TEST_F(GgufSplits, OnePartIsAWholeFile) {
  ASSERT_TRUE(part(0, 1, 2, 0, 2).write(folder_ + "/whole.gguf").ok());
  const auto file = GgufFile::open(folder_ + "/whole.gguf");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ((*file)->tensors().size(), 2u);
}

TEST_F(GgufSplits, MissingParts) {
  std::filesystem::remove(path(1));
  for (const int opened : {0, 2}) {
    const Status status = GgufFile::open(path(opened)).status();
    EXPECT_EQ(status.code(), StatusCode::kNotFound);
    EXPECT_EQ(status.message(), path(1) + ": part 2 of 3 of the model is missing");
  }
  EXPECT_EQ(GgufFile::open(path(1)).status().message(), path(1) + ": there is no such file");
}

TEST_F(GgufSplits, NamesAndKeysDisagree) {
  const std::string other = folder_ + "/other.gguf";
  std::filesystem::copy(path(1), other);
  const Status renamed = GgufFile::open(other).status();
  EXPECT_EQ(renamed.code(), StatusCode::kInvalidData);
  EXPECT_THAT(renamed.message(), HasSubstr("is part 2 of 3 of a model, so its name must end in "
                                           "-00002-of-00003.gguf"));
  write(1, part(2, 3, 5, 2, 4));
  expect_invalid(
      "m-00002-of-00003.gguf: is part 3 of 3 of a model of 5 tensors by its keys; part "
      "2 of 3 of 5 tensors is wanted");
  write(1, part(1, 4, 5, 2, 4));
  expect_invalid("is part 2 of 4 of a model of 5 tensors by its keys");
  write(1, part(1, 3, 6, 2, 4));
  expect_invalid("is part 2 of 3 of a model of 6 tensors by its keys");
  write(1, GgufWriter());
  expect_invalid("is part 1 of 1 of a model of 0 tensors by its keys");
}

TEST_F(GgufSplits, TensorsDisagree) {
  write(1, part(1, 3, 5, 2, 3));
  expect_invalid("the 3 parts hold 4 tensors, but metadata key 'split.tensors.count' is 5");
  write(1, part(1, 3, 5, 1, 3));
  expect_invalid("tensor 't1' is in more than one part");
}

TEST_F(GgufSplits, BrokenParts) {
  std::filesystem::resize_file(path(2), std::filesystem::file_size(path(2)) - 8);
  expect_invalid("m-00003-of-00003.gguf: tensor 't4': ");
}

TEST_F(GgufSplits, BrokenKeys) {
  const auto refused = [&](const GgufWriter& writer, const std::string& message) {
    write(0, writer);
    expect_invalid("m-00001-of-00003.gguf: metadata key " + message);
  };
  refused(GgufWriter().add_string("split.count", "3"), "'split.count' is not a number of things");
  refused(GgufWriter().add_i32("split.count", -3), "'split.count' is not a number of things");
  refused(GgufWriter().add_u64("split.count", UINT64_MAX), "'split.count' is not a number");
  refused(GgufWriter().add_u32("split.count", 100000), "'split.count' is 100000, more than 99999");
  refused(GgufWriter().add_u32("split.count", 3).add_u32("split.no", 3),
          "'split.no' is 3, but there are 3 parts");
  refused(GgufWriter().add_u32("split.count", 3).add_f32("split.tensors.count", 1),
          "'split.tensors.count' is not a number of things");
}

TEST(GgufSplit, BytesInMemoryAreWholeModels) {
  const std::vector<std::byte> bytes = part(1, 3, 5, 2, 4).bytes();
  const Status status = GgufFile::parse(bytes, "x.gguf").status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_EQ(status.message(),
            "x.gguf: is part 2 of 3 of a model, and parts are read from files only");
}

TEST(GgufSplit, Names) {
  EXPECT_EQ(gguf_split_path("a/m", 0, 3), "a/m-00001-of-00003.gguf");
  EXPECT_EQ(gguf_split_path("m", 99998, 99999), "m-99999-of-99999.gguf");
  EXPECT_EQ(*gguf_split_prefix("a/m-00002-of-00003.gguf", {1, 3, {}}), "a/m");
  EXPECT_FALSE(gguf_split_prefix("a/m-00002-of-00003.gguf", {0, 3, {}}).ok());
  EXPECT_FALSE(gguf_split_prefix("a/m-2-of-3.gguf", {1, 3, {}}).ok());
}

}  // namespace aerie::gguf_split_test
