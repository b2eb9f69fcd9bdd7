#include "train/methods/target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <string_view>

#include "format/json.h"
#include "model/import/hugging_face_file.h"
#include "model/registry.h"

namespace aerie::target_test {

// What GGUF has no name of its own for: Mistral's files say that they are Llama's, and Granite's
// hybrid without a hybrid layer that it is plain; models with pictures are another class, around
// the one that the engine runs.
bool is_another_class(const std::string& folder, const std::string& name) {
  return name.ends_with("ForConditionalGeneration") || name == "MistralForCausalLM" ||
         folder == "granite-4-attention";
}

TEST(TrainingTarget, SaysItsClassAsItsConfigDoes) {
  namespace fs = std::filesystem;
  std::set<std::string> unsaid;
  for (const fs::directory_entry& folder : fs::directory_iterator("tests/golden/families")) {
    if (!fs::exists(folder.path() / "config.json")) continue;
    const Expected<Json> config = read_json((folder.path() / "config.json").string());
    ASSERT_TRUE(config.ok()) << config.status().message();
    const std::string wanted = (*config)["architectures"][0].get<std::string>();
    if (is_another_class(folder.path().filename().string(), wanted)) continue;
    const auto file = open_model_file(folder.path().string());
    ASSERT_TRUE(file.ok()) << file.status().message();
    const auto blueprint = read_blueprint(**file);
    ASSERT_TRUE(blueprint.ok()) << blueprint.status().message();
    const std::string_view name = train::transformers_class(**file, blueprint->config);
    if (name.empty()) {
      unsaid.insert(wanted);
    } else {
      EXPECT_EQ(name, wanted) << folder.path();
    }
  }
  // Those with latents share a GGUF architecture, and nothing that would say it is trained for
  // GPT-2.
  EXPECT_THAT(unsaid, testing::ElementsAre("DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM",
                                           "GPT2LMHeadModel", "Glm4MoeLiteForCausalLM"));
}

}  // namespace aerie::target_test
