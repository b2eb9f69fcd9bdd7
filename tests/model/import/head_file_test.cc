// Draft heads as they are published: what a folder's tensors are called, how they are converted,
// what its configuration comes to, and what is refused.
#include "model/import/head_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "format/fingerprint.h"
#include "model/weights.h"
#include "tensor/quantize.h"
#include "tests/format/safetensors/safetensors_writer.h"

namespace aerie::test::head_file_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kConfig = R"({
  "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": 64,
  "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
  "intermediate_size": 96, "max_position_embeddings": 512, "rms_norm_eps": 1e-5,
  "vocab_size": 100, "draft_vocab_size": 40})";

std::vector<float> ramp(int64_t elements, float start = -1.0f) {
  std::vector<float> values(static_cast<size_t>(elements));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = start + static_cast<float>(i % 251) * 0.013f;
  }
  return values;
}

template <typename T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::vector<std::byte> bfloat_bytes(const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * 2);
  quantize(DType::kBF16, values.data(), static_cast<int64_t>(values.size()), bytes.data());
  return bytes;
}

std::vector<float> floats_of(const TensorData& data) {
  std::vector<float> values(static_cast<size_t>(data.view.elements()));
  dequantize(data.view.dtype, data.view.data, data.view.elements(), values.data());
  return values;
}

