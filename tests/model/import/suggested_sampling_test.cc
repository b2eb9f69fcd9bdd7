// What models recommend to sample with, as folders and GGUF files say it.

#include "model/import/suggested_sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/import/hugging_face_file.h"
#include "tests/format/gguf/gguf_writer.h"
#include "tests/model/import/hugging_face_folder.h"
#include "tests/testing/tiny_model.h"

namespace aerie::suggested_sampling_test {

using test::HuggingFaceFolder;
using ::testing::HasSubstr;

// What a folder with this generation_config.json recommends.
Expected<SuggestedSampling> of_folder(const std::string& config) {
  const HuggingFaceFolder folder("llama", test::temporary_path("suggested"));
  folder.write();
  folder.write_text("generation_config.json", config);
  AERIE_ASSIGN_OR_RETURN(const auto file, open_model_file(folder.path()));
  return read_suggested_sampling(*file);
}

std::string text_of_folder(const std::string& config) {
  const auto sampling = of_folder(config);
  return sampling.ok() ? to_string(*sampling) : sampling.status().message();
}

TEST(SuggestedSampling, OfAFolder) {
  EXPECT_EQ(text_of_folder(R"({"do_sample": true, "temperature": 0.6, "top_p": 0.95, "top_k": 20,
                               "min_p": 0.05, "repetition_penalty": 1.1, "eos_token_id": [1]})"),
            "temperature 0.6, top-k 20, top-p 0.95, min-p 0.05, repetition penalty 1.1");
  EXPECT_EQ(text_of_folder(R"({"temperature": 0.7, "top_k": -1, "top_p": null})"),
            "temperature 0.7, top-k 0");
  EXPECT_EQ(text_of_folder(R"({"do_sample": true, "top_k": 64})"), "temperature 1, top-k 64");
  EXPECT_EQ(text_of_folder(R"({"do_sample": false, "temperature": 0.7})"), "");
  EXPECT_EQ(text_of_folder(R"({"bos_token_id": 1})"), "");
}

TEST(SuggestedSampling, WhatIsNoNumberIsNamed) {
  EXPECT_THAT(text_of_folder(R"({"temperature": "hot"})"), HasSubstr("'temperature' is a string"));
  EXPECT_THAT(text_of_folder(R"({"top_k": 1e30})"), HasSubstr("top_k"));
  EXPECT_THAT(text_of_folder(R"({"temperature": -1})"), HasSubstr("--generation-config none"));
  EXPECT_THAT(text_of_folder(R"({"top_p": 0})"), HasSubstr("--generation-config none"));
  EXPECT_THAT(text_of_folder("[]"), HasSubstr("generation_config.json"));
}

TEST(SuggestedSampling, OfAGgufFile) {
  test::GgufWriter writer = test::tiny_gguf({});
  writer.add_f32("general.sampling.temp", 0.7f).add_u32("general.sampling.top_k", 40);
  writer.add_i32("general.sampling.penalty_last_n", -1);
  const test::TinyFile file(writer);
  const auto sampling = read_suggested_sampling(file.gguf());
  ASSERT_TRUE(sampling.ok()) << sampling.status().message();
  SamplingParams params;
  sampling->apply_to(params);
  // As it was written, not what a float makes of it.
  EXPECT_EQ(params.temperature, 0.7);
  EXPECT_EQ(params.top_k, 40);
  EXPECT_EQ(params.penalty_window, -1);
  EXPECT_EQ(params.top_p, SamplingParams().top_p);

  const test::TinyFile silent{test::TinySpec{}};
  EXPECT_TRUE(read_suggested_sampling(silent.gguf())->empty());
}

}  // namespace aerie::suggested_sampling_test
