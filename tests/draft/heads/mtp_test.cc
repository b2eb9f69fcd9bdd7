// What files with modules for multi-token prediction may hold, what several modules draft, and what
// is refused. What one module computes: golden_test.cc.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>

#include "format/gguf/gguf_write.h"
#include "format/safetensors/safetensors_folder.h"
#include "model/import/hugging_face_file.h"
#include "tests/draft/heads/head_folder.h"
#include "tests/draft/heads/head_rows.h"
#include "tests/model/changed_file.h"

namespace aerie::test::mtp_test {

using ::testing::ElementsAre;

constexpr StatusCode kOther = StatusCode::kInvalidArgument;  // of another model
constexpr StatusCode kUnsupported = StatusCode::kUnsupported;
constexpr int kHidden = 32, kVocab = 96, kTargetLayers = 8;  // of the goldens' target
const std::string kModule = "model.layers.8.";
const std::string kSecond = "model.layers.9.";

TEST(MtpHead, ReadsTheFinalHiddenState) {
  HeadFolder folder("mtp-deepseek", "mtp");
  const auto head = folder.load();
  ASSERT_TRUE(head.ok()) << head.status().message();
  EXPECT_THAT((*head)->tap_layers(), ElementsAre(kTargetLayers));
  EXPECT_EQ((*head)->feature_width(), kHidden);
  EXPECT_EQ((*head)->hidden(), kHidden);
  EXPECT_EQ((*head)->vocab(), kVocab);
  EXPECT_EQ((*head)->cache_config().layers, 1);
  HeadSettings settings;
  settings.tap_layers = {2};
  folder.expect_refused(kOther, "leave out tap_layers", settings);
}

// The embedding and the head are copies of the target's.
TEST(MtpHead, CopiesOfTheTargetsTablesMayBeMissing) {
  HeadFolder folder("mtp-deepseek", "mtp");
  const Floats plain = last_of(folder).logits;
  folder.remove(kModule + "embed_tokens.weight");
  EXPECT_EQ(last_of(folder).logits, plain);
  folder.remove(kModule + "shared_head.head.weight");
  EXPECT_EQ(last_of(folder).logits, plain);
  // The package speculators takes the target's whatever it wrote.
  HeadFolder packaged("mtp-speculators", "mtp");
  const Floats said = last_of(packaged).logits;
  packaged.add("verifier_lm_head.weight", {kVocab, kHidden});
  EXPECT_EQ(last_of(packaged).logits, said);
}

TEST(MtpHead, IsFoundInTheTargetsOwnFolder) {
  for (const auto& [name, target] : {std::pair<std::string, std::string>{"mtp-deepseek", "target"},
                                     {"mtp-mimo", "target-qwen2"},
                                     {"mtp-qwen3.5", "target"}}) {
    SCOPED_TRACE(name);
    HeadFolder folder(name, "mtp");
    const Floats plain = last_of(folder).logits;
    const auto model =
        SafetensorsFolder::open_any("tests/golden/heads/" + target + "/model.safetensors");
    ASSERT_TRUE(model.ok()) << model.status().message();
    for (const SafetensorsTensor* tensor : model->tensors()) {
      folder.add(tensor->name, tensor->shape);
    }
    EXPECT_EQ(last_of(folder).logits, plain);
  }
}

TEST(MtpHead, EachSwitchChangesWhatItSays) {
  HeadFolder folder("mtp-deepseek", "mtp");
  const auto outputs = [&](const std::map<std::string, bool, std::less<>>& switches) {
    HeadSettings settings;
    settings.switches = switches;
    return last_of(folder, 12, -1, settings);
  };
  const RowOutput plain = outputs({});
  // Those of the layout.
  const RowOutput said = outputs({{"feature_normed", true},
                                  {"handed_normed", true},
                                  {"hidden_first", false},
                                  {"zero_first", true}});
  EXPECT_EQ(said.logits, plain.logits);
  EXPECT_EQ(said.hidden, plain.hidden);
  EXPECT_NE(outputs({{"feature_normed", false}}).logits, plain.logits);
  EXPECT_NE(outputs({{"hidden_first", true}}).logits, plain.logits);
  EXPECT_NE(outputs({{"zero_first", false}}).logits, plain.logits);
  const RowOutput handed = outputs({{"handed_normed", false}});
  EXPECT_EQ(handed.logits, plain.logits);
  EXPECT_NE(handed.hidden, plain.hidden);
}

// The tensors of a module once more under another name, changed.
void add_second(HeadFolder& folder) {
  std::vector<HeadTensor> second;
  for (const HeadTensor& tensor : folder.tensors) {
    if (!tensor.name.starts_with(kModule)) continue;
    HeadTensor& copy = second.emplace_back(tensor);
    copy.name.replace(0, kModule.size(), kSecond);
    Floats values(copy.data.size() / sizeof(float));
    std::memcpy(values.data(), copy.data.data(), copy.data.size());
    const bool shared = copy.name.ends_with("head.weight") || copy.name.ends_with("tokens.weight");
    if (!shared && copy.shape.size() == 2) std::ranges::reverse(values);
    std::memcpy(copy.data.data(), values.data(), copy.data.size());
  }
  folder.tensors.insert(folder.tensors.end(), second.begin(), second.end());
}

// Each module by itself, fed by hand what the one before it makes, says what both together must.
TEST(MtpHead, SeveralModulesDraftInTurn) {
  constexpr int kRows = 14;
  const auto features = made_features(kRows, kHidden);
  const auto tokens = made_tokens(kRows + 2, kVocab);
  const auto real = std::span(tokens).first(kRows);

  HeadFolder first("mtp-deepseek", "mtp");
  const auto one = first.load();
  ASSERT_TRUE(one.ok()) << one.status().message();
  const std::vector<RowOutput> of_first = RowRunner(**one).commit(features, real, 1);

  HeadFolder last("mtp-deepseek", "mtp");
  add_second(last);
  std::erase_if(last.tensors, [](const HeadTensor& t) { return t.name.starts_with(kModule); });
  HeadSettings settings;
  settings.switches["feature_normed"] = false;
  const auto two = last.load(settings);
  ASSERT_TRUE(two.ok()) << two.status().message();
  // Row p: what the first module made of row p - 1. The row of the node is one more of that kind.
  std::vector<Floats> handed = {Floats(kHidden, 0.0f)};
  for (const RowOutput& output : of_first) handed.push_back(output.hidden);
  RowRunner rows(**two);
  const RowOutput depth_1 =
      rows.commit(handed, std::span(tokens).first(kRows + 1), kRows + 1).back();
  const RowOutput depth_2 =
      rows.commit(std::vector<Floats>{depth_1.hidden}, std::span(tokens).subspan(kRows + 1, 1), 1)
          .back();
  EXPECT_NE(depth_1.logits, of_first.back().logits);

  HeadFolder both("mtp-deepseek", "mtp");
  add_second(both);
  const auto head = both.load();
  ASSERT_TRUE(head.ok()) << head.status().message();
  EXPECT_EQ((*head)->hidden(), 2 * kHidden);
  EXPECT_EQ((*head)->cache_config().layers, 2);
  for (const int chunk : {1, 3, kRows}) {
    SCOPED_TRACE(testing::Message() << "in chunks of " << chunk);
    RowRunner together(**head);
    const RowOutput root = together.commit(features, real, chunk).back();
    EXPECT_EQ(root.logits, of_first.back().logits);
    const RowOutput child = together.add_node(root.hidden, tokens[kRows]);
    EXPECT_EQ(child.logits, depth_1.logits);
    EXPECT_EQ(together.add_node(child.hidden, tokens[kRows + 1]).logits, depth_2.logits);
  }
}

TEST(MtpHead, OfAnotherModelIsRefused) {
  HeadFolder folder("mtp-deepseek", "mtp");
  folder.config["hidden_size"] = 64;
  folder.expect_refused(kOther, "its hidden size is 64, and the target's is 32");
  HeadFolder head("mtp-deepseek", "mtp");
  head.reshape(kModule + "shared_head.head.weight", {kVocab - 6, kHidden});
  head.expect_refused(kOther, "is 90, and the target's vocabulary is 96");
  HeadFolder none("eagle", "mtp");
  none.expect_refused(kOther, "has no module for multi-token prediction");
}

TEST(MtpHead, LayersOfOtherKindsAreRefused) {
  HeadFolder latent("mtp-deepseek", "mtp");
  latent.add(kModule + "self_attn.kv_a_proj_with_mqa.weight", {24, kHidden});
  latent.expect_refused(StatusCode::kNotFound, "kv_lora_rank");
  // Their routers are not softmax.
  HeadFolder experts("mtp-glm", "mtp");
  experts.add(kModule + "mlp.experts.0.up_proj.weight", {48, kHidden});
  experts.expect_refused(kUnsupported, "has a mixture of experts");
  HeadFolder linear("mtp-qwen3.5", "mtp");
  linear.add("mtp.layers.0.linear_attn.in_proj_qkvz.weight", {48, kHidden});
  linear.expect_refused(kUnsupported, "has linear attention");
  HeadFolder of_hybrid("mtp-qwen3.5-hybrid", "mtp");
  of_hybrid.add("mtp.layers.0.linear_attn.norm.weight", {16});
  of_hybrid.expect_refused(kUnsupported,
                           "has linear attention (tensor 'mtp.layers.0.linear_attn.norm.weight')");
  // Of the target's layers such are none of the module's affair.
  HeadFolder target("mtp-deepseek", "mtp");
  target.add("model.layers.0.self_attn.kv_a_proj_with_mqa.weight", {24, kHidden});
  EXPECT_TRUE(target.load().ok());
}

// Experts by the rules of the model's family.
TEST(MtpHead, ModulesWithExpertsMustBeWhole) {
  const std::string kMlp = "mtp.layers.0.mlp.";
  HeadFolder one("mtp-qwen3-next", "mtp");
  one.remove(kMlp + "experts.3.up_proj.weight");
  one.expect_refused(StatusCode::kNotFound, "experts.3.up_proj.weight");
  HeadFolder sixth("mtp-qwen3-next", "mtp");
  sixth.add(kMlp + "experts.5.up_proj.weight", {16, kHidden});
  sixth.expect_refused(StatusCode::kInvalidData, "is of expert 5, and there are 5");
  HeadFolder four("mtp-qwen3.5-moe", "mtp");
  four.reshape(kMlp + "experts.down_proj", {4, kHidden, 16});
  four.expect_refused(kUnsupported, kMlp + "experts.down_proj' is of type F32 with 3 dimensions");
  HeadFolder ungated("mtp-qwen3.5-moe", "mtp");
  ungated.remove(kMlp + "shared_expert_gate.weight");
  ungated.expect_refused(StatusCode::kNotFound, "mlp.shared_expert_gate.weight");
  HeadFolder extra("mtp-qwen3.5-moe", "mtp");
  extra.add("mtp.gate.weight", {kHidden});
  extra.expect_refused(kUnsupported, "'mtp.gate.weight' has no place");
}

// A module whose layer only its family's rules read is not taken for one of another kind.
TEST(MtpHead, LatentModulesMustBeWhole) {
  HeadFolder one("mtp-deepseek-latent", "mtp");
  one.remove(kModule + "mlp.experts.3.up_proj.weight");
  one.expect_refused(StatusCode::kNotFound, "mlp.experts.3.up_proj.weight");
  HeadFolder keys("mtp-glm-latent", "mtp");
  keys.reshape(kModule + "self_attn.kv_b_proj.weight", {90, 16});
  keys.expect_refused(StatusCode::kInvalidData, kModule + "self_attn.kv_b_proj.weight");
  HeadFolder norm("mtp-glm-latent", "mtp");
  norm.remove(kModule + "hnorm.weight");
  norm.expect_refused(StatusCode::kNotFound, kModule + "hnorm.weight");
  HeadFolder correction("mtp-deepseek-latent", "mtp");
  correction.reshape(kModule + "mlp.gate.e_score_correction_bias", {7});
  correction.expect_refused(StatusCode::kInvalidData, "e_score_correction_bias");
  HeadFolder extra("mtp-deepseek-latent", "mtp");
  extra.add(kModule + "gnorm.weight", {kHidden});
  extra.expect_refused(kUnsupported, "'" + kModule + "gnorm.weight' has no place");
  HeadFolder silent("mtp-deepseek-latent", "mtp");
  silent.config.erase("kv_lora_rank");
  silent.expect_refused(StatusCode::kNotFound, "kv_lora_rank");
}

// The last of a few rows of a file's module, over the goldens' hybrid.
RowOutput last_of_file(const std::string& path, std::optional<DType> dtype = std::nullopt,
                       const std::string& target = "tests/golden/heads/target-qwen3.5") {
  constexpr int kRows = 12;
  HeadModels models(target);
  HeadSettings settings;
  settings.dtype = dtype;
  const auto head = models.load("mtp", path, settings);
  EXPECT_TRUE(head.ok()) << head.status().message();
  if (!head.ok()) return {};
  return RowRunner(**head)
      .commit(made_features(kRows, kHidden), made_tokens(kRows, kVocab), 5)
      .back();
}

// A model's own, in a folder by Qwen's names and behind its layers in GGUF.
TEST(MtpHead, IsTheSameInGguf) {
  for (const std::string name :
       {"qwen3-next", "qwen35-moe", "qwen35-vision", "deepseek3", "glm4-moe-lite"}) {
    SCOPED_TRACE(name);
    const std::string folder = "tests/golden/families/" + name;
    const auto file = open_model_file(folder);
    ASSERT_TRUE(file.ok()) << file.status().message();
    const std::string gguf = testing::TempDir() + fmt::format("aerie_{}_mtp.gguf", getpid());
    ASSERT_TRUE(write_gguf(**file, gguf).ok());
    const RowOutput plain = last_of_file(folder, std::nullopt, folder),
                    other = last_of_file(gguf, std::nullopt, folder);
    std::filesystem::remove(gguf);
    ASSERT_FALSE(plain.logits.empty());
    EXPECT_EQ(plain.logits, other.logits);
    EXPECT_EQ(plain.hidden, other.hidden);
  }
}

// Beside embedding and output matrix, as llama.cpp's converter writes such files: what all layers
// have in common must not be looked for in the model's.
TEST(MtpHead, AFileMayHoldTheModuleAlone) {
  const std::string folder = "tests/golden/families/deepseek3";
  const auto file = open_model_file(folder);
  ASSERT_TRUE(file.ok()) << file.status().message();
  ChangedFile alone(**file);
  for (const TensorInfo& tensor : (*file)->tensors()) {
    const bool is_models = tensor.name.starts_with("blk.0.") || tensor.name.starts_with("blk.1.");
    if (is_models) alone.without_tensor(std::string(tensor.name));
  }
  const std::string gguf = testing::TempDir() + fmt::format("aerie_{}_alone.gguf", getpid());
  ASSERT_TRUE(write_gguf(alone.done(), gguf).ok());
  const RowOutput whole = last_of_file(folder, std::nullopt, folder),
                  other = last_of_file(gguf, std::nullopt, folder);
  std::filesystem::remove(gguf);
  ASSERT_FALSE(whole.logits.empty());
  EXPECT_EQ(whole.logits, other.logits);
  EXPECT_EQ(whole.hidden, other.hidden);
}

// As llama.cpp's converter writes it, from the same folder: Q8_0, and F16 where that does not fit.
// What is handed on, since the type is the target's output matrix's, too.
TEST(MtpHead, IsTheSameAsLlamaCppsConverterHasIt) {
  const RowOutput theirs = last_of_file("tests/golden/gguf/qwen35-moe.q8_0.gguf");
  const RowOutput ours = last_of_file("tests/golden/families/qwen35-moe", DType::kQ8_0);
  ASSERT_FALSE(theirs.hidden.empty());
  EXPECT_EQ(theirs.hidden, ours.hidden);
}

TEST(MtpHead, GgufFilesWithoutOneAreRefused) {
  const auto file = open_model_file("tests/golden/families/qwen35");
  ASSERT_TRUE(file.ok()) << file.status().message();
  const std::string gguf = testing::TempDir() + fmt::format("aerie_{}_none.gguf", getpid());
  ASSERT_TRUE(write_gguf(**file, gguf).ok());
  const Status status = HeadFile::open(gguf, {}).status();
  std::filesystem::remove(gguf);
  EXPECT_EQ(status.code(), kOther);
  EXPECT_NE(status.message().find("has no module for multi-token prediction"), std::string::npos);
}

// A layer of the target's family has attention wherever the target's are linear.
TEST(MtpHead, OfAHybridHasAttentionAlone) {
  for (const char* name : {"mtp-qwen3.5-hybrid", "mtp-qwen3.5-moe", "mtp-qwen3-next"}) {
    SCOPED_TRACE(name);
    HeadFolder folder(name, "mtp");
    const auto head = folder.load();
    ASSERT_TRUE(head.ok()) << head.status().message();
    EXPECT_EQ((*head)->cache_config().layers, 1);
    EXPECT_EQ((*head)->cache_config().count_linear(), 0);
    // Matrices of another type, those of experts too.
    HeadSettings settings;
    settings.dtype = DType::kQ8_0;
    EXPECT_NE(last_of(folder, 12, -1, settings).logits, last_of(folder).logits);
  }
}

TEST(MtpHead, TensorsThatDoNotFitTogetherAreRefused) {
  HeadFolder missing("mtp-deepseek", "mtp");
  missing.remove(kModule + "shared_head.norm.weight");
  missing.expect_refused(StatusCode::kNotFound, "shared_head.norm.weight");
  HeadFolder extra("mtp-deepseek", "mtp");
  extra.add(kModule + "gnorm.weight", {kHidden});
  extra.expect_refused(kUnsupported, "'" + kModule + "gnorm.weight' has no place");
  HeadFolder of_qwen("mtp-qwen3.5", "mtp");
  of_qwen.add("mtp.gate.weight", {kHidden});
  of_qwen.expect_refused(kUnsupported, "'mtp.gate.weight' has no place");
  HeadFolder queries("mtp-qwen3.5", "mtp");
  queries.reshape("mtp.layers.0.self_attn.q_proj.weight", {96, kHidden});
  queries.expect_refused(StatusCode::kInvalidData, "self_attn.q_proj.weight");
  HeadFolder projection("mtp-mimo", "mtp");
  projection.reshape("model.mtp_layers.0.input_proj.weight", {kHidden, kHidden});
  projection.expect_refused(StatusCode::kInvalidData, "input_proj.weight");
  HeadFolder half("mtp-deepseek", "mtp");
  add_second(half);
  half.remove(kSecond + "mlp.up_proj.weight");
  half.expect_refused(StatusCode::kNotFound, "blk.1.ffn_up.weight");
}

}  // namespace aerie::test::mtp_test