class HeadFileTest : public ::testing::Test {
 protected:
  HeadFileTest()
      : path_(testing::TempDir() +
              fmt::format("/aerie_{}_{}", getpid(),
                          testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~HeadFileTest() override { std::filesystem::remove_all(path_); }

  std::string file(const std::string& name) const { return path_ + "/" + name; }
  void write_text(const std::string& name, const std::string& text) const {
    std::ofstream(file(name), std::ios::binary) << text;
  }
  void write(const SafetensorsWriter& writer, const std::string& name = "model.safetensors") const {
    ASSERT_TRUE(writer.write(file(name)).ok());
  }

  std::unique_ptr<HeadFile> open(const HeadFileOptions& options = {}) const {
    auto head = HeadFile::open(path_, options);
    EXPECT_TRUE(head.ok()) << head.status().message();
    return head.ok() ? *std::move(head) : nullptr;
  }
  void expect_refused(StatusCode code, const std::string& part) const {
    const Status status = HeadFile::open(path_, {}).status();
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_THAT(status.message(), HasSubstr(part));
  }

  std::string path_;
};

std::vector<std::string> names_of(const HeadFile& head) {
  std::vector<std::string> names;
  for (const TensorInfo& tensor : head.tensors()) names.emplace_back(tensor.name);
  return names;
}

TEST_F(HeadFileTest, NamesLayersAsGgufDoesAndKeepsOtherNames) {
  write_text("config.json", kConfig);
  write(SafetensorsWriter()
            .add("model.fc.weight", {64, 192}, ramp(64 * 192))
            .add("model.midlayer.self_attn.q_proj.weight", {64, 128}, ramp(64 * 128))
            .add("model.midlayer.self_attn.q_proj.bias", {64}, ramp(64))
            .add("midlayer.hidden_norm.weight", {64}, ramp(64))
            .add("model.layers.12.self_attn.k_norm.weight", {16}, ramp(16))
            .add("mask_hidden", {1, 1, 6}, ramp(6)));
  const auto head = open();
  ASSERT_NE(head, nullptr);
  EXPECT_THAT(names_of(*head),
              ElementsAre("model.fc.weight", "model.midlayer.self_attn.q_proj.weight",
                          "model.midlayer.self_attn.q_proj.bias", "midlayer.hidden_norm.weight",
                          "model.layers.12.self_attn.k_norm.weight", "mask_hidden"));
  ASSERT_TRUE(head->rename_prefix("model.midlayer.", "layers.0.").ok());
  ASSERT_TRUE(head->rename_prefix("midlayer.", "layers.0.").ok());
  ASSERT_TRUE(head->rename_prefix("model.", "").ok());
  EXPECT_THAT(names_of(*head), ElementsAre("fc.weight", "blk.0.attn_q.weight", "blk.0.attn_q.bias",
                                           "layers.0.hidden_norm.weight",
                                           "blk.12.attn_k_norm.weight", "mask_hidden"));
  EXPECT_EQ(head->origin_of("blk.0.attn_q.weight"), "model.midlayer.self_attn.q_proj.weight");
  EXPECT_EQ(head->find_tensor("fc.weight")->shape, (Shape{192, 64, 1, 1}));
  EXPECT_EQ(head->find_tensor("mask_hidden")->shape, (Shape{6, 1, 1, 1}));
  const auto weight = head->read("blk.0.attn_q.weight");
  ASSERT_TRUE(weight.ok()) << weight.status().message();
  EXPECT_EQ(weight->view.shape, (Shape{128, 64, 1, 1}));
  EXPECT_EQ(floats_of(*weight), ramp(64 * 128));
}

TEST_F(HeadFileTest, DraftsInTheTypeThatItsConfigurationSays) {
  write(SafetensorsWriter().add("wide.weight", {3, 64}, ramp(3 * 64)));
  const auto type_of = [&](const HeadFileOptions& options) {
    const auto head = open(options);
    return head->find_tensor("wide.weight")->dtype;
  };
  EXPECT_EQ(type_of({}), DType::kF32);
  write_text("config.json", R"({"draft_type": "q4_0"})");
  EXPECT_EQ(type_of({}), DType::kQ4_0);
  EXPECT_EQ(type_of({.dtype = DType::kQ8_0}), DType::kQ8_0);
  write_text("config.json", R"({"draft_type": "q4_k"})");
  expect_refused(StatusCode::kUnsupported, "'draft_type' is q4_k, not one of f32");
  write_text("config.json", R"({"draft_type": 4})");
  expect_refused(StatusCode::kInvalidData, "draft_type");
}

TEST_F(HeadFileTest, RefusesTwoTensorsOfOneName) {
  write(SafetensorsWriter().add("a.weight", {2}, {1, 2}).add("b.weight", {2}, {3, 4}));
  const auto head = open();
  ASSERT_NE(head, nullptr);
  const Status status = head->rename_prefix("b.", "a.");
  EXPECT_EQ(status.code(), StatusCode::kInvalidData);
  EXPECT_THAT(status.message(), HasSubstr("'b.weight' would be called 'a.weight'"));
}

TEST_F(HeadFileTest, BlueprintIsOfTheConfiguration) {
  write_text("config.json", kConfig);
  write(SafetensorsWriter().add("layers.0.mlp.up_proj.weight", {96, 64}, ramp(96 * 64)));
  const auto head = open();
  ASSERT_NE(head, nullptr);
  const auto blueprint = head->blueprint();
  ASSERT_TRUE(blueprint.ok()) << blueprint.status().message();
  const ModelConfig& config = blueprint->config;
  EXPECT_EQ(config.hidden, 64);
  EXPECT_EQ(config.heads, 4);
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.ffn, 96);
  EXPECT_EQ(config.layers, 1);
  EXPECT_EQ(config.vocab, 100);
  EXPECT_EQ(config.context, 512);
  EXPECT_FLOAT_EQ(static_cast<float>(blueprint->norm_eps), 1e-5f);
  EXPECT_EQ(blueprint->rope_style, kernels::RopeStyle::kHalves);
  EXPECT_EQ(blueprint->query_key_norm, QueryKeyNorm::kNone);
  ASSERT_EQ(blueprint->ropes.size(), 1u);
  EXPECT_EQ(blueprint->ropes[0].base, 10000.0) << "what absent means for heads";
  EXPECT_EQ(head->config()["draft_vocab_size"], 40);
}

TEST_F(HeadFileTest, BlueprintOfTheSpeculatorsFormat) {
  Json config = {{"speculators_model_type", "eagle3"},
                 {"draft_vocab_size", 40},
                 {"transformer_layer_config", Json::parse(kConfig)}};
  Json& layer = config["transformer_layer_config"];
  layer["model_type"] = "qwen3";
  layer["rope_parameters"] = {{"rope_type", "llama3"},
                              {"rope_theta", 500000.0},
                              {"factor", 8.0},
                              {"original_max_position_embeddings", 128}};
  write_text("config.json", config.dump());
  write(SafetensorsWriter()
            .add("layers.0.self_attn.q_norm.weight", {128}, ramp(128))
            .add("layers.0.self_attn.k_norm.weight", {128}, ramp(128)));
  const auto head = open();
  ASSERT_NE(head, nullptr);
  const auto blueprint = head->blueprint();
  ASSERT_TRUE(blueprint.ok()) << blueprint.status().message();
  EXPECT_EQ(blueprint->config.head_dim, 128) << "Qwen3's where it is not said";
  EXPECT_EQ(blueprint->query_key_norm, QueryKeyNorm::kHead);
  ASSERT_EQ(blueprint->ropes.size(), 1u);
  EXPECT_EQ(blueprint->ropes[0].base, 500000.0);
  EXPECT_EQ(blueprint->ropes[0].scaling, RopeScaling::kFactors);
  EXPECT_EQ(blueprint->ropes[0].factors.size(), 64u);
  EXPECT_NE(head->find_tensor("rope_freqs.weight"), nullptr);
  layer.erase("intermediate_size");
  write_text("config.json", config.dump());
  EXPECT_THAT(open()->blueprint().status().message(),
              HasSubstr("config.json: transformer_layer_config: there is no key"));
}

TEST_F(HeadFileTest, HeadsWithoutATransformerHaveNoBlueprint) {
  write_text("config.json", R"({"medusa_num_heads": 2, "medusa_num_layers": 1})");
  write(SafetensorsWriter()
            .add("0.0.linear.weight", {8, 8}, ramp(64))
            .add("0.0.linear.bias", {8}, ramp(8)),
        "medusa_lm_head.safetensors");
  const auto head = open();
  ASSERT_NE(head, nullptr);
  EXPECT_THAT(names_of(*head), ElementsAre("0.0.linear.weight", "0.0.linear.bias"));
  EXPECT_TRUE(head->metadata().empty());
  const Status status = head->blueprint().status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("config.json: there is no key 'vocab_size'"));
}

