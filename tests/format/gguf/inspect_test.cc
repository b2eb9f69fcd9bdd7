#include "tools/files/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/format/gguf/gguf_writer.h"
#include "tests/format/safetensors/safetensors_writer.h"

namespace aerie::inspect_test {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class Inspect : public ::testing::Test {
 protected:
  void SetUp() override {
    std::vector<std::string> tokens(100, "token");
    tokens[1] = "\x1b[31m";
    tokens[2] = "\xFF";
    test::GgufWriter writer;
    writer.add_string("general.architecture", "llama").add_string("general.name", "Tiny\nmodel");
    writer.add_u32("llama.block_count", 2).add_f32("eps", 1e-5f).add_bool("flag", true);
    writer.add_array<std::string>("tokens", tokens).add_array<int32_t>("few", {-1, 2});
    writer.add_array<float>("none", {}).add_string("long", std::string(5000, 'x'));
    writer.add_f64("nan", std::numeric_limits<double>::quiet_NaN());
    writer.add_tensor("blk.0.w", DType::kQ4_1, {32, 4}, std::vector<float>(128));
    writer.add_tensor("blk.1.w", DType::kQ4_1, {32, 4}, std::vector<float>(128));
    writer.add_tensor("norm", DType::kF32, {32}, std::vector<float>(32));
    writer.add_raw_tensor("odd", 19, {256}, std::vector<std::byte>(50));
    writer.add_raw_tensor("odder", 999, {int64_t{1} << 62}, std::vector<std::byte>(1));
    writer.add_raw_tensor("oddest", 999, {int64_t{1} << 62, 1}, std::vector<std::byte>(1));
    ASSERT_TRUE(writer.write(path_).ok());
  }
  void TearDown() override { std::remove(path_.c_str()); }

