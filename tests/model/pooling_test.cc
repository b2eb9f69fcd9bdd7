// How models say that their states become one vector, in folders and in GGUF files.

#include "model/pooling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "model/import/hugging_face_file.h"
#include "tests/format/gguf/gguf_writer.h"
#include "tests/model/import/hugging_face_folder.h"
#include "tests/testing/tiny_model.h"

namespace aerie::pooling_test {

using test::HuggingFaceFolder;
using ::testing::HasSubstr;

Expected<Pooling> of_folder(const std::string& config, const std::string& modules = "") {
  const HuggingFaceFolder folder("llama", test::temporary_path("pooling"));
  folder.write();
  std::filesystem::create_directory(folder.path() + "/1_Pooling");
  if (!config.empty()) folder.write_text("1_Pooling/config.json", config);
  if (!modules.empty()) folder.write_text("modules.json", modules);
  AERIE_ASSIGN_OR_RETURN(const auto file, open_model_file(folder.path()));
  return read_pooling(*file);
}

Expected<Pooling> of_gguf(const std::function<void(test::GgufWriter&)>& change) {
  test::GgufWriter writer = test::tiny_gguf({});
  change(writer);
  return read_pooling(test::TinyFile(writer).gguf());
}

TEST(Pooling, OfAFolder) {
  EXPECT_EQ(of_folder("").value(), Pooling::kLast);
  EXPECT_EQ(of_folder(R"({"word_embedding_dimension": 64, "pooling_mode_cls_token": false,
                          "pooling_mode_mean_tokens": true})")
                .value(),
            Pooling::kMean);
  EXPECT_EQ(
      of_folder(R"({"pooling_mode_mean_tokens": false, "pooling_mode_lasttoken": true})").value(),
      Pooling::kLast);
  const char* const kMean = R"({"pooling_mode_mean_tokens": true})";
  EXPECT_EQ(of_folder(kMean, R"([{"type": "sentence_transformers.models.Transformer"},
                                 {"type": "sentence_transformers.models.Pooling"},
                                 {"type": "sentence_transformers.models.Normalize"}])")
                .value(),
            Pooling::kMean);
  for (const auto& bad :
       {of_folder(R"({"pooling_mode_cls_token": true})"),
        of_folder(R"({"pooling_mode_max_tokens": true})"),
        of_folder(R"({"pooling_mode_mean_tokens": true, "pooling_mode_lasttoken": true})"),
        of_folder(kMean, R"([{"type": "sentence_transformers.models.Dense"}])")}) {
    EXPECT_EQ(bad.status().code(), StatusCode::kUnsupported);
    EXPECT_THAT(bad.status().message(), HasSubstr("--pooling mean or last"));
  }
  EXPECT_THAT(of_folder(R"({"pooling_mode_mean_tokens": "yes"})").status().message(),
              HasSubstr("1_Pooling/config.json: key 'pooling_mode_mean_tokens' is a string"));
  EXPECT_THAT(of_folder(kMean, R"({"a": 1})").status().message(), HasSubstr("modules.json"));
}

TEST(Pooling, OfAGgufFile) {
  const auto type = [](uint32_t number) {
    return of_gguf([=](auto& writer) { writer.add_u32("llama.pooling_type", number); });
  };
  EXPECT_EQ(of_gguf([](auto&) {}).value(), Pooling::kLast);
  EXPECT_EQ(type(0).value(), Pooling::kLast);
  EXPECT_EQ(type(1).value(), Pooling::kMean);
  EXPECT_EQ(type(3).value(), Pooling::kLast);
  EXPECT_THAT(type(2).status().message(), HasSubstr("the first token's state"));
  EXPECT_EQ(type(4).status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(of_gguf([](auto& writer) { writer.add_bool("llama.attention.causal", false); })
                  .status()
                  .message(),
              HasSubstr("llama.attention.causal is false"));
}

}  // namespace aerie::pooling_test