TEST_F(HeadFileTest, RefusesAShapeThatIsNotSupportedWhereItIsAskedFor) {
  Json config = Json::parse(kConfig);
  config["hidden_act"] = "gelu";
  write_text("config.json", config.dump());
  write(SafetensorsWriter().add("fc.weight", {2, 2}, ramp(4)));
  const auto head = open();
  ASSERT_NE(head, nullptr);
  EXPECT_EQ(head->blueprint().status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(head->blueprint().status().message(), HasSubstr("hidden_act"));
}

TEST_F(HeadFileTest, ConvertsMatricesAndNothingElse) {
  const std::vector<float> wide = ramp(3 * 64), narrow = ramp(4 * 6);
  write(SafetensorsWriter()
            .add("wide.weight", "BF16", {3, 64}, bfloat_bytes(wide))
            .add("narrow.weight", "BF16", {4, 6}, bfloat_bytes(narrow))
            .add("float.weight", {4, 6}, narrow)
            .add("norm.weight", "BF16", {64}, bfloat_bytes(ramp(64)))
            .add("deep", {1, 2, 32}, ramp(64)));
  ThreadPool pool(2);
  for (ThreadPool* used : {static_cast<ThreadPool*>(nullptr), &pool}) {
    const auto head = open({.dtype = DType::kQ8_0, .pool = used});
    ASSERT_NE(head, nullptr);
    EXPECT_EQ(head->find_tensor("wide.weight")->dtype, DType::kQ8_0);
    EXPECT_EQ(head->find_tensor("narrow.weight")->dtype, DType::kBF16);
    EXPECT_EQ(head->find_tensor("float.weight")->dtype, DType::kF16);
    EXPECT_EQ(head->find_tensor("norm.weight")->dtype, DType::kBF16);
    EXPECT_EQ(head->find_tensor("deep")->dtype, DType::kF32);
    std::vector<float> rounded;
    for (const float value : wide) rounded.push_back(bf16_to_f32(f32_to_bf16(value)));
    std::vector<std::byte> expected(static_cast<size_t>(dtype_bytes(DType::kQ8_0, 3 * 64)));
    quantize(DType::kQ8_0, rounded.data(), 3 * 64, expected.data());
    const auto data = head->read("wide.weight");
    ASSERT_TRUE(data.ok()) << data.status().message();
    ASSERT_EQ(data->view.bytes(), static_cast<int64_t>(expected.size()));
    EXPECT_EQ(std::memcmp(data->view.data, expected.data(), expected.size()), 0);
  }
}

TEST_F(HeadFileTest, SaysWhichElementATypeCannotHold) {
  std::vector<float> values = ramp(2 * 32);
  values[40] = std::numeric_limits<float>::infinity();
  write(SafetensorsWriter().add("fc.weight", {2, 32}, values));
  const auto head = open({.dtype = DType::kQ4_0});
  ASSERT_NE(head, nullptr);
  const Status status = head->read("fc.weight").status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidData);
  EXPECT_THAT(status.message(), HasSubstr("tensor 'fc.weight': element 8 of row 1 is inf"));
}