  std::string run(const InspectOptions& options) {
    std::ostringstream out;
    const Status status = inspect(path_, options, out);
    EXPECT_TRUE(status.ok()) << status.message();
    return out.str();
  }
  std::string path_ = ::testing::TempDir() + "aerie_inspect_test.gguf";
};

TEST_F(Inspect, Text) {
  const std::string text = run({});
  EXPECT_THAT(text, HasSubstr("Architecture: llama\n"));
  EXPECT_THAT(text, HasSubstr("Name:         Tiny\\nmodel\n"));
  EXPECT_THAT(text, HasSubstr("Parameters:   544\n"));
  EXPECT_THAT(text, HasSubstr("Metadata (10 keys)\n"));
  EXPECT_THAT(text, HasSubstr("f32              1e-05\n"));
  EXPECT_THAT(text, HasSubstr("array of i32     [-1, 2]\n"));
  EXPECT_THAT(text,
              HasSubstr("[\"token\", \"\\x1b[31m\", \"\\xff\", \"token\", \"token\", \"token\", "
                        "and 94 more]\n"));
  EXPECT_THAT(text, HasSubstr("q4_1                         2         256    160\n"));
  EXPECT_THAT(text, HasSubstr("iq1_s (unsupported)          1         256     50\n"));
  EXPECT_THAT(text, HasSubstr("unknown (unsupported)        2           0      0\n"));
  EXPECT_THAT(text, Not(HasSubstr("blk.0.w")));
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_LT(text.size(), 3000u) << "long values are abbreviated";
}

TEST_F(Inspect, TextWithTensors) {
  const std::string text = run({.json = false, .tensors = true});
  EXPECT_THAT(text, HasSubstr("blk.1.w  q4_1     [32, 4]"));
  EXPECT_THAT(text, HasSubstr("odder    unknown  [4611686018427387904]"));
}

TEST_F(Inspect, Json) {
  const json object = json::parse(run({.json = true, .tensors = false}));
  EXPECT_EQ(object["file"], path_);
  EXPECT_EQ(object["version"], 3);
  EXPECT_EQ(object["architecture"], "llama");
  EXPECT_EQ(object["parameters"], 544);
  EXPECT_EQ(object["tensor_count"], 6);
  EXPECT_EQ(object["types"][0]["type"], "q4_1");
  EXPECT_EQ(object["types"][0]["tensors"], 2);
  EXPECT_EQ(object["types"][2]["supported"], false);
  const json& metadata = object["metadata"];
  EXPECT_EQ(metadata.size(), 10u);
  EXPECT_EQ(metadata["llama.block_count"], json({{"type", "u32"}, {"value", 2}}));
  EXPECT_EQ(metadata["tokens"]["length"], 100);
  EXPECT_EQ(metadata["tokens"]["truncated"], true);
  EXPECT_EQ(metadata["tokens"]["value"].size(), 16u);
  EXPECT_EQ(metadata["few"]["value"], json({-1, 2}));
  EXPECT_EQ(metadata["none"]["value"], json::array());
  EXPECT_EQ(metadata["nan"]["value"], nullptr);
  EXPECT_EQ(metadata["long"]["value"].get<std::string>().size(), 5000u);
  EXPECT_FALSE(object.contains("tensors"));
}

TEST_F(Inspect, JsonWithTensors) {
  const json object = json::parse(run({.json = true, .tensors = true}));
  const json& tensor = object["tensors"][1];
  EXPECT_EQ(tensor["name"], "blk.1.w");
  EXPECT_EQ(tensor["shape"], json({32, 4, 1, 1}));
  EXPECT_EQ(tensor["bytes"], 80);
  EXPECT_EQ(tensor["offset"].get<int64_t>() % 32, 0);
}

TEST_F(Inspect, PyTorchFiles) {
  std::ostringstream out;
  const Status status =
      inspect("tests/fuzz/corpus/torch/nested.pt", {.json = true, .tensors = true}, out);
  ASSERT_TRUE(status.ok()) << status.message();
  const json object = json::parse(out.str());
  EXPECT_EQ(object["format"], "pytorch");
  EXPECT_EQ(object["tensor_count"], 8);
  EXPECT_EQ(object["tensors"][0]["name"], "model.fc.weight");
  EXPECT_EQ(object["tensors"][0]["shape"], json({2, 3, 1, 1}));
  EXPECT_EQ(object["tensors"][5]["type"], "I64");
  EXPECT_EQ(object["metadata"]["epoch"]["value"], "3");
  const Status refused = inspect("tests/fuzz/corpus/torch/runs_system.pt", {}, out);
  EXPECT_EQ(refused.code(), StatusCode::kUnsupported);
  EXPECT_THAT(refused.message(), HasSubstr("'posix.system'"));
}

// A folder that is no model of a known family, and a safetensors file alone.
TEST_F(Inspect, DraftHeads) {
  const std::filesystem::path folder = ::testing::TempDir() + "aerie_inspect_head";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << R"({"medusa_num_heads": 2})";
  ASSERT_TRUE(test::SafetensorsWriter()
                  .add("0.0.linear.weight", {2, 3}, std::vector<float>(6))
                  .write(folder / "head.safetensors")
                  .ok());
  for (const auto& path : {folder, folder / "head.safetensors"}) {
    std::ostringstream out;
    const Status status = inspect(path, {.json = false, .tensors = true}, out);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_THAT(out.str(), HasSubstr("Format:       safetensors\n"));
    EXPECT_THAT(out.str(), HasSubstr("0.0.linear.weight  f32   [3, 2]"));
  }
  std::filesystem::remove(folder / "head.safetensors");
  std::ostringstream out;
  const Status status = inspect(folder, {}, out);
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("model_type")) << "as of a model";
  std::filesystem::remove_all(folder);
}

TEST_F(Inspect, AnUnreadableFileWritesNothing) {
  std::ostringstream out;
  EXPECT_EQ(inspect(path_ + ".absent", {}, out).code(), StatusCode::kNotFound);
  EXPECT_EQ(out.str(), "");
}

}  // namespace aerie::inspect_test
