// Folders of DeepSeek's models that are not what they say, and what they may leave out.

#include <gtest/gtest.h>

#include "model/import/hugging_face_file.h"
#include "tests/model/import/hugging_face_folder.h"

namespace aerie::deepseek_folder_test {

using test::expect_refused;
using test::HuggingFaceFolder;
using test::temporary_path;

constexpr StatusCode kMissing = StatusCode::kNotFound;
constexpr StatusCode kInvalid = StatusCode::kInvalidData;
constexpr StatusCode kUnsupported = StatusCode::kUnsupported;

TEST(DeepseekFolders, ConfigurationsOfOtherModelsAreRefused) {
  const struct {
    const char* family;
    const char* key;
    Json value;
    StatusCode code;
    const char* what;
  } kCases[] = {
      {"deepseek2", "scoring_func", "sigmoid", kUnsupported, "key 'scoring_func'"},
      {"deepseek2", "topk_method", "noaux_tc", kUnsupported, "key 'topk_method'"},
      {"deepseek2", "norm_topk_prob", true, kUnsupported, "key 'norm_topk_prob' is true"},
      {"deepseek2", "moe_layer_freq", 2, kUnsupported, "key 'moe_layer_freq' is 2"},
      {"deepseek2", "n_group", 3, kInvalid, "n_group of config.json"},
      {"deepseek2", "topk_group", 5, kInvalid, "topk_group of config.json"},
      {"deepseek2", "n_routed_experts", 4, kInvalid, "is of expert 4, and there are 4"},
      {"deepseek2", "routed_scaling_factor", -1.0, kInvalid, "routed_scaling_factor"},
      {"deepseek2", "first_k_dense_replace", 7, kInvalid, "first_k_dense_replace"},
      {"deepseek2", "hidden_act", "gelu", kUnsupported, "key 'hidden_act'"},
      {"deepseek2", "kv_lora_rank", 48, kInvalid, "self_attn.kv_b_proj.weight"},
      {"deepseek2", "v_head_dim", 64, kInvalid, "self_attn.kv_b_proj.weight"},
      {"deepseek2", "q_lora_rank", nullptr, kMissing, "self_attn.q_proj"},
      {"deepseek2", "attention_bias", true, kMissing, "self_attn.kv_a_proj_with_mqa.bias"},
      {"deepseek2", "head_dim", 32, kUnsupported, "qk_rope_head_dim"},
      {"deepseek3", "scoring_func", "softmax", kUnsupported, "key 'scoring_func'"},
      {"deepseek3", "topk_method", "greedy", kUnsupported, "key 'topk_method'"},
      {"deepseek3", "rope_interleave", false, kUnsupported, "key 'rope_interleave' is false"},
      {"glm4-moe-lite", "partial_rotary_factor", 0.5, kUnsupported, "qk_rope_head_dim"},
  };
  for (const auto& [family, key, value, code, what] : kCases) {
    HuggingFaceFolder folder(family, temporary_path("deepseek_config"));
    folder.config[key] = value;
    folder.write();
    SCOPED_TRACE(key);
    expect_refused(folder.path(), code, {what});
  }
}

TEST(DeepseekFolders, ThatLackSomethingAreRefused) {
  const std::string attention = "model.layers.0.self_attn.", mlp = "model.layers.1.mlp.";
  for (const std::string& name :
       {attention + "q_a_layernorm.weight", attention + "q_b_proj.weight",
        attention + "kv_a_proj_with_mqa.weight", attention + "kv_b_proj.weight",
        mlp + "shared_experts.up_proj.weight", mlp + "experts.3.up_proj.weight"}) {
    HuggingFaceFolder folder("deepseek3", temporary_path("deepseek_less"));
    folder.remove_tensor(name);
    folder.write();
    SCOPED_TRACE(name);
    // Of what becomes two tensors one is missed first.
    expect_refused(folder.path(), kMissing, {"no tensor '" + name});
  }
}

}  // namespace aerie::deepseek_folder_test
