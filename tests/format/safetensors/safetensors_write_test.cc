#include "format/safetensors/safetensors_write.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

namespace aerie::safetensors_write_test {

using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

class SafetensorsWrite : public ::testing::Test {
 protected:
  SafetensorsWrite()
      : path_(testing::TempDir() + "/aerie_write_" + std::to_string(getpid()) + ".safetensors") {}
  ~SafetensorsWrite() override { std::filesystem::remove(path_); }

  // Each tensor's bytes count up from its number times 16, in parts of three.
  Expected<int64_t> write(const std::vector<SafetensorsEntry>& tensors, size_t bytes) {
    const std::vector<std::pair<std::string, std::string>> metadata = {{"format", "pt"},
                                                                       {"note", "a \"b\"\n"}};
    return write_safetensors(path_, tensors, metadata, [&](size_t index, const ByteSink& sink) {
      std::vector<std::byte> part;
      for (size_t i = 0; i < bytes; ++i) {
        part.push_back(static_cast<std::byte>(16 * index + i));
        if (part.size() < 3 && i + 1 < bytes) continue;
        AERIE_RETURN_IF_ERROR(sink(part));
        part.clear();
      }
      return Status();
    });
  }
  void expect_refused(const std::vector<SafetensorsEntry>& tensors, StatusCode code,
                      const std::string& part) {
    const auto written = write(tensors, 8);
    EXPECT_EQ(written.status().code(), code) << written.status().message();
    EXPECT_THAT(written.status().message(), HasSubstr(part));
    EXPECT_FALSE(std::filesystem::exists(path_));
  }

  std::string path_;
};

TEST_F(SafetensorsWrite, WhatIsWrittenIsRead) {
  const auto written = write({{"b\xC3\xA4", SafetensorsType::kBF16, {2, 2}},
                              {"mask", SafetensorsType::kBool, {8}},
                              {"a", SafetensorsType::kF32, {2}},
                              {"scalar", SafetensorsType::kI64, {}}},
                             8);
  ASSERT_TRUE(written.ok()) << written.status().message();
  const auto file = SafetensorsFile::open(path_);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->file_bytes(), *written);
  EXPECT_THAT(file->metadata(),
              UnorderedElementsAre(Pair("format", "pt"), Pair("note", "a \"b\"\n")));
  std::vector<std::string> order;
  for (const SafetensorsTensor& tensor : file->tensors()) order.push_back(tensor.name);
  EXPECT_EQ(order, (std::vector<std::string>{"scalar", "a", "b\xC3\xA4", "mask"}));
  const SafetensorsTensor* a = file->find("a");
  EXPECT_EQ(a->shape, (std::vector<int64_t>{2}));
  EXPECT_EQ(a->data[0], std::byte{32});
  EXPECT_EQ(a->data[7], std::byte{39});
  EXPECT_EQ(file->find("scalar")->shape.size(), 0u);
  EXPECT_EQ((file->tensors()[0].data.data() - file->bytes().data()) % 8, 0);
}

TEST_F(SafetensorsWrite, NoTensorsAtAll) {
  ASSERT_TRUE(write({}, 0).ok());
  const auto file = SafetensorsFile::open(path_);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_TRUE(file->tensors().empty());
}

TEST_F(SafetensorsWrite, Refusals) {
  constexpr auto kWrong = StatusCode::kInvalidArgument;
  const auto f32 = SafetensorsType::kF32;
  expect_refused({{"", f32, {2}}}, kWrong, "cannot have");
  expect_refused({{"\xFF", f32, {2}}}, kWrong, "'\\xff' has a name");
  expect_refused({{"__metadata__", f32, {2}}}, kWrong, "cannot have");
  expect_refused({{"a", f32, {2}}, {"a", f32, {2}}}, kWrong, "'a' is there twice");
  expect_refused({{"a", f32, {-2}}}, kWrong, "has the size -2");
  expect_refused({{"a", f32, {int64_t{1} << 40, int64_t{1} << 40}}}, kWrong, "more bytes");
  expect_refused({{"a", SafetensorsType::kF4, {3}}}, kWrong, "does not fill whole bytes");
  expect_refused({{"a", f32, {3}}}, StatusCode::kInternal, "of 12 bytes was given -4");
}

TEST_F(SafetensorsWrite, MetadataHaveNoKeyTwice) {
  const std::vector<std::pair<std::string, std::string>> metadata = {{"a", "1"}, {"a", "2"}};
  const auto written =
      write_safetensors(path_, {}, metadata, [](size_t, const ByteSink&) { return Status(); });
  EXPECT_EQ(written.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(written.status().message(), HasSubstr("metadata key 'a' is there twice"));
}

TEST_F(SafetensorsWrite, ErrorsOfValuesLeaveNothing) {
  const std::vector<SafetensorsEntry> tensors = {{"a", SafetensorsType::kF32, {2}}};
  const auto written = write_safetensors(path_, tensors, {}, [](size_t, const ByteSink&) {
    return Status(StatusCode::kCancelled, "stop");
  });
  EXPECT_EQ(written.status().code(), StatusCode::kCancelled);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

}  // namespace aerie::safetensors_write_test
