// Folders of Gemma 4 with one thing changed: what is refused, and that a layer's tensors may be
// missing only where the configuration says so.
#include <gtest/gtest.h>

#include <string>

#include "tests/model/import/hugging_face_folder.h"

namespace aerie::gemma4_folder_test {

using test::expect_refused;
using test::HuggingFaceFolder;
using test::load_folder;
using test::temporary_path;

constexpr StatusCode kUnsupported = StatusCode::kUnsupported;

TEST(Gemma4Folder, WhatIsNotSupportedIsRefusedByName) {
  HuggingFaceFolder folder("gemma4", temporary_path("gemma4"));
  const Json config = folder.config;
  const auto refused = [&](const std::string& part) {
    folder.write();
    expect_refused(folder.path(), kUnsupported, {part});
    folder.config = config;
  };
  folder.config["attention_bias"] = true;
  refused("attention_bias");
  folder.config["use_bidirectional_attention"] = "all";
  refused("use_bidirectional_attention");
  folder.config["layer_types"][6] = "sliding_attention";
  refused("layer_types");
  folder.config["vocab_size_per_layer_input"] = 64;
  refused("vocab_size_per_layer_input");
  folder.config["hidden_activation"] = "silu";
  refused("hidden_activation");
  folder.config["rope_parameters"]["full_attention"]["rope_type"] = "yarn";
  refused("rope_type");
  folder.config["rope_parameters"]["sliding_attention"]["partial_rotary_factor"] = 0.5;
  refused("partial_rotary_factor");
  folder.config["per_layer_config"] = {{"1", {{"head_dim", 32}}}, {"4", {{"head_dim", 48}}}};
  refused("per_layer_config");
  folder.write();
  EXPECT_EQ(load_folder(folder.path()).message(), "");
}

TEST(Gemma4Folder, KeysAndValuesMustBeWhereTheyAreRead) {
  HuggingFaceFolder folder("gemma4", temporary_path("gemma4"));
  for (const std::string name : {"k_proj", "v_proj", "k_norm"}) {
    const auto tensors = folder.tensors;
    folder.remove_tensor("model.layers.3.self_attn." + name + ".weight");
    folder.write();
    expect_refused(folder.path(), StatusCode::kNotFound, {"layers.3.self_attn." + name});
    folder.tensors = tensors;
  }
  // As values here, not where there is a window.
  HuggingFaceFolder equal("gemma4-keys-are-values", temporary_path("gemma4_equal"));
  equal.config["attention_k_eq_v"] = false;
  equal.config["num_global_key_value_heads"] = nullptr;
  equal.write();
  expect_refused(equal.path(), StatusCode::kNotFound, {"layers.5.self_attn.v_proj"});
}

}  // namespace aerie::gemma4_folder_test
