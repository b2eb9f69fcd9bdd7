// Tensors and paths of Hugging Face folders with one thing broken at a time: each is refused with a
// message that names file and tensor and the reason, and with little memory.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <limits>

#include "model/import/hugging_face_file.h"
#include "tests/model/import/hugging_face_folder.h"

namespace aerie::hugging_face_tensors_test {

namespace fs = std::filesystem;
using test::expect_refused;
using test::FolderTensor;
using test::HuggingFaceFolder;
using test::load_folder;
using test::temporary_path;

constexpr StatusCode kInvalid = StatusCode::kInvalidData;
constexpr StatusCode kUnsupported = StatusCode::kUnsupported;
constexpr StatusCode kMissing = StatusCode::kNotFound;

class HostileTensors : public ::testing::Test {
 protected:
  void refused(StatusCode code, const std::vector<std::string>& parts) const {
    folder_.write();
    expect_refused(folder_.path(), code, parts);
  }
  void add(const std::string& name, std::vector<int64_t> shape, const std::string& type = "F32",
           size_t width = 4) {
    size_t bytes = width;
    for (const int64_t size : shape) bytes *= static_cast<size_t>(size);
    folder_.tensors.push_back({name, type, std::move(shape), std::vector<std::byte>(bytes)});
  }
  void replace(const std::string& name, std::vector<int64_t> shape, const std::string& type = "F32",
               size_t width = 4) {
    folder_.remove_tensor(name);
    add(name, std::move(shape), type, width);
  }

