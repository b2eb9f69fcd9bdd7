// Folders of gpt-oss models that are not what they say, and 4-bit blocks.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "model/import/hugging_face_file.h"
#include "tests/model/import/hugging_face_folder.h"

namespace aerie::gpt_oss_folder_test {

using test::expect_refused;
using test::FolderTensor;
using test::HuggingFaceFolder;
using test::temporary_path;

constexpr StatusCode kMissing = StatusCode::kNotFound;
constexpr StatusCode kInvalid = StatusCode::kInvalidData;
constexpr StatusCode kUnsupported = StatusCode::kUnsupported;

const std::string kExperts = "model.layers.0.mlp.experts.";

TEST(GptOssFolders, ThatLackSomethingAreRefused) {
  for (const std::string& name :
       {std::string("model.layers.1.self_attn.sinks"),
        std::string("model.layers.0.self_attn.q_proj.bias"),
        std::string("model.layers.1.self_attn.o_proj.bias"),
        std::string("model.layers.0.mlp.router.bias"), kExperts + "gate_up_proj_bias",
        kExperts + "down_proj_bias", kExperts + "gate_up_proj", kExperts + "down_proj"}) {
    HuggingFaceFolder folder("gpt-oss", temporary_path("gpt_oss_less"));
    folder.remove_tensor(name);
    folder.write();
    expect_refused(folder.path(), kMissing, {"no tensor '" + name});
  }
}

TEST(GptOssFolders, ConfigurationsOfOtherModelsAreRefused) {
  const struct {
    const char* key;
    Json value;
    StatusCode code;
    const char* what;
  } kCases[] = {
      {"swiglu_limit", 10.0, kUnsupported, "key 'swiglu_limit' is 10; 7 is supported"},
      {"swiglu_alpha", 1.0, kUnsupported, "key 'swiglu_alpha' is 1; 1.702 is supported"},
      {"hidden_act", "gelu", kUnsupported, "key 'hidden_act'"},
      {"num_local_experts", 4, kUnsupported, "the matrices of 4 experts"},
      {"num_local_experts", 0, kInvalid, "num_local_experts"},
      {"num_experts_per_tok", 6, kInvalid, "num_experts_per_tok"},
      {"num_attention_heads", 4, kInvalid, "self_attn.sinks"},
      {"layer_types", {"sliding_attention"}, kInvalid, "layer_types"},
  };
  for (const auto& [key, value, code, what] : kCases) {
    HuggingFaceFolder folder("gpt-oss", temporary_path("gpt_oss_config"));
    folder.config[key] = value;
    if (std::string_view(key) == "num_attention_heads") {  // so that the sinks alone do not fit
      for (FolderTensor& tensor : folder.tensors) {
        if (tensor.name.find("q_proj") == std::string::npos &&
            tensor.name.find("o_proj.weight") == std::string::npos) {
          continue;
        }
        tensor.data.resize(tensor.data.size() / 3 * 4);
        int64_t& size = tensor.shape[tensor.name.ends_with("o_proj.weight") ? 1 : 0];
        size = size / 3 * 4;
      }
    }
    folder.write();
    expect_refused(folder.path(), code, {what});
  }
}

void reshape(FolderTensor& tensor, std::vector<int64_t> shape, const char* type) {
  tensor.shape = std::move(shape);
  tensor.type = type;
}

TEST(GptOssFolders, ExpertsOfOtherShapesAreRefused) {
  const std::string gates = kExperts + "gate_up_proj", biases = kExperts + "gate_up_proj_bias";
  const std::vector<std::pair<std::string, std::vector<int64_t>>> kCases = {
      {gates, {5, 64, 32}},     // upright
      {gates, {160, 64}},       // no stack
      {gates, {4, 40, 64}},     // of other experts
      {gates, {5, 32, 2, 32}},  // no matrices
      {biases, {320}},         {biases, {4, 80}},
      {biases, {5, 1, 64}},    {kExperts + "down_proj", {5, 16, 64}},
  };
  for (const auto& [name, shape] : kCases) {
    HuggingFaceFolder folder("gpt-oss", temporary_path("gpt_oss_shape"));
    folder.tensor(name).shape = shape;
    folder.write();
    const Status status = test::load_folder(folder.path());
    EXPECT_FALSE(status.ok()) << name;
    EXPECT_NE(status.message().find(name), std::string::npos) << status.message();
  }
  HuggingFaceFolder folder("gpt-oss", temporary_path("gpt_oss_type"));
  reshape(folder.tensor(gates), {5, 32, 64}, "I32");
  folder.write();
  expect_refused(folder.path(), kUnsupported, {gates, "is of type I32"});
}

TEST(GptOssFolders, BlocksMustFitTheirScales) {
  const std::string blocks = kExperts + "gate_up_proj_blocks";
  const std::string scales = kExperts + "gate_up_proj_scales";
  const auto refuse = [&](StatusCode code, const std::vector<std::string>& parts,
                          const auto& change) {
    HuggingFaceFolder folder("gpt-oss-mxfp4", temporary_path("gpt_oss_blocks"));
    ASSERT_EQ(folder.tensor(blocks).shape, (std::vector<int64_t>{5, 64, 1, 16}));
    change(folder);
    folder.write();
    expect_refused(folder.path(), code, parts);
  };
  refuse(kUnsupported, {blocks, "has no scales"},
         [&](HuggingFaceFolder& folder) { folder.remove_tensor(scales); });
  refuse(kUnsupported, {scales, "no place"},
         [&](HuggingFaceFolder& folder) { folder.remove_tensor(blocks); });
  refuse(kUnsupported, {blocks, "scales are of type U8 with the shape [5, 32, 2]"},
         [&](HuggingFaceFolder& folder) {
           folder.tensor(scales).shape = {5, 32, 2};
         });
  refuse(kUnsupported, {blocks, "scales are of type I8"},
         [&](HuggingFaceFolder& folder) { folder.tensor(scales).type = "I8"; });
  refuse(kUnsupported, {blocks, "shape [5, 64, 2, 8]"}, [&](HuggingFaceFolder& folder) {
    folder.tensor(blocks).shape = {5, 64, 2, 8};
  });
  refuse(kUnsupported, {blocks, "shape [5, 64, 16]"}, [&](HuggingFaceFolder& folder) {
    folder.tensor(blocks).shape = {5, 64, 16};
  });
  refuse(kUnsupported, {"blocks of 4 experts"}, [&](HuggingFaceFolder& folder) {
    folder.config["num_local_experts"] = 4;
    for (const char* matrix : {"gate_up", "down"}) {  // so that the blocks alone do not fit
      for (const char* layer : {"0", "1"}) {
        FolderTensor& bias = folder.tensor(std::string("model.layers.") + layer + ".mlp.experts." +
                                           matrix + "_proj_bias");
        bias.data.resize(bias.data.size() / 5 * 4);
        bias.shape[0] = 4;
      }
    }
  });
  refuse(kUnsupported, {blocks, "is of type I8"},
         [&](HuggingFaceFolder& folder) { folder.tensor(blocks).type = "I8"; });
  refuse(kUnsupported, {blocks, "is of type F16 with the shape [5, 8, 64]"},
         [&](HuggingFaceFolder& folder) {
           folder.tensor(blocks).type = "F16";
           folder.tensor(blocks).shape = {5, 8, 64};
         });
  // A matrix in floats besides.
  refuse(kInvalid, {"gate_up_proj", "there twice"}, [&](HuggingFaceFolder& folder) {
    FolderTensor floats = folder.tensor(blocks);
    floats.name = kExperts + "gate_up_proj";
    floats.type = "F16";
    floats.shape = {5, 8, 64};
    folder.tensors.push_back(floats);
  });
}

// A value by the format's own words: two codes in a byte, the lower one first, each a sign, two
// bits of exponent and one of mantissa (FP4 E2M1), times 2 to the power of the scale less 127.
float value_of(const FolderTensor& blocks, const FolderTensor& scales, int64_t row, int64_t i) {
  const int64_t per_row = blocks.shape[2] * 16;
  const auto byte =
      std::to_integer<unsigned>(blocks.data[static_cast<size_t>(row * per_row + i / 2)]);
  const unsigned code = i % 2 == 0 ? byte & 15 : byte >> 4;
  const unsigned exponent = code >> 1 & 3, mantissa = code & 1;
  const float size = exponent == 0 ? 0.5f * static_cast<float>(mantissa)
                                   : std::ldexp(1.0f + 0.5f * static_cast<float>(mantissa),
                                                static_cast<int>(exponent) - 1);
  const auto scale =
      std::to_integer<int>(scales.data[static_cast<size_t>(row * blocks.shape[2] + i / 32)]);
  return std::ldexp(code & 8 ? -size : size, scale - 127);
}

TEST(GptOssFolders, BlocksKeepTheirValues) {
  HuggingFaceFolder folder("gpt-oss-mxfp4", temporary_path("gpt_oss_values"));
  folder.write();
  const auto file = open_model_file(folder.path());
  ASSERT_TRUE(file.ok()) << file.status().message();
  const struct {
    const char* gguf;
    const char* matrix;
    int64_t first, step;  // the folder's row for each of the result
  } kCases[] = {{"blk.0.ffn_gate_exps.weight", "gate_up_proj", 0, 2},
                {"blk.0.ffn_up_exps.weight", "gate_up_proj", 1, 2},
                {"blk.0.ffn_down_exps.weight", "down_proj", 0, 1}};
  for (const auto& [gguf, matrix, first, step] : kCases) {
    const FolderTensor& blocks = folder.tensor(kExperts + matrix + "_blocks");
    const FolderTensor& scales = folder.tensor(kExperts + matrix + "_scales");
    const auto tensor = (*file)->read(gguf);
    ASSERT_TRUE(tensor.ok()) << tensor.status().message();
    EXPECT_EQ(tensor->view.dtype, DType::kMXFP4);
    std::vector<float> values(static_cast<size_t>(tensor->view.elements()));
    dequantize(DType::kMXFP4, tensor->view.data, tensor->view.elements(), values.data());
    const int64_t inputs = tensor->view.shape[0], rows = tensor->view.rows();
    ASSERT_EQ(rows * step, blocks.shape[0] * blocks.shape[1]);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < inputs; ++i) {
        ASSERT_EQ(values[static_cast<size_t>(row * inputs + i)],
                  value_of(blocks, scales, row * step + first, i))
            << gguf << " row " << row << " value " << i;
      }
    }
  }
}

}  // namespace aerie::gpt_oss_folder_test
