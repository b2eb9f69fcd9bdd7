#include "hub/file_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace aerie::file_choice_test {

using testing::ElementsAre;
using testing::HasSubstr;
using Names = std::vector<std::string>;

std::string opened(const Names& names, const std::string& pick = "") {
  const auto choice = choose_files(names, pick);
  return choice.ok() ? choice->open : "error: " + choice.status().message();
}

TEST(FileChoice, QuantisationsInAnyCase) {
  const Names names = {"m-Q4_K_M.gguf", "m-Q4_K_S.gguf", "m.q8_0.gguf", "m-UD-IQ2_XXS.gguf"};
  EXPECT_EQ(opened(names, "q4_k_s"), "m-Q4_K_S.gguf");
  EXPECT_EQ(opened(names, "Q8_0"), "m.q8_0.gguf");
  EXPECT_EQ(opened(names, "iq2_xxs"), "m-UD-IQ2_XXS.gguf");
  EXPECT_EQ(opened(names, "UD-IQ2_XXS"), "m-UD-IQ2_XXS.gguf");
}

TEST(FileChoice, APartOfANameIsNoQuantisation) {
  const Names names = {"Q4-m-Q4_K_M.gguf", "x-IQ4_XS.gguf"};
  for (const char* pick : {"Q4_K", "K_M", "Q4_XS", "4", "gguf"}) {
    EXPECT_THAT(opened(names, pick), HasSubstr("there is no")) << pick;
  }
}

TEST(FileChoice, TheNearestWhereNobodyAsks) {
  Names names = {"m-F16.gguf", "m-Q2_K.gguf"};
  EXPECT_EQ(opened(names), "m-F16.gguf");
  for (const char* better : {"m-Q3_K_M.gguf", "m-Q8_0.gguf", "m-Q5_K_M.gguf", "m-Q4_0.gguf",
                             "m-Q4_1.gguf", "m-Q4_K_S.gguf", "m-Q4_K_M.gguf"}) {
    names.emplace_back(better);
    EXPECT_EQ(opened(names), better);
    EXPECT_THAT(choose_files(names, "")->note, HasSubstr(better));
  }
  EXPECT_EQ(choose_files(Names{"m-Q8_0.gguf"}, "")->note, "");
  EXPECT_EQ(opened({"odd.gguf"}), "odd.gguf");
}

TEST(FileChoice, ProjectorsAndMatricesAreNoModels) {
  EXPECT_EQ(opened({"mmproj-F16.gguf", "m-imatrix.gguf", "m-Q2_K.gguf"}), "m-Q2_K.gguf");
  EXPECT_THAT(opened({"mmproj-F16.gguf", "m-imatrix.gguf"}), HasSubstr("error: "));
}

TEST(FileChoice, PartsAreWholeOrNone) {
  const Names names = {"m-Q8_0-00002-of-00002.gguf", "m-Q8_0-00001-of-00002.gguf",
                       "m-Q4_K_M-00001-of-00002.gguf"};
  const auto choice = choose_files(names, "");
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->open, "m-Q8_0-00001-of-00002.gguf");
  EXPECT_THAT(choice->files,
              ElementsAre("m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf"));
  EXPECT_THAT(opened(names, "Q4_K_M"), HasSubstr("there is no Q4_K_M"));
}

TEST(FileChoice, AFolderGoesBeforeGguf) {
  const Names names = {"config.json", "model.safetensors", "model.gguf", "tokenizer.json"};
  EXPECT_THAT(choose_files(names, "")->files,
              ElementsAre("config.json", "model.safetensors", "tokenizer.json"));
  EXPECT_EQ(opened(names, "model.gguf"), "model.gguf");
}

TEST(FileChoice, AModelsOwnSafetensors) {
  const Names names = {"config.json",         "consolidated.safetensors",
                       "model.safetensors",   "model.fp16.safetensors",
                       "vae/x.safetensors",   "model.safetensors.index.json",
                       "original/params.pth", "pytorch_model.bin"};
  EXPECT_THAT(choose_files(names, "")->files, ElementsAre("config.json", "model.safetensors"));
}

TEST(FileChoice, HeadsHaveNamesOfTheirOwn) {
  EXPECT_THAT(choose_files(Names{"config.json", "medusa_lm_head.safetensors"}, "")->files,
              ElementsAre("config.json", "medusa_lm_head.safetensors"));
  EXPECT_THAT(choose_files(Names{"config.json", "pytorch_model.bin", "optimizer.pt"}, "")->files,
              ElementsAre("config.json", "pytorch_model.bin"));
  EXPECT_EQ(opened({"config.json", "a.pt", "b.pt"}, "b.pt"), "b.pt");
}

TEST(FileChoice, FilesThatAreNoWeights) {
  EXPECT_THAT(opened({"README.md", "m-Q8_0.gguf"}, "README.md"), HasSubstr("holds no weights"));
}

TEST(FileChoice, AModelIsCompleteWithConfigurationAndTokenizer) {
  FileChoice choice{{"config.json", "model.safetensors"}, "", ""};
  EXPECT_FALSE(is_complete(choice, "nowhere", true));
  EXPECT_TRUE(is_complete(choice, "nowhere", false));
  choice.files.emplace_back("tokenizer.json");
  EXPECT_TRUE(is_complete(choice, "nowhere", true));
  choice.files.emplace_back("model.safetensors.index.json");
  EXPECT_FALSE(is_complete(choice, "nowhere", true));
}

}  // namespace aerie::file_choice_test