  HuggingFaceFolder folder_{"llama", temporary_path("tensors")};
};

constexpr const char* kUp = "model.layers.0.mlp.up_proj.weight";
constexpr const char* kNorm = "model.layers.1.input_layernorm.weight";

TEST_F(HostileTensors, AnyOneMissing) {
  const std::vector<FolderTensor> all = folder_.tensors;
  ASSERT_GE(all.size(), 20u);
  for (const FolderTensor& tensor : all) {
    folder_.tensors = all;
    folder_.remove_tensor(tensor.name);
    refused(kMissing, {"'" + tensor.name + "'"});
  }
  folder_.tensors.clear();
  refused(kMissing, {"'lm_head.weight'"});
}

TEST_F(HostileTensors, OneTooMany) {
  const auto extra = [this](const std::string& name, std::vector<int64_t> shape, StatusCode code,
                            const std::string& part) {
    add(name, std::move(shape));
    refused(code, {"tensor '" + name + "' " + part});
    folder_.remove_tensor(name);
  };
  const std::string no_place = "has no place in a model of the family 'llama'";
  extra("model.layers.0.self_attn.q_norm.weight", {16}, kUnsupported, no_place);
  extra("model.layers.{}.mlp.up_proj.weight", {48, 48}, kUnsupported, no_place);
  extra("model.layers.00.mlp.up_proj.weight", {48, 48}, kUnsupported, no_place);
  extra("model.layers.-1.mlp.up_proj.weight", {48, 48}, kUnsupported, no_place);
  extra("model.layers.18446744073709551616.mlp.up_proj.weight", {48, 48}, kUnsupported, no_place);
  extra("model.0.norm.weight", {48}, kUnsupported, no_place);
  extra("model.norm.scale", {48}, kUnsupported, no_place);
  extra("model.norm", {48}, kUnsupported, no_place);
  extra("x", {48}, kUnsupported, no_place);
  extra(".", {48}, kUnsupported, no_place);
  extra("..weight", {48}, kUnsupported, no_place);
  extra("0.weight", {48}, kUnsupported, no_place);
  extra("model.layers.99.mlp.up_proj.weight", {48, 48}, kInvalid,
        "is of layer 99, and there are 2");
  extra("model.layers.9223372036854775807.mlp.up_proj.weight", {48, 48}, kInvalid,
        "is of layer 92");
  // Known names, and no place for them in this family.
  extra("model.norm.bias", {48}, kUnsupported, "has no place");
  add("model.layers.0.mlp.up_proj.bias", {48});
  refused(kMissing, {"there is no tensor 'model.layers.1.mlp.up_proj.bias'"});
  add("model.layers.1.mlp.up_proj.bias", {47});
  refused(kInvalid, {"tensor 'model.layers.1.mlp.up_proj.bias' has shape [47]"});
}

TEST_F(HostileTensors, Types) {
  const struct {
    const char* name;
    size_t width;
  } kTypes[] = {{"F64", 8}, {"I64", 8},     {"I32", 4}, {"U8", 1}, {"BOOL", 1},
                {"I16", 2}, {"F8_E5M2", 1}, {"C64", 8}, {"U64", 8}};
  for (const auto& [name, width] : kTypes) {
    replace(kUp, {48, 48}, name, width);
    refused(kUnsupported, {fmt::format("tensor '{}' is of type {}; F32, F16, BF16", kUp, name)});
    replace(kUp, {48, 48});
    replace(kNorm, {48}, name, width);
    refused(kUnsupported, {fmt::format("tensor '{}' is of type {}; F32, F16, BF16", kNorm, name)});
    replace(kNorm, {48});
  }
  for (const std::string name : {"F8_E4M3", "I8"}) {
    replace(kUp, {48, 48}, name, 1);
    refused(kInvalid,
            {fmt::format("{}' is of type {}, and config.json has no quantization_", kUp, name)});
    replace(kUp, {48, 48});
    replace(kNorm, {48}, name, 1);
    refused(kInvalid, {fmt::format("{}' is of type {} and no matrix", kNorm, name)});
    replace(kNorm, {48});
  }
  replace(kUp, {48, 48}, "Q4_0", 1);
  refused(kUnsupported, {"/model.safetensors: ", kUp, "Q4_0"});
}

TEST_F(HostileTensors, Shapes) {
  const auto shape = [this](const char* name, std::vector<int64_t> sizes, StatusCode code,
                            const std::string& part) {
    std::vector<int64_t> usual = folder_.tensor(name).shape;
    replace(name, std::move(sizes));
    refused(code, {fmt::format("tensor '{}' {}", name, part)});
    replace(name, std::move(usual));
  };
  shape(kUp, {}, kUnsupported, "has 0 dimensions and 1 elements; vectors and matrices are read");
  shape(kUp, {1, 48, 48}, kUnsupported, "has 3 dimensions and 2304 elements");
  shape(kUp, {48, 0}, kUnsupported, "has 2 dimensions and 0 elements");
  shape(kNorm, {0}, kUnsupported, "has 1 dimensions and 0 elements");
  shape(kUp, {48, 47}, kInvalid, "has shape [47, 48] where");
  shape(kUp, {2304}, kInvalid, "has shape [2304] where");
  shape(kNorm, {47}, kInvalid, "has shape [47] where");
  shape(kNorm, {48, 1}, kInvalid, "has shape [1, 48] where");
  shape("model.norm.weight", {49}, kInvalid, "has shape [49] where");
  shape("model.embed_tokens.weight", {48, 101}, kInvalid, "has shape [101, 48] where");
  shape("lm_head.weight", {100, 48}, kInvalid, "has shape [48, 100] where");
  shape("model.layers.0.self_attn.q_proj.weight", {47, 48}, kInvalid, "has shape [48, 47] where");
  shape("model.layers.0.self_attn.k_proj.weight", {48, 48}, kInvalid, "has shape [48, 48] where");
  shape("model.layers.0.self_attn.v_proj.weight", {48, 16}, kInvalid, "has shape [16, 48] where");
}

TEST_F(HostileTensors, TwiceUnderTwoNames) {
  HuggingFaceFolder gemma("gemma3", temporary_path("twice"));
  FolderTensor copy = gemma.tensor("model.norm.weight");
  copy.name = "language_model.model.norm.weight";
  gemma.tensors.push_back(copy);
  gemma.write();
  expect_refused(gemma.path(), kInvalid, {"norm.weight' is there twice under two names"});
  HuggingFaceFolder gpt2("gpt2", temporary_path("twice2"));
  FolderTensor position = gpt2.tensor("transformer.wpe.weight");
  position.name = "wpe.weight";
  gpt2.tensors.push_back(position);
  gpt2.write();
  expect_refused(gpt2.path(), kInvalid, {"wpe.weight' is there twice under two names"});
}

TEST_F(HostileTensors, Heads) {
  folder_.config["tie_word_embeddings"] = "no";
  refused(kInvalid, {"key 'tie_word_embeddings' is a string; true or false"});
  folder_.config["tie_word_embeddings"] = false;
  folder_.remove_tensor("lm_head.weight");
  refused(kMissing,
          {"key 'tie_word_embeddings' is false, and there is no tensor 'lm_head.weight'"});
  // Tied, with and without a head that is not needed; not said, and not there.
  folder_.config["tie_word_embeddings"] = true;
  folder_.write();
  EXPECT_TRUE(load_folder(folder_.path()).ok()) << load_folder(folder_.path()).message();
  add("lm_head.weight", {3, 5}, "I64", 8);
  folder_.write();
  EXPECT_TRUE(load_folder(folder_.path()).ok()) << load_folder(folder_.path()).message();
  folder_.remove_tensor("lm_head.weight");
  folder_.config.erase("tie_word_embeddings");
  folder_.write();
  EXPECT_TRUE(load_folder(folder_.path()).ok()) << load_folder(folder_.path()).message();
}

// Of draft models: which of the target's tokens their rows stand for.
TEST_F(HostileTensors, IdsOfDraftModels) {
  add("d2t", {5}, "I64", 8);
  folder_.config["target_vocab_size"] = 5000;
  folder_.write();
  const auto file = open_model_file(folder_.path());
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ((*file)->numbers(kDraftIdsKey).value(), std::vector<double>(5, 0.0));
  EXPECT_EQ((*file)->integer(kDraftTargetKey).value(), 5000);

  folder_.config["target_vocab_size"] = "many";
  refused(kInvalid, {"target_vocab_size"});
  folder_.config.erase("target_vocab_size");
  replace("d2t", {5}, "F32");
  refused(kUnsupported, {"d2t"});
  replace("d2t", {5}, "I64", 8);
  folder_.tensor("d2t").data[8 + 4] = std::byte{1};
  refused(kInvalid, {"'d2t'", "4294967296"});
}

TEST_F(HostileTensors, ScalesOfFloat8) {
  HuggingFaceFolder folder("llama-fp8-block", temporary_path("scales"));
  const std::string weight = kUp, scale = weight + "_scale_inv";
  const FolderTensor usual = folder.tensor(scale);
  const auto refused_with = [&](FolderTensor changed, StatusCode code, const std::string& part) {
    folder.remove_tensor(scale);
    changed.name = scale;
    folder.tensors.push_back(std::move(changed));
    folder.write();
    expect_refused(folder.path(), code, {part});
  };
  const std::string other = "tensor '" + weight + "' has other scales than its";
  refused_with({"", "F32", {7}, std::vector<std::byte>(28)}, kInvalid, other);
  refused_with({"", "F32", {0}, {}}, kInvalid, other);
  refused_with({"", "F32", {2, 2, 1}, std::vector<std::byte>(16)}, kInvalid, other);
  refused_with({"", "I32", usual.shape, usual.data}, kInvalid,
               "tensor '" + scale + "' holds scales and is not of F32, F16 or BF16");
  folder.tensor(weight).type = "I8";
  refused_with(usual, kInvalid, weight + "' is of type I8 and has no scales");
  FolderTensor other_name = usual;
  other_name.name = weight + "_scale";
  folder.tensors.push_back(other_name);
  folder.write();
  expect_refused(folder.path(), kInvalid, {"quantization_config says nothing of integers"});
  folder.remove_tensor(other_name.name);
  folder.tensor(weight).type = "F8_E4M3";
  folder.remove_tensor(scale);
  folder.write();
  expect_refused(folder.path(), kInvalid, {weight + "' is of type F8_E4M3 and has no scales"});
  folder.tensors.push_back(usual);
  FolderTensor& matrix = folder.tensor(weight);
  matrix.type = "BF16";
  matrix.data.resize(2 * matrix.data.size());
  folder.write();
  expect_refused(
      folder.path(), kInvalid,
      {scale + "' is a scale, and there is no tensor '" + weight + "' of type F8_E4M3 or I8"});
}

TEST_F(HostileTensors, OddButLegal) {
  // Values that are no numbers are the model's own affair.
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (FolderTensor& tensor : folder_.tensors) std::memcpy(tensor.data.data(), &nan, sizeof(nan));
  folder_.write();
  EXPECT_TRUE(load_folder(folder_.path()).ok()) << load_folder(folder_.path()).message();
  // Data with no alignment.
  for (const size_t shift : {1, 2, 3}) {
    folder_.write(shift);
    EXPECT_TRUE(load_folder(folder_.path()).ok()) << load_folder(folder_.path()).message();
  }
  // A vector as a matrix of one row.
  folder_.tensor(kNorm).shape = {1, 48};
  folder_.write();
  EXPECT_TRUE(load_folder(folder_.path()).ok()) << load_folder(folder_.path()).message();
}

// Modules that predict further tokens come with models and are no part of them.
TEST_F(HostileTensors, PredictorsArePassedOver) {
  add("mtp.fc.weight", {48, 96});
  add("mtp.layers.0.self_attn.q_proj.weight", {96, 48}, "F8_E5M2", 1);
  add("model.mtp_layers.0.input_proj.weight", {48, 96});
  folder_.write();
  EXPECT_TRUE(load_folder(folder_.path()).ok()) << load_folder(folder_.path()).message();
  // As layers behind the model's they are told from a wrong count by the configuration alone.
  const int64_t layers = folder_.config["num_hidden_layers"].get<int64_t>();
  const std::string module = fmt::format("model.layers.{}.", layers);
  const std::string another = fmt::format("model.layers.{}.", layers + 1);
  add(module + "eh_proj.weight", {48, 96});
  add(module + "mlp.up_proj.weight", {48, 48});
  refused(kUnsupported, {"'" + module + "eh_proj.weight' has no place"});
  folder_.config["num_nextn_predict_layers"] = 1;
  folder_.write();
  EXPECT_TRUE(load_folder(folder_.path()).ok()) << load_folder(folder_.path()).message();
  add(another + "mlp.up_proj.weight", {48, 48});
  refused(kInvalid, {"'" + another + "mlp.up_proj.weight' is of layer"});
  folder_.config["num_nextn_predict_layers"] = 2;
  folder_.write();
  EXPECT_TRUE(load_folder(folder_.path()).ok()) << load_folder(folder_.path()).message();
  for (const int64_t odd : {int64_t{-3}, std::numeric_limits<int64_t>::max()}) {
    folder_.config["num_nextn_predict_layers"] = odd;
    folder_.write();
    EXPECT_EQ(load_folder(folder_.path()).ok(), odd > 0);
  }
}

TEST(HuggingFaceFolders, MiMoIsReadAsQwen2) {
  HuggingFaceFolder folder("qwen2", temporary_path("mimo"));
  folder.config["model_type"] = "mimo";
  folder.write();
  EXPECT_TRUE(load_folder(folder.path()).ok()) << load_folder(folder.path()).message();
}

// What is in 8 bits is changed as other values are: GPT-2's matrices lie on their side.
TEST_F(HostileTensors, EightBitsOfGpt2) {
  const struct {
    const char* type;
    const char* config;
    float (*value)(uint8_t);
  } kTypes[] = {
      {"F8_E4M3", R"({"quant_method": "fp8"})", f8_e4m3_to_f32},
      {"I8",
       R"({"quant_method": "compressed-tensors", "format": "int-quantized", "config_groups":
           {"group_0": {"weights": {"num_bits": 8, "type": "int", "strategy": "tensor"}}}})",
       [](uint8_t code) { return static_cast<float>(static_cast<int8_t>(code)); }}};
  for (const auto& [type, config, decode] : kTypes) {
    SCOPED_TRACE(type);
    HuggingFaceFolder folder("gpt2", temporary_path("gpt2_eight_bits"));
    const std::string name = "transformer.h.0.mlp.c_fc.weight";
    FolderTensor& tensor = folder.tensor(name);
    const int64_t inputs = tensor.shape[0], outputs = tensor.shape[1];
    tensor.type = type;
    tensor.data.resize(static_cast<size_t>(inputs * outputs));
    for (size_t i = 0; i < tensor.data.size(); ++i) tensor.data[i] = std::byte(i % 0x78);
    const float scale = 0.5f;
    FolderTensor scales{name + "_scale", "F32", {}, std::vector<std::byte>(4)};
    std::memcpy(scales.data.data(), &scale, sizeof(scale));
    folder.tensors.push_back(scales);
    folder.config["quantization_config"] = Json::parse(config);
    folder.write();
    const auto file = open_model_file(folder.path());
    ASSERT_TRUE(file.ok()) << file.status().message();
    const auto data = (*file)->read("blk.0.ffn_up.weight");
    ASSERT_TRUE(data.ok()) << data.status().message();
    ASSERT_EQ(data->view.shape, (Shape{inputs, outputs, 1, 1}));
    ASSERT_EQ(data->view.dtype, DType::kF32);
    const auto value = [&](int64_t input, int64_t output) {
      float out = 0;
      std::memcpy(&out, data->view.data + (output * inputs + input) * 4, sizeof(out));
      return out;
    };
    EXPECT_EQ(value(0, 0), 0.0f);
    EXPECT_EQ(value(0, 0x38), 0.5f * decode(0x38)) << "what lies at [0][0x38] of the file";
    EXPECT_EQ(value(1, 0), 0.5f * decode(static_cast<uint8_t>(outputs % 0x78)));
  }
}

