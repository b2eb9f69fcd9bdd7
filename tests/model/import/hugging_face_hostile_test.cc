// Configurations of Hugging Face folders with one thing broken at a time: each is refused with a
// message that names file and key and the reason, and with little memory.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <deque>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <tuple>

#include "model/import/hugging_face_file.h"
#include "tests/model/import/hugging_face_folder.h"

namespace aerie::hugging_face_hostile_test {

namespace fs = std::filesystem;
using test::expect_refused;
using test::HuggingFaceFolder;
using test::load_folder;
using test::temporary_path;

// One key of config.json replaced: at `pointer` (RFC 6901), by JSON text; removed if that is empty.
struct Change {
  const char* pointer;
  std::string value;
};
struct Case {
  std::vector<Change> changes;
  StatusCode code;
  std::vector<std::string> parts;
};

void expect_each_refused(const std::string& family, const std::vector<Case>& cases) {
  HuggingFaceFolder folder(family, temporary_path(family));
  folder.write();
  ASSERT_TRUE(load_folder(folder.path()).ok()) << load_folder(folder.path()).message();
  const Json whole = folder.config;
  for (const Case& one : cases) {
    Json config = whole;
    std::string text;
    for (const auto& [pointer, value] : one.changes) {
      text += fmt::format("{} = {}; ", pointer, value);
      const Json::json_pointer at(pointer);
      if (value.empty()) {
        config.at(at.parent_pointer()).erase(at.back());
      } else {
        config[at] = Json::parse(value);
      }
    }
    SCOPED_TRACE(family + ": " + text);
    folder.write_text("config.json", config.dump());
    expect_refused(folder.path(), one.code, one.parts);
  }
}

constexpr StatusCode kInvalid = StatusCode::kInvalidData;
constexpr StatusCode kUnsupported = StatusCode::kUnsupported;
constexpr StatusCode kMissing = StatusCode::kNotFound;

TEST(HostileFolders, ConfigFile) {
  const HuggingFaceFolder folder("llama", temporary_path("config"));
  folder.write();
  const auto refused = [&](const std::string& text, StatusCode code, const std::string& part) {
    folder.write_text("config.json", text);
    expect_refused(folder.path(), code, {"/config.json: ", part});
  };
  refused("", kInvalid, "is empty, not JSON");
  refused("model_type: llama", kInvalid, "line 1, column 1: ");
  refused(R"({"model_type": "llama",})", kInvalid, "line 1, column 24: ");
  refused("[]", kInvalid, "holds JSON of type array; an object is wanted");
  refused("7", kInvalid, "holds JSON of type number; an object is wanted");
  refused("{}", kMissing, "there is no key 'model_type'");
  refused(R"({"model_type": null})", kMissing, "there is no key 'model_type'");
  refused(R"({"model_type": 3})", kInvalid, "key 'model_type' is 3; a string is wanted");
  refused(R"({"model_type": ["llama"]})", kInvalid, "key 'model_type' is an array; a string");
  refused(R"({"model_type": "mamba"})", kUnsupported,
          "key 'model_type' is 'mamba', which is not supported; these are: llama, mistral, ");
  refused(R"({"model_type": "a\nb\u001b[2J"})", kUnsupported, R"('a\nb\x1b[2J')");
  refused(R"({"model_type": "llama", "model_type": "gpt2"})", kInvalid,
          "'model_type' occurs twice");
  refused(std::string(100000, '['), kInvalid, "");
  refused(R"({"model_type": "llama", "rope_theta": 1e999})", kInvalid, "");
  fs::remove(folder.file("config.json"));
  expect_refused(folder.path(), kMissing, {"/config.json: there is no such file"});
  fs::create_directory(folder.file("config.json"));
  expect_refused(folder.path(), StatusCode::kInvalidArgument, {"/config.json: is a directory"});
}

TEST(HostileFolders, Sizes) {
  const char* const sizes[] = {"hidden_size", "intermediate_size", "num_hidden_layers",
                               "num_attention_heads", "max_position_embeddings"};
  std::vector<Case> cases;
  for (const std::string key : sizes) {
    static std::deque<std::string> pointers;
    const char* pointer = pointers.emplace_back("/" + key).c_str();
    const std::string named = "/config.json: key '" + key + "' ";
    cases.push_back({{{pointer, "0"}}, kInvalid, {named + "is 0, not between 1 and "}});
    cases.push_back({{{pointer, "-4"}}, kInvalid, {named + "is -4, not between 1 and "}});
    cases.push_back({{{pointer, "1000000000000000000"}}, kInvalid, {named, "not between 1 and"}});
    cases.push_back({{{pointer, "1e30"}}, kInvalid, {named + "is 1e+30; an integer"}});
    cases.push_back({{{pointer, "64.5"}}, kInvalid, {named + "is 64.5; an integer"}});
    cases.push_back({{{pointer, "\"64\""}}, kInvalid, {named + "is a string; an integer"}});
    cases.push_back({{{pointer, "[64]"}}, kInvalid, {named + "is an array; an integer"}});
    cases.push_back({{{pointer, "true"}}, kInvalid, {named + "is a boolean; an integer"}});
    cases.push_back({{{pointer, "null"}}, kMissing, {"there is no key '" + key + "'"}});
    cases.push_back({{{pointer, ""}}, kMissing, {"there is no key '" + key + "'"}});
  }
  expect_each_refused("llama", cases);
}

TEST(HostileFolders, SizesThatDoNotFit) {
  const char* const kHeads = "/num_attention_heads";
  const char* const kGroups = "/num_key_value_heads";
  const std::vector<Case> cases = {
      {{{kGroups, "2"}}, kInvalid, {"num_key_value_heads of config.json: 2 does not divide the 3"}},
      {{{kGroups, "6"}}, kInvalid, {"num_key_value_heads of config.json: 6 does not divide the 3"}},
      {{{kGroups, "0"}}, kInvalid, {"key 'num_key_value_heads' is 0, not between"}},
      {{{kGroups, "\"1\""}}, kInvalid, {"key 'num_key_value_heads' is a string"}},
      {{{kHeads, "5"}},
       kUnsupported,
       {"hidden_size / num_attention_heads of config.json: heads of 9 dimensions; multiples of "
        "16"}},
      {{{kHeads, "1"}}, kInvalid, {"self_attn.k_proj.weight' has shape [48, 16] where"}},
      {{{kHeads, "49"}}, kInvalid, {"'num_attention_heads' is 49, which makes heads of 0 dim"}},
      {{{kHeads, "6"}, {"/head_dim", "16"}},
       kInvalid,
       {"'model.layers.0.self_attn.q_proj.weight'"}},
      {{{kHeads, "100000"}, {"/head_dim", "16"}},
       kInvalid,
       {"num_attention_heads of config.json: 100000 is not between 1 and "}},
      {{{"/head_dim", "0"}}, kInvalid, {"key 'head_dim' is 0, not between 1 and"}},
      {{{"/head_dim", "24"}}, kUnsupported, {"head_dim of config.json: heads of 24 dimensions"}},
      {{{"/head_dim", "4096"}},
       kUnsupported,
       {"head_dim of config.json: heads of 4096 dimensions"}},
      {{{"/head_dim", "1000000000"}}, kInvalid, {"key 'head_dim' is 1000000000, not between"}},
      {{{"/head_dim", "32"}}, kInvalid, {"tensor 'model.layers.0.self_attn.q_proj.weight'"}},
      {{{"/head_dim", "\"x\""}}, kInvalid, {"key 'head_dim' is a string"}},
      {{{"/hidden_size", "64"}, {"/head_dim", "16"}},
       kInvalid,
       {"'model.embed_tokens.weight' has shape", "48"}},
      {{{"/hidden_size", "2000000000"}, {"/head_dim", "16"}},
       kInvalid,
       {"hidden_size of config.json: 2000000000 is not between"}},
      {{{"/intermediate_size", "64"}},
       kInvalid,
       {"'model.layers.0.mlp.gate_proj.weight' has shape"}},
      {{{"/intermediate_size", "2000000000"}}, kInvalid, {"intermediate_size of config.json: 2"}},
      {{{"/max_position_embeddings", "2000000000"}},
       kInvalid,
       {"max_position_embeddings of config.json: 2000000000 is not between"}},
      {{{"/num_hidden_layers", "1000000000"}}, kInvalid, {"is 1000000000, not between 1 and 4096"}},
      {{{"/num_hidden_layers", "4096"}}, kMissing, {"there is no tensor 'model.layers.2."}},
      {{{"/num_hidden_layers", "3"}}, kMissing, {"there is no tensor 'model.layers.2."}},
      {{{"/num_hidden_layers", "1"}}, kInvalid, {"tensor 'model.layers.1.", "is of layer 1, and"}},
      {{{"/rms_norm_eps", "0"}}, kInvalid, {"key 'rms_norm_eps' is 0, not a positive number"}},
      {{{"/rms_norm_eps", "-1e-5"}}, kInvalid, {"key 'rms_norm_eps' is -1e-05, not a positive"}},
      {{{"/rms_norm_eps", "1e-300"}}, kInvalid, {"key 'rms_norm_eps' is 1e-300, not a positive"}},
      {{{"/rms_norm_eps", "1e300"}}, kInvalid, {"key 'rms_norm_eps' is 1e+300, not a positive"}},
      {{{"/rms_norm_eps", "\"1e-5\""}}, kInvalid, {"key 'rms_norm_eps' is a string; a number"}},
      {{{"/hidden_act", "\"relu2\""}},
       kUnsupported,
       {"'hidden_act' is 'relu2'; supported: silu, swish"}},
      {{{"/hidden_act", "1"}}, kInvalid, {"key 'hidden_act' is 1; a string"}},
      {{{"/hidden_act", "\"a\\u0007\""}}, kUnsupported, {R"('hidden_act' is 'a\x07')"}},
  };
  expect_each_refused("llama", cases);
}

// `type` with members, as rope_scaling and as rope_parameters.
std::vector<Case> scalings(
    const std::vector<std::tuple<std::string, StatusCode, std::string>>& all) {
  std::vector<Case> cases;
  for (const auto& [json, code, part] : all) {
    cases.push_back({{{"/rope_scaling", json}}, code, {"/config.json: rotary embedding", part}});
    cases.push_back({{{"/rope_parameters", json}}, code, {"/config.json: rotary embedding", part}});
  }
  return cases;
}

TEST(HostileFolders, RopeScaling) {
  expect_each_refused(
      "llama",
      scalings({
          {"3", kInvalid, "holds JSON of type number; an object"},
          {R"("yarn")", kInvalid, "holds JSON of type string; an object"},
          {R"([{"type":"linear"}])", kInvalid, "holds JSON of type array; an object"},
          {R"({"type":"wavelet"})", kUnsupported, "is 'wavelet'; default, linear, ntk"},
          {R"({"rope_type":"a\u001bb"})", kUnsupported, R"(is 'a\x1bb')"},
          {R"({"rope_type":7})", kInvalid, "key 'rope_type' is 7; a string"},
          {R"({"rope_theta":0})", kInvalid, "key 'rope_theta' is 0, not a positive"},
          {R"({"rope_theta":"1e6"})", kInvalid, "key 'rope_theta' is a string; a number"},
          {R"({"partial_rotary_factor":-1})", kInvalid, "key 'partial_rotary_factor' is -1, not"},
          {R"({"full_attention":{"rope_type":"linear","factor":2}})", kUnsupported,
           "key 'full_attention' is an object: rotary embeddings that differ between layers"},
          // linear
          {R"({"type":"linear"})", kMissing, "there is no key 'factor'"},
          {R"({"type":"linear","factor":null})", kMissing, "there is no key 'factor'"},
          {R"({"type":"linear","factor":0})", kInvalid, "key 'factor' is 0, not a positive"},
          {R"({"type":"linear","factor":-2.5})", kInvalid, "key 'factor' is -2.5, not a positive"},
          {R"({"type":"linear","factor":1e60})", kInvalid, "key 'factor' is 1e+60, not a positive"},
          {R"({"type":"linear","factor":"2"})", kInvalid, "key 'factor' is a string; a number"},
          {R"({"type":"linear","factor":[2]})", kInvalid, "key 'factor' is an array; a number"},
          // ntk
          {R"({"type":"ntk"})", kMissing, "there is no key 'factor'"},
          {R"({"type":"ntk","factor":-1})", kInvalid, "key 'factor' is -1, not a positive"},
          {R"({"type":"ntk","factor":3e38})", kInvalid, "key 'factor' of 3e+38 is too large"},
          // yarn
          {R"({"type":"yarn","factor":0})", kInvalid, "key 'factor' is 0, not a positive"},
          {R"({"type":"yarn","factor":0.5})", kInvalid, "key 'factor' is 0.5, less than 1"},
          {R"({"type":"yarn","original_max_position_embeddings":0})", kInvalid,
           "key 'original_max_position_embeddings' is 0, not between 2 and"},
          {R"({"type":"yarn","original_max_position_embeddings":1e18})", kInvalid,
           "key 'original_max_position_embeddings' is "},
          {R"({"type":"yarn","original_max_position_embeddings":"64"})", kInvalid,
           "key 'original_max_position_embeddings' is a string"},
          {R"({"type":"yarn","factor":2,"beta_fast":0})", kInvalid, "key 'beta_fast' is 0, not"},
          {R"({"type":"yarn","factor":2,"beta_slow":-1})", kInvalid, "key 'beta_slow' is -1, not"},
          {R"({"type":"yarn","factor":2,"beta_slow":{}})", kUnsupported,
           "key 'beta_slow' is an obj"},
          {R"({"type":"yarn","factor":2,"attention_factor":0})", kInvalid,
           "key 'attention_factor' is 0, not"},
          {R"({"type":"yarn","factor":2,"mscale":"1"})", kInvalid, "key 'mscale' is a string"},
          {R"({"type":"yarn","factor":2,"mscale":-99,"mscale_all_dim":1})", kInvalid,
           "key 'attention_factor' is -"},
          {R"({"type":"yarn","factor":2,"truncate":0})", kInvalid, "key 'truncate' is 0; true or"},
          // llama3
          {R"({"type":"llama3","factor":0})", kInvalid, "key 'factor' is 0, not a positive"},
          {R"({"type":"llama3","low_freq_factor":-1})", kInvalid, "key 'low_freq_factor' is -1"},
          {R"({"type":"llama3","low_freq_factor":4,"high_freq_factor":4})", kInvalid,
           "key 'high_freq_factor' is not greater than low_freq_factor"},
          {R"({"type":"llama3","high_freq_factor":[4]})", kInvalid,
           "key 'high_freq_factor' is an ar"},
          {R"({"type":"llama3","original_max_position_embeddings":-8})", kInvalid,
           "key 'original_max_position_embeddings' is -8, not between 2 and"},
      }));
}

TEST(HostileFolders, LongRope) {
  const auto both = [](const std::string& factors) {
    return fmt::format(R"({{"type":"longrope","short_factor":{0},"long_factor":{0}}})", factors);
  };
  std::vector<Case> cases = scalings({
      {R"({"type":"longrope"})", kMissing, "there is no key 'short_factor'"},
      {R"({"type":"longrope","short_factor":[1,1,1,1,1,1,1,1]})", kMissing, "no key 'long_factor'"},
      {both("[1,2]"), kInvalid, "key 'short_factor' has 2 entries for 8 pairs of dimensions"},
      {both("[]"), kInvalid, "key 'short_factor' has 0 entries for 8 pairs of dimensions"},
      {both("[1,1,1,1,1,1,1,0]"), kInvalid,
       "key 'short_factor' holds something else than positive"},
      {both("[1,1,1,1,1,1,1,-1]"), kInvalid, "key 'short_factor' holds something else than"},
      {both("[1,1,1,1,1,1,1,1e99]"), kInvalid, "key 'short_factor' holds something else than"},
      {both("[1,1,1,1,1,1,1,1e-99]"), kInvalid, "key 'short_factor' holds something else than"},
      {both("[1,1,1,1,1,1,1,\"1\"]"), kInvalid, "key 'short_factor[7]' is a string; an array of"},
      {both("1.5"), kInvalid, "key 'short_factor' is 1.5; an array of numbers"},
  });
  cases.push_back({{{"/original_max_position_embeddings", "0"}},
                   kInvalid,
                   {"key 'original_max_position_embeddings' is 0, not between 2 and"}});
  cases.push_back({{{"/original_max_position_embeddings", "100000000"}},
                   kInvalid,
                   {"original_max_position_embeddings of config.json: 100000000 is not between"}});
  expect_each_refused("phi3-longrope", cases);
}

TEST(HostileFolders, PartsOfHeads) {
  const char* const kPart = "/partial_rotary_factor";
  expect_each_refused(
      "phi3-partial",
      {
          {{{kPart, "0"}}, kInvalid, {"key 'partial_rotary_factor' is 0, not a positive"}},
          {{{kPart, "-1"}}, kInvalid, {"key 'partial_rotary_factor' is -1, not a positive"}},
          {{{kPart, "2"}}, kInvalid, {"'partial_rotary_factor' is 2, of heads of 32 dimensions"}},
          {{{kPart, "1e30"}}, kInvalid, {"'partial_rotary_factor' is 1e+30, of heads of 32"}},
          {{{kPart, "1e-9"}}, kInvalid, {"'partial_rotary_factor' is 1e-09, of heads of 32"}},
          {{{kPart, "0.35"}}, kInvalid, {"partial_rotary_factor of config.json: 11 is odd"}},
          {{{kPart, "\"half\""}}, kInvalid, {"key 'partial_rotary_factor' is a string; a number"}},
          {{{"/rope_theta", "0"}}, kInvalid, {"key 'rope_theta' is 0, not a positive"}},
          {{{"/rope_theta", "-1e4"}}, kInvalid, {"key 'rope_theta' is -10000, not a positive"}},
          {{{"/rope_theta", "1e39"}}, kInvalid, {"key 'rope_theta' is 1e+39, not a positive"}},
      });
}

TEST(HostileFolders, Windows) {
  const std::vector<Case> window = {
      {{{"/sliding_window", "-1"}}, kInvalid, {"key 'sliding_window' is -1, not between 0 and"}},
      {{{"/sliding_window", "1000000000000000000"}}, kInvalid, {"key 'sliding_window' is 1000000"}},
      {{{"/sliding_window", "100000000"}}, kInvalid, {"sliding_window of config.json: 100000000"}},
      {{{"/sliding_window", "8.5"}}, kInvalid, {"key 'sliding_window' is 8.5; an integer"}},
      {{{"/sliding_window", "\"8\""}}, kInvalid, {"key 'sliding_window' is a string"}},
      {{{"/layer_types", "[]"}}, kInvalid, {"key 'layer_types' has 0 entries for"}},
      {{{"/layer_types", "{}"}}, kInvalid, {"key 'layer_types' is an object; an array of strings"}},
      {{{"/layer_types", R"(["full_attention"])"}}, kInvalid, {"'layer_types' has 1 entries for"}},
  };
  for (const char* family : {"mistral", "phi3", "gemma2", "gemma3", "qwen2-window"}) {
    expect_each_refused(family, window);
  }
  expect_each_refused(
      "qwen2-window",
      {
          {{{"/layer_types", R"(["full_attention","chunked_attention","full_attention"])"}},
           kUnsupported,
           {"key 'layer_types' has 'chunked_attention'; full_attention and sliding_attention"}},
          {{{"/layer_types", R"(["full_attention",1,"full_attention"])"}},
           kInvalid,
           {"key 'layer_types[1]' is 1; an array of strings"}},
          {{{"/max_window_layers", "\"all\""}}, kInvalid, {"key 'max_window_layers' is a string"}},
          {{{"/use_sliding_window", "1"}},
           kInvalid,
           {"key 'use_sliding_window' is 1; true or fal"}},
      });
}

TEST(HostileFolders, KeysOfGemma) {
  expect_each_refused(
      "gemma2",
      {
          {{{"/query_pre_attn_scalar", "0"}},
           kInvalid,
           {"'query_pre_attn_scalar' is 0, not a pos"}},
          {{{"/query_pre_attn_scalar", "-2"}}, kInvalid, {"'query_pre_attn_scalar' is -2, not a"}},
          {{{"/attn_logit_softcapping", "-50"}},
           kInvalid,
           {"'attn_logit_softcapping' is -50, not"}},
          {{{"/final_logit_softcapping", "true"}},
           kInvalid,
           {"'final_logit_softcapping' is a bool"}},
          {{{"/hidden_activation", "\"silu\""}},
           kUnsupported,
           {"'hidden_activation' is 'silu'; supp"}},
      });
  expect_each_refused(
      "gemma3",
      {
          {{{"/rope_local_base_freq", "0"}},
           kInvalid,
           {"'rope_local_base_freq' is 0, not a positive"}},
          {{{"/rope_local_base_freq", "-1"}}, kInvalid, {"'rope_local_base_freq' is -1, not a"}},
          {{{"/sliding_window_pattern", "0"}},
           kInvalid,
           {"'sliding_window_pattern' is less than 1"}},
          {{{"/use_bidirectional_attention", "true"}}, kUnsupported, {"is true: rows would see"}},
          {{{"/rope_parameters", "[]"}}, kInvalid, {"/config.json: holds JSON of type array"}},
          {{{"/rope_parameters", R"({"full_attention":[]})"}},
           kInvalid,
           {"/config.json: rotary embedding: holds JSON of type array; an object"}},
          {{{"/rope_parameters", R"({"full_attention":{"rope_type":"linear"}})"}},
           kMissing,
           {"/config.json: rotary embedding: there is no key 'factor'"}},
          {{{"/rope_parameters", R"({"sliding_attention":{"rope_type":"linear","factor":2}})"}},
           kUnsupported,
           {"key 'sliding_attention.rope_type' is not 'default', which windowed layers have"}},
          {{{"/rope_parameters", R"({"sliding_attention":{"rope_theta":-1}})"}},
           kInvalid,
           {"key 'sliding_attention.rope_theta' is -1, not a positive"}},
      });
  expect_each_refused(
      "gemma3-vision",
      {
          {{{"/text_config", "[]"}}, kInvalid, {"key 'text_config' is an array; an object"}},
          {{{"/text_config", "\"gemma3_text\""}}, kInvalid, {"key 'text_config' is a string; an"}},
          {{{"/text_config", "{}"}}, kMissing, {"there is no key 'text_config.num_hidden_layers'"}},
          {{{"/text_config/hidden_size", "-1"}}, kInvalid, {"key 'text_config.hidden_size' is -1"}},
          {{{"/text_config", ""}}, kMissing, {"there is no key 'num_hidden_layers'"}},
      });
}

TEST(HostileFolders, KeysOfOtherFamilies) {
  expect_each_refused("smollm3", {
                                     {{{"/no_rope_layers", "[1]"}},
                                      kInvalid,
                                      {"'no_rope_layers' does not have one entry for"}},
                                     {{{"/no_rope_layers", "1"}},
                                      kInvalid,
                                      {"key 'no_rope_layers' is 1; an array of integers"}},
                                     {{{"/no_rope_layers", "[true,false]"}},
                                      kInvalid,
                                      {"key 'no_rope_layers[0]' is a boolean"}},
                                     {{{"/no_rope_layers", ""}, {"/no_rope_layer_interval", "0"}},
                                      kInvalid,
                                      {"key 'no_rope_layer_interval' is less than 1"}},
                                 });
  expect_each_refused(
      "granite",
      {
          {{{"/residual_multiplier", "0"}},
           kInvalid,
           {"key 'residual_multiplier' is 0, not a posi"}},
          {{{"/logits_scaling", "-8"}}, kInvalid, {"key 'logits_scaling' is -8, not a positive"}},
          {{{"/embedding_multiplier", "1e39"}}, kInvalid, {"key 'embedding_multiplier' is 1e+39"}},
          {{{"/attention_multiplier", "[1]"}},
           kInvalid,
           {"key 'attention_multiplier' is an array"}},
      });
  expect_each_refused(
      "gpt2",
      {
          {{{"/n_layer", "0"}}, kInvalid, {"key 'n_layer' is 0, not between 1 and"}},
          {{{"/n_embd", ""}}, kMissing, {"there is no key 'n_embd'"}},
          {{{"/n_head", "5"}}, kUnsupported, {"n_embd / n_head of config.json: heads of "}},
          {{{"/n_positions", "1000"}}, kInvalid, {"'wpe.weight' has shape"}},
          {{{"/n_inner", "77"}}, kInvalid, {"'h.0.mlp.c_fc.bias' has shape"}},
          {{{"/activation_function", "\"relu\""}},
           kUnsupported,
           {"'activation_function' is 'relu'"}},
          {{{"/scale_attn_weights", "false"}}, kUnsupported, {"key 'scale_attn_weights' is false"}},
          {{{"/add_cross_attention", "true"}}, kUnsupported, {"key 'add_cross_attention' is true"}},
      });
  expect_each_refused(
      "llama",
      {
          {{{"/attention_bias", "true"}},
           kMissing,
           {"no tensor 'model.layers.0.self_attn.k_proj.bias'"}},
          {{{"/mlp_bias", "true"}}, kMissing, {"no tensor 'model.layers.0.mlp.down_proj.bias'"}},
          {{{"/mlp_bias", "\"no\""}}, kInvalid, {"key 'mlp_bias' is a string; true or false"}},
      });
}

TEST(HostileFolders, KeysOfShortConvolutions) {
  expect_each_refused(
      "lfm2",
      {
          {{{"/full_attn_idxs", "[1, 4]"}}, kInvalid, {"key 'full_attn_idxs' has 4, of 4 layers"}},
          {{{"/full_attn_idxs", "[]"}}, kUnsupported, {"no layer with attention"}},
          {{{"/full_attn_idxs", "[1]"}}, kMissing, {"'model.layers.3.conv.in_proj.weight'"}},
          {{{"/conv_L_cache", "1"}}, kInvalid, {"key 'conv_L_cache' is 1, not between 2"}},
          {{{"/conv_L_cache", "4"}}, kInvalid, {"'model.layers.0.conv.conv.weight' has shape"}},
          {{{"/conv_bias", "true"}}, kMissing, {"no tensor 'model.layers.0.conv.conv.bias'"}},
          {{{"/block_ff_dim", "300"}}, kInvalid, {"feed_forward.w"}},
          {{{"/block_ffn_dim_multiplier", "-1"}}, kInvalid, {"'block_ffn_dim_multiplier' is -1"}},
          {{{"/block_use_swiglu", "false"}}, kUnsupported, {"key 'block_use_swiglu' is false"}},
          {{{"/use_pos_enc", "false"}}, kUnsupported, {"key 'use_pos_enc' is false"}},
      });
  expect_each_refused(
      "lfm2-moe",
      {
          {{{"/layer_types", "[\"conv\"]"}}, kInvalid, {"'layer_types' has 1 entries for 3"}},
          {{{"/layer_types/0", "\"mamba\""}}, kUnsupported, {"'layer_types' has 'mamba'"}},
          {{{"/use_expert_bias", "false"}}, kUnsupported, {"feed_forward.expert_bias"}},
      });
}

TEST(HostileFolders, KeysOfStateSpaces) {
  expect_each_refused(
      "granite-hybrid",
      {
          {{{"/layer_types/2", "\"mamba\""}}, kUnsupported, {"no layer with attention"}},
          {{{"/layer_types/2", "\"conv\""}}, kUnsupported, {"'layer_types' has 'conv'"}},
          {{{"/mamba_n_heads", "3"}}, kInvalid, {"'mamba_n_heads' of 3 of 16 dimensions"}},
          {{{"/mamba_n_heads", "8"}, {"/mamba_d_head", "\"auto\""}},
           kInvalid,
           {"'model.layers.0.mamba.A_log' has 4 rows, which do not fit 8 heads of 8"}},
          {{{"/mamba_d_head", "\"half\""}}, kUnsupported, {"key 'mamba_d_head' is 'half'"}},
          {{{"/mamba_n_groups", "3"}}, kInvalid, {"'mamba_n_groups' of 3 does not divide"}},
          {{{"/mamba_expand", "4000000000"}}, kInvalid, {"key 'mamba_expand' is 4000000000"}},
          {{{"/mamba_d_state", "32"}}, kInvalid, {"'model.layers.0.mamba.conv1d"}},
          {{{"/mamba_proj_bias", "true"}}, kMissing, {"'model.layers.0.mamba.in_proj.bias'"}},
          {{{"/time_step_limit", "[0.0, 0.1]"}}, kUnsupported, {"'time_step_limit' is [0.0,0.1]"}},
          {{{"/time_step_limit", "1"}}, kUnsupported, {"'time_step_limit' is no pair"}},
          {{{"/position_embedding_type", "\"alibi\""}},
           kUnsupported,
           {"'position_embedding_type' is 'alibi'"}},
          {{{"/normalization_function", "\"layernorm\""}},
           kUnsupported,
           {"'normalization_function' is 'layernorm'"}},
          {{{"/shared_intermediate_size", "64"}}, kInvalid, {"shared_mlp."}},
      });
}

TEST(HostileFolders, Quantization) {
  const char* const kKey = "/quantization_config";
  std::vector<Case> cases;
  for (const std::string method : {"gptq", "awq", "bitsandbytes", "quanto", ""}) {
    cases.push_back({{{kKey, fmt::format(R"({{"quant_method":"{}"}})", method)}},
                     kUnsupported,
                     {fmt::format("key 'quantization_config.quant_method' is '{}'; fp8", method),
                      "original weights"}});
  }
  const auto block = [&](const std::string& size, const std::string& part) {
    const std::string json =
        fmt::format(R"({{"quant_method":"fp8","weight_block_size":{}}})", size);
    return Case{{{kKey, json}}, kInvalid, {part}};
  };
  const std::string not_two = "key 'quantization_config.weight_block_size' is not two positive";
  for (const char* size : {"[0,32]", "[32,-1]", "[32]", "[32,32,32]", "[]"}) {
    cases.push_back(block(size, not_two));
  }
  cases.push_back(block("32", "key 'quantization_config.weight_block_size' is 32; an array"));
  cases.push_back(block("[1.5,2]", "key 'quantization_config.weight_block_size[0]' is 1.5"));
  cases.push_back(block("[16,16]", "has other scales than its"));
  cases.push_back(block("[1000000000000000000,1000000000000000000]", "has other scales than its"));
  cases.push_back({{{kKey, "{}"}}, kMissing, {"no key 'quantization_config.quant_method'"}});
  cases.push_back({{{kKey, "[]"}}, kInvalid, {"key 'quantization_config' is an array; an object"}});
  cases.push_back(
      {{{kKey, ""}}, kInvalid, {"is a scale, and config.json has no quantization_config"}});
  cases.push_back({{{kKey, R"({"quant_method":"fp8"})"}}, kInvalid, {"rows and ", " scales"}});
  cases.push_back({{{kKey, R"({"quant_method":"compressed-tensors","format":"marlin-24"})"}},
                   kUnsupported,
                   {"key 'quantization_config.format' is 'marlin-24'; float-quantized"}});
  expect_each_refused("llama-fp8-block", cases);
}

TEST(HostileFolders, QuantizationInGroups) {
  std::vector<Case> cases;
  const auto refused = [&](const std::string& format, const std::string& groups, StatusCode code,
                           const std::string& part) {
    cases.push_back({{{"/quantization_config",
                       fmt::format(R"({{"quant_method":"compressed-tensors","format":"{}"{}}})",
                                   format, groups)}},
                     code,
                     {part}});
  };
  const auto weights = [&](const std::string& json, StatusCode code, const std::string& part) {
    refused("int-quantized",
            fmt::format(R"(,"config_groups":{{"group_0":{{"weights":{{{}}}}}}})", json), code,
            "quantization_config.config_groups.group_0: key 'weights." + part);
  };
  const std::string groups = "'quantization_config.config_groups'";
  refused("int-quantized", "", kMissing, "no key " + groups);
  refused("naive-quantized", "", kMissing, "no key " + groups);
  refused("int-quantized", R"(,"config_groups":[1])", kInvalid, "key " + groups + " is an array");
  refused("int-quantized", R"(,"config_groups":{"a\nb":3})", kInvalid, "config_groups.a\\nb");
  refused("int-quantized", R"(,"config_groups":{},"transform_config":{"config_groups":{}})",
          kUnsupported, "key 'quantization_config.transform_config' rotates");
  weights(R"("num_bits":4)", kUnsupported, "num_bits' is 4; 8 is supported");
  weights(R"("num_bits":"8")", kInvalid, "num_bits' is a string");
  weights(R"("symmetric":false)", kUnsupported, "symmetric' is false; weights without zero points");
  weights(R"("type":"bool")", kUnsupported, "type' is 'bool'; int and float");
  weights(R"("strategy":"block")", kUnsupported, "strategy' is 'block'; group, channel and tensor");
  weights(R"("strategy":"group")", kInvalid, "group_size' is 0, not a positive size");
  weights(R"("strategy":"group","group_size":-1)", kInvalid, "group_size' is -1, not a positive");
  weights(R"("group_size":1.5)", kInvalid, "group_size' is 1.5");
  for (const char* order : {"\"group\"", "\"dynamic\"", "true"}) {
    weights(fmt::format(R"("actorder":{})", order), kUnsupported, "actorder' puts columns");
  }
  expect_each_refused("llama", cases);
}

TEST(HostileFolders, NullIsNone) {
  HuggingFaceFolder folder("gemma2", temporary_path("null"));
  const auto has = [&](const char* key) {
    folder.write();
    const auto file = open_model_file(folder.path());
    EXPECT_TRUE(file.ok()) << file.status().message();
    return file.ok() && (*file)->find(key) != nullptr;
  };
  for (const auto& [key, metadata] :
       {std::pair("attn_logit_softcapping", "gemma2.attn_logit_softcapping"),
        std::pair("final_logit_softcapping", "gemma2.final_logit_softcapping"),
        std::pair("sliding_window", "gemma2.attention.sliding_window")}) {
    EXPECT_TRUE(has(metadata));
    folder.config.erase(key);
    EXPECT_TRUE(has(metadata)) << "absent: the usual value";
    folder.config[key] = nullptr;
    EXPECT_FALSE(has(metadata));
  }
}

// Mistral's configuration has a window where it says nothing; Llama's has none whatever it says.
TEST(HostileFolders, WindowsOfMistralAndLlama) {
  HuggingFaceFolder folder("mistral", temporary_path("windows"));
  const auto window = [&]() -> int64_t {
    folder.write();
    const auto file = open_model_file(folder.path());
    EXPECT_TRUE(file.ok()) << file.status().message();
    return (*file)->integer("llama.attention.sliding_window").ok()
               ? *(*file)->integer("llama.attention.sliding_window")
               : 0;
  };
  EXPECT_EQ(window(), 12);
  folder.config["model_type"] = "llama";
  EXPECT_EQ(window(), 0);
  folder.config["model_type"] = "mistral";
  folder.config["sliding_window"] = nullptr;
  EXPECT_EQ(window(), 0);
  folder.config.erase("sliding_window");
  EXPECT_EQ(window(), 4096);
}

}  // namespace aerie::hugging_face_hostile_test