TEST_F(HeadFileTest, KeepsRowsInTheOrderAskedFor) {
  const std::vector<float> values = ramp(5 * 32);
  write(SafetensorsWriter()
            .add("lm_head.weight", {5, 32}, values)
            .add("lm_head.bias", {5}, {0, 1, 2, 3, 4})
            .add("deep", {1, 2, 3}, ramp(6)));
  const auto plain = open({.dtype = DType::kQ8_0});
  const auto head = open({.dtype = DType::kQ8_0});
  ASSERT_NE(head, nullptr);
  ASSERT_TRUE(head->keep_rows("lm_head.weight", {4, 0, 4}).ok());
  ASSERT_TRUE(head->keep_rows("lm_head.bias", {4, 0, 4}).ok());
  EXPECT_EQ(head->find_tensor("lm_head.weight")->shape, (Shape{32, 3, 1, 1}));
  const auto all = plain->read("lm_head.weight"), kept = head->read("lm_head.weight");
  ASSERT_TRUE(all.ok() && kept.ok());
  for (const auto& [row, from] : {std::pair(0, 4), std::pair(1, 0), std::pair(2, 4)}) {
    EXPECT_EQ(std::memcmp(kept->view.row(row), all->view.row(from),
                          static_cast<size_t>(all->view.row_bytes())),
              0);
  }
  EXPECT_THAT(floats_of(*head->read("lm_head.bias")), ElementsAre(4, 0, 4));

  EXPECT_EQ(head->keep_rows("lm_head.weight", {5}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(head->keep_rows("lm_head.weight", {-1}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(head->keep_rows("lm_head.weight", {}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(head->keep_rows("head.weight", {0}).code(), StatusCode::kNotFound);
  EXPECT_EQ(head->keep_rows("deep", {0}).code(), StatusCode::kUnsupported);
  EXPECT_EQ(head->find_tensor("lm_head.weight")->shape[1], 3) << "a refusal changes nothing";
}

// Packed weights are kept under the fingerprint.
TEST_F(HeadFileTest, OtherRowsAreAnotherFile) {
  write(SafetensorsWriter().add("lm_head.weight", {5, 32}, ramp(5 * 32)));
  const auto one = open(), same = open(), other = open();
  ASSERT_TRUE(one->keep_rows("lm_head.weight", {1, 2}).ok());
  ASSERT_TRUE(same->keep_rows("lm_head.weight", {1, 2}).ok());
  ASSERT_TRUE(other->keep_rows("lm_head.weight", {1, 3}).ok());
  ASSERT_TRUE(fingerprint(*one).has_value());
  EXPECT_EQ(fingerprint(*one), fingerprint(*same));
  EXPECT_NE(fingerprint(*one), fingerprint(*other));
}

TEST_F(HeadFileTest, ReadsIntegers) {
  write(SafetensorsWriter()
            .add("d2t", "I64", {3}, bytes_of<int64_t>({0, 7, -1}))
            .add("short", "I32", {2}, bytes_of<int32_t>({5, -6}))
            .add("t2d", "BOOL", {4}, bytes_of<uint8_t>({0, 1, 1, 0}))
            .add("fc.weight", {2}, {1, 2}));
  const auto head = open();
  ASSERT_NE(head, nullptr);
  EXPECT_THAT(*head->integers("d2t"), ElementsAre(0, 7, -1));
  EXPECT_THAT(*head->integers("short"), ElementsAre(5, -6));
  EXPECT_THAT(*head->integers("t2d"), ElementsAre(0, 1, 1, 0));
  EXPECT_EQ(head->integers("fc.weight").status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(head->integers("none").status().code(), StatusCode::kNotFound);
  const Status status = head->read("d2t").status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("'d2t' is of type I64, which is not supported"));
}

TEST_F(HeadFileTest, WeightLoaderTakesTensorsFromIt) {
  write_text("config.json", kConfig);
  write(SafetensorsWriter()
            .add("layers.0.mlp.up_proj.weight", "BF16", {96, 64}, bfloat_bytes(ramp(96 * 64)))
            .add("fc.bias", "BF16", {64}, bfloat_bytes(ramp(64)))
            .add("t2d", "BOOL", {4}, bytes_of<uint8_t>({0, 1, 1, 0})));
  const auto head = open({.dtype = DType::kQ8_0});
  ASSERT_NE(head, nullptr);
  ThreadPool pool(1);
  ModelOptions options;
  options.backend = kernels::backend(kernels::best_isa());
  options.pool = &pool;
  WeightLoader loader(*head, options);
  kernels::PackedMatrix matrix;
  const MatrixPart part = {&matrix, "blk.0.ffn_up.weight", 64, 96, 0, 96};
  const Status status = loader.load({&part, 1});
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(loader.vector("fc.bias", 64).ok());
  EXPECT_EQ(loader.check_all_used("eagle3").code(), StatusCode::kUnsupported);
  loader.ignore("t2d");
  EXPECT_TRUE(loader.check_all_used("eagle3").ok());
}

TEST_F(HeadFileTest, OpensFilesOfAnyName) {
  write_text("config.json", R"({"name": "of the folder"})");
  write(SafetensorsWriter().add("a", {1}, {1}), "head-1.safetensors");
  const auto folder = open();
  ASSERT_NE(folder, nullptr);
  EXPECT_THAT(names_of(*folder), ElementsAre("a"));
  write(SafetensorsWriter().add("b", {1}, {2}), "head-2.safetensors");
  expect_refused(StatusCode::kInvalidArgument, "head-1.safetensors, head-2.safetensors");
  const auto file = HeadFile::open(this->file("head-2.safetensors"), {});
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_THAT(names_of(**file), ElementsAre("b"));
  EXPECT_EQ((*file)->config()["name"], "of the folder");
  write_text("draft.safetensors.index.json",
             R"({"weight_map": {"a": "head-1.safetensors", "b": "head-2.safetensors"}})");
  const auto sharded = open();
  ASSERT_NE(sharded, nullptr);
  EXPECT_THAT(names_of(*sharded), ElementsAre("a", "b"));
}

TEST_F(HeadFileTest, SaysWhatIsMissing) {
  expect_refused(StatusCode::kNotFound, "holds no safetensors file");
  write_text("medusa_lm_head.pt", "PK");
  expect_refused(StatusCode::kUnsupported, "aerie inspect " + path_ + " --convert " + path_);
  write(SafetensorsWriter().add("a", {0}, std::vector<float>()));
  expect_refused(StatusCode::kUnsupported, "tensor 'a' has 1 dimensions and 0 elements");
  write(SafetensorsWriter().add("a", {1, 1, 1, 1, 1}, {1}));
  expect_refused(StatusCode::kUnsupported, "tensor 'a' has 5 dimensions");
  write(SafetensorsWriter().add("a", {1}, {1}));
  const auto head = open();
  ASSERT_NE(head, nullptr);
  EXPECT_TRUE(head->config().is_object() && head->config().empty());
  write_text("config.json", "[1]");
  expect_refused(StatusCode::kInvalidData, "config.json");
  EXPECT_EQ(HeadFile::open(path_ + "/none", {}).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(HeadFile::open(path_, {.dtype = DType::kQ4_K}).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(SelectRows, TakesRowsOfBlocksAndElementsOfVectors) {
  const std::vector<float> values = ramp(3 * 64);
  std::vector<std::byte> blocks(static_cast<size_t>(dtype_bytes(DType::kQ4_0, 3 * 64)));
  quantize(DType::kQ4_0, values.data(), 3 * 64, blocks.data());
  const TensorData matrix = {{DType::kQ4_0, Device::kCpu, {64, 3, 1, 1}, blocks.data()}, {}};
  const std::vector<int32_t> ids = {2, 1};
  const auto selected = select_rows(matrix, ids);
  ASSERT_TRUE(selected.ok());
  EXPECT_EQ(selected->view.shape, (Shape{64, 2, 1, 1}));
  for (int64_t i = 0; i < 2; ++i) {
    EXPECT_EQ(std::memcmp(selected->view.row(i), matrix.view.row(ids[static_cast<size_t>(i)]),
                          static_cast<size_t>(matrix.view.row_bytes())),
              0);
  }
  const std::vector<int32_t> wrong = {3};
  EXPECT_EQ(select_rows(matrix, wrong).status().code(), StatusCode::kInvalidArgument);
  const TensorData vector = {
      {DType::kF32, Device::kCpu, {4, 1, 1, 1}, reinterpret_cast<const std::byte*>(values.data())},
      {}};
  const std::vector<int32_t> last = {3};
  EXPECT_THAT(floats_of(*select_rows(vector, last)), ElementsAre(values[3]));
  const TensorData row = {{DType::kQ4_0, Device::kCpu, {64, 1, 1, 1}, blocks.data()}, {}};
  EXPECT_EQ(select_rows(row, last).status().code(), StatusCode::kUnsupported);
}

}  // namespace aerie::test::head_file_test
