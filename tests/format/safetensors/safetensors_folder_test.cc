// Hugging Face folders: one file, shards with an index, and all that can be wrong with them.
#include "format/safetensors/safetensors_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/format/safetensors/safetensors_writer.h"

namespace aerie::safetensors_folder_test {

using test::SafetensorsWriter;
using ::testing::HasSubstr;

class SafetensorsFolders : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = "/tmp/aerie_folder_" + std::to_string(getpid());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& file) const { return folder_ + "/" + file; }
  void write_text(const std::string& file, const std::string& text) const {
    std::ofstream(path(file), std::ios::binary) << text;
  }
  void write_shard(const std::string& file, const std::vector<std::string>& names) const {
    SafetensorsWriter writer;
    for (const std::string& name : names) writer.add(name, {2}, {1.0f, 2.0f});
    ASSERT_TRUE(writer.write(path(file)).ok());
  }
  void write_index(const std::string& weight_map) const {
    write_text("model.safetensors.index.json",
               R"({"metadata":{"total_size":32},"weight_map":)" + weight_map + "}");
  }
  void expect_error(StatusCode code, const std::string& message) const {
    const Status status = SafetensorsFolder::open(folder_).status();
    EXPECT_EQ(status.code(), code) << message;
    EXPECT_THAT(status.message(), HasSubstr(message));
    EXPECT_TRUE(status.message().starts_with(folder_)) << status.message();
  }

  std::string folder_;
};

constexpr const char* kMap =
    R"({"a":"m-1.safetensors","b":"m-2.safetensors","c":"m-1.safetensors"})";

TEST_F(SafetensorsFolders, OneFile) {
  write_shard("model.safetensors", {"x", "y"});
  write_shard("other.safetensors", {"z"});
  auto opened = SafetensorsFolder::open(folder_);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const SafetensorsFolder folder = *std::move(opened);
  EXPECT_EQ(folder.name(), folder_);
  EXPECT_EQ(folder.shards().size(), 1u);
  EXPECT_EQ(folder.tensors().size(), 2u);
  ASSERT_NE(folder.find("y"), nullptr);
  EXPECT_EQ(folder.find("y")->elements(), 2);
  EXPECT_EQ(folder.find("z"), nullptr);
  EXPECT_EQ(folder.file_bytes(),
            static_cast<int64_t>(std::filesystem::file_size(path("model.safetensors"))));
  folder.release(folder.find("y")->data);
}

TEST_F(SafetensorsFolders, Shards) {
  write_index(kMap);
  write_shard("m-1.safetensors", {"a", "c"});
  write_shard("m-2.safetensors", {"b"});
  auto opened = SafetensorsFolder::open(folder_);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const SafetensorsFolder folder = *std::move(opened);
  EXPECT_EQ(folder.shards().size(), 2u);
  ASSERT_EQ(folder.tensors().size(), 3u);
  for (const SafetensorsTensor* tensor : folder.tensors()) {
    EXPECT_EQ(folder.find(tensor->name), tensor);
    EXPECT_EQ(tensor->data.size(), 8u);
  }
  EXPECT_EQ(folder.file_bytes(), folder.shards()[0].file_bytes() + folder.shards()[1].file_bytes());
}

TEST_F(SafetensorsFolders, NothingToRead) {
  expect_error(StatusCode::kNotFound,
               "holds neither model.safetensors nor model.safetensors.index.json");
  write_text("pytorch_model.bin", "PK");
  expect_error(StatusCode::kNotFound, "only PyTorch's pickle files");
  expect_error(StatusCode::kNotFound, "aerie inspect ");
  write_shard("consolidated.safetensors", {"x"});
  expect_error(StatusCode::kNotFound, "there are other models: consolidated.safetensors");
  const std::string absent = path("absent");
  EXPECT_EQ(SafetensorsFolder::open(absent).status().message(),
            absent + ": there is no such folder");
  EXPECT_EQ(SafetensorsFolder::open(path("pytorch_model.bin")).status().message(),
            path("pytorch_model.bin") + ": is not a folder");
}

TEST_F(SafetensorsFolders, PointersAndLinks) {
  write_text("model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n");
  expect_error(StatusCode::kInvalidData, "git lfs pull");
  std::filesystem::remove(path("model.safetensors"));
  std::filesystem::create_symlink("nowhere", path("model.safetensors"));
  expect_error(StatusCode::kNotFound, "model.safetensors: there is no such file");
}

TEST_F(SafetensorsFolders, IndexAndShardsDisagree) {
  write_index(kMap);
  write_shard("m-1.safetensors", {"a", "c"});
  expect_error(StatusCode::kNotFound,
               "shard m-2.safetensors is missing; the index places 1 tensors in it");
  write_shard("m-2.safetensors", {});
  expect_error(StatusCode::kInvalidData,
               "index.json: the index places tensor 'b' in m-2.safetensors, which does not hold");
  write_shard("m-2.safetensors", {"b", "d"});
  expect_error(StatusCode::kInvalidData,
               "tensor 'd' is in m-2.safetensors, but the index does not name it");
  write_shard("m-2.safetensors", {"b", "a"});
  expect_error(StatusCode::kInvalidData,
               "tensor 'a' is in m-2.safetensors, but the index places it in m-1.safetensors");
  write_text("m-2.safetensors", "broken");
  expect_error(StatusCode::kInvalidData, "m-2.safetensors: at least 2 bytes are missing");
}

TEST_F(SafetensorsFolders, BrokenIndexes) {
  const auto index = [&](const std::string& text, const std::string& message) {
    write_text("model.safetensors.index.json", text);
    expect_error(StatusCode::kInvalidData, message);
    expect_error(StatusCode::kInvalidData, "model.safetensors.index.json: ");
  };
  index("", "is empty, not JSON");
  index("[1]", "holds JSON of type array; an object is wanted");
  index("{", "line 1, column 2: ");
  index("{}", "there is no key 'weight_map'");
  index(R"({"weight_map":[]})", "key 'weight_map' is an array; an object is wanted");
  index(R"({"weight_map":{}})", "'weight_map' names no tensors");
  index(R"({"weight_map":{"a":1}})", "key 'weight_map.a' is a number; the name of a shard");
  index(R"({"weight_map":{"a":"s","a":"s"}})", "key 'weight_map.a' occurs twice");
  index("version https://git-lfs.github.com/spec/v1\n", "git lfs pull");
}

TEST_F(SafetensorsFolders, ShardNamesStayInTheFolder) {
  const auto name = [&](const std::string& shard, const std::string& message) {
    write_index(R"({"a":")" + shard + R"("})");
    expect_error(StatusCode::kInvalidData, message);
  };
  name("../x.safetensors", "leads to another folder");
  name("/etc/x.safetensors", "leads to another folder");
  name("a\\\\x.safetensors", "leads to another folder");
  name("..", "does not end in .safetensors");
  name("", "does not end in .safetensors");
  name("model.bin", "does not end in .safetensors");
  name("a\\u0000.safetensors", "contains a NUL byte");
  name(std::string(300, 'x') + ".safetensors", "is too long");
}

}  // namespace aerie::safetensors_folder_test