TEST(HostilePaths, PathsAndLinks) {
  const HuggingFaceFolder folder("llama", temporary_path("links"));
  folder.write();
  const std::string loop = folder.file("loop");
  fs::create_directory_symlink("loop", loop);
  expect_refused(loop, StatusCode::kInvalidArgument, {"cannot open: Too many levels of symbolic"});
  expect_refused(folder.file("nowhere"), kMissing, {"there is no such file or folder"});
  expect_refused("", kMissing, {"no model is named"});
  expect_refused(folder.file("model.safetensors"), StatusCode::kInvalidArgument,
                 {"is a file of a Hugging Face folder; give the folder itself"});
  expect_refused(folder.file("config.json"), StatusCode::kInvalidArgument,
                 {"is a file of a Hugging Face folder; give the folder itself"});
  fs::remove(folder.file("config.json"));
  fs::create_symlink("config.json", folder.file("config.json"));
  expect_refused(folder.path(), StatusCode::kInvalidArgument,
                 {"/config.json: cannot open: Too many"});
  fs::remove(folder.file("config.json"));
  folder.write();
  fs::rename(folder.file("model.safetensors"), folder.file("weights.safetensors"));
  expect_refused(folder.path(), kMissing, {"other models: weights.safetensors"});
  // A link to the folder, and one to its file, as caches of downloads have them.
  fs::create_symlink("weights.safetensors", folder.file("model.safetensors"));
  fs::create_directory_symlink(folder.path(), folder.file("again"));
  EXPECT_TRUE(load_folder(folder.file("again")).ok())
      << load_folder(folder.file("again")).message();
}

TEST(HostilePaths, FoldersOfSomethingElse) {
  const HuggingFaceFolder folder("llama", temporary_path("else"));
  expect_refused(folder.path(), kMissing, {"/config.json: there is no such file, which a Hugging"});
  folder.write_text("pytorch_model.bin", "PK");
  expect_refused(folder.path(), kMissing, {"/config.json: there is no such file, which a Hugging"});
  folder.write_text("tiny-Q8_0.gguf", "GGUF");
  expect_refused(folder.path(), kMissing, {"you may give one: tiny-Q8_0.gguf"});
  folder.write();
  fs::remove(folder.file("model.safetensors"));
  expect_refused(folder.path(), kMissing, {"there are other models: tiny-Q8_0.gguf"});
  fs::remove(folder.file("tiny-Q8_0.gguf"));
  expect_refused(folder.path(), kMissing, {"only PyTorch's pickle files", "aerie inspect"});
}

TEST(HostilePaths, NoPermission) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read everything";
  const HuggingFaceFolder folder("llama", temporary_path("permission"));
  folder.write();
  fs::permissions(folder.path(), fs::perms::none);
  expect_refused(folder.path(), StatusCode::kInvalidArgument, {"Permission denied"});
  fs::permissions(folder.path(), fs::perms::owner_all);
}

TEST(HostilePaths, NamesOfFolders) {
  const HuggingFaceFolder folder("llama", temporary_path("Größe 模型"));
  folder.write();
  const auto named = [](const std::string& path) {
    const auto file = open_model_file(path);
    EXPECT_TRUE(file.ok()) << file.status().message();
    return file.ok() ? std::string(*(*file)->string("general.name")) : "";
  };
  const std::string name = fs::path(folder.path()).filename();
  EXPECT_EQ(named(folder.path()), name);
  EXPECT_EQ(named(folder.path() + "/"), name);
  EXPECT_EQ(named(folder.path() + "/../" + name + "/."), name);
  const HuggingFaceFolder bytes("llama", temporary_path("a\xFF"));
  bytes.write();
  EXPECT_TRUE(named(bytes.path()).ends_with("a\\xff")) << "GGUF's strings are UTF-8";
}

}  // namespace aerie::hugging_face_tensors_test
