// A Hugging Face folder with model, tokenizer and chat template, end to end: as it is, as the GGUF
// file that it is converted to, with conversion at load, with drafters from folder and file.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "format/json.h"
#include "tests/engine/small_tokenizer.h"

namespace aerie::hugging_face_test {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr const char* kModel = "tests/golden/families/llama";
constexpr int kRows = 101;  // of the model's embedding
constexpr int kTokens = test::kSmallTokens;

constexpr const char* kTemplate =
    "{{ bos_token }}{% for message in messages %}<|user|>{{ message['content'] | trim }}<|end|>"
    "{% endfor %}";

// The folder and the GGUF file that convert_model() makes of it, for as long as the suite runs.
class HuggingFaceEngine : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const auto base = fs::path(testing::TempDir()) / fmt::format("aerie_hf_{}", getpid());
    fs::remove_all(base);
    fs::create_directory(base);
    folder_ = base / "model";
    fs::create_directory(folder_);
    for (const char* name : {"config.json", "generation_config.json", "model.safetensors"}) {
      fs::copy_file(fs::path(kModel) / name, fs::path(folder_) / name);
    }
    std::ofstream(folder_ + "/tokenizer.json") << test::small_tokenizer().dump();
    const Json settings = {{"tokenizer_class", "LlamaTokenizer"},
                           {"bos_token", "<s>"},
                           {"eos_token", "</s>"},
                           {"unk_token", "<unk>"},
                           {"add_bos_token", true},
                           {"add_eos_token", false},
                           {"chat_template", kTemplate}};
    std::ofstream(folder_ + "/tokenizer_config.json") << settings.dump();
    file_ = base / "model.gguf";
    small_ = base / "small.gguf";
    convert(file_, std::nullopt);
    convert(small_, DType::kQ8_0);
  }
  static void TearDownTestSuite() { fs::remove_all(fs::path(folder_).parent_path()); }

  static void convert(const std::string& to, std::optional<DType> type) {
    ConvertOptions options;
    options.input = folder_;
    options.output = to;
    options.weight_type = type;
    options.threads = 2;
    const auto report = convert_model(options);
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ(report->bytes, static_cast<int64_t>(fs::file_size(to)));
    EXPECT_THAT(report->notes, testing::IsEmpty());
  }

  static std::unique_ptr<Engine> open(const std::string& model,
                                      const SpeculativeConfig& speculation = {},
                                      std::optional<DType> type = std::nullopt) {
    EngineOptions options;
    options.model = model;
    options.weight_type = type;
    options.threads = 2;
    options.speculation = speculation;
    auto engine = Engine::open(options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    return engine.ok() ? std::move(*engine) : nullptr;
  }

  static std::vector<int32_t> encode(const Engine& engine, const std::string& text) {
    std::vector<int32_t> ids;
    const Status status = engine.parts().tokenizer().encode(text, {true, true}, ids);
    EXPECT_TRUE(status.ok()) << status.message();
    return ids;
  }

  static Generation generate(Engine& engine, double temperature, bool speculate = true) {
    Request request;
    request.prompt = encode(engine, "Once upon the time, there is a king of nothing.");
    request.sampling.temperature = temperature;
    request.sampling.seed = 11;
    request.max_tokens = 60;
    request.ignore_eos = true;
    request.speculate = speculate;
    auto result = engine.generate(request, nullptr);
    EXPECT_TRUE(result.ok()) << result.status().message();
    EXPECT_EQ(result->tokens.size(), 60u);
    return std::move(result).value();
  }

  static SpeculativeConfig spec(const std::string& text) {
    SpeculativeConfig config = parse_speculative_spec(text).value();
    config.open_gate();
    return config;
  }
  static std::vector<SpeculativeConfig> drafters() {
    return {spec("ngram"), spec("draft_model:model=" + folder_),
            spec("draft_model:model=" + file_)};
  }

  static inline std::string folder_, file_, small_;
};

TEST_F(HuggingFaceEngine, FolderAndFileHaveTheSameTokenizer) {
  const auto folder = open(folder_), file = open(file_);
  ASSERT_TRUE(folder && file);
  EXPECT_EQ(folder->parts().tokenizer().vocab_size(), kTokens);
  EXPECT_EQ(file->parts().tokenizer().vocab_size(), kRows) << "filled up to the embedding's rows";
  EXPECT_EQ(folder->parts().tokenizer().bos(), file->parts().tokenizer().bos());
  EXPECT_EQ(folder->parts().tokenizer().eos(), file->parts().tokenizer().eos());
  EXPECT_EQ(encode(*folder, "the"), (std::vector<int32_t>{1, kTokens - 2}));
  for (const char* text : {"", "the thing in there", "  Two  spaces\nand (more)", "K\u00f6nig",
                           "<|user|>nothing<|end|>", "[PAD90]"}) {
    EXPECT_EQ(encode(*folder, text), encode(*file, text)) << text;
  }
  for (int32_t id = 0; id < kRows; ++id) {
    const std::string_view piece = file->parts().tokenizer().piece(id);
    EXPECT_EQ(piece, id < kTokens ? folder->parts().tokenizer().piece(id) : "") << id;
  }
  EXPECT_EQ(file->parts().config().name, "model");
}

TEST_F(HuggingFaceEngine, FolderAndFileHaveTheSameTemplate) {
  const auto folder = open(folder_), file = open(file_);
  ASSERT_TRUE(folder && file);
  for (const Engine* engine : {folder.get(), file.get()}) {
    ASSERT_TRUE(engine->parts().chat_template().ok())
        << engine->parts().chat_template().status().message();
    const std::vector<ChatMessage> messages = {{"user", " Sing! "}};
    const auto text = engine->parts().chat_template()->render(messages, true);
    ASSERT_TRUE(text.ok()) << text.status().message();
    EXPECT_EQ(*text, "<s><|user|>Sing!<|end|>");
  }
}

TEST_F(HuggingFaceEngine, FolderAndFileSayTheSame) {
  const auto folder = open(folder_), file = open(file_);
  ASSERT_TRUE(folder && file);
  EXPECT_EQ(folder->parts().config().vocab, kRows);
  for (const double temperature : {0.0, 1.0}) {
    const Generation one = generate(*folder, temperature), other = generate(*file, temperature);
    EXPECT_EQ(one.tokens, other.tokens);
    EXPECT_EQ(one.text, other.text);
    EXPECT_FALSE(one.text.empty());
  }
}

TEST_F(HuggingFaceEngine, ConvertedAtLoadOrBefore) {
  const auto folder = open(folder_, {}, DType::kQ8_0), file = open(small_), floats = open(folder_);
  ASSERT_TRUE(folder && file && floats);
  const Generation one = generate(*folder, 1.0);
  EXPECT_EQ(one.tokens, generate(*file, 1.0).tokens);
  EXPECT_LT(folder->parts().model->weight_bytes(), floats->parts().model->weight_bytes());
}

TEST_F(HuggingFaceEngine, SpeculationChangesNothing) {
  const auto plain = open(folder_);
  for (const SpeculativeConfig& speculation : drafters()) {
    for (const std::string& model : {folder_, file_}) {
      const auto engine = open(model, speculation);
      ASSERT_TRUE(engine);
      for (const double temperature : {0.0, 1.0}) {
        const Generation fast = generate(*engine, temperature);
        EXPECT_EQ(fast.tokens, generate(*plain, temperature).tokens) << to_string(speculation);
        EXPECT_EQ(fast.tokens, generate(*engine, temperature, false).tokens);
        EXPECT_EQ(fast.target_passes, 1 + fast.stats.rounds);
        EXPECT_GT(fast.stats.drafted, 0);
        if (speculation.methods[0].method->name != "draft_model") continue;
        // The model drafts for itself: folder or file, its tokens stand.
        EXPECT_GT(60.0 / static_cast<double>(fast.stats.rounds), 3.0);
      }
    }
  }
}

TEST_F(HuggingFaceEngine, RefusesADraftWithAnotherVocabulary) {
  const std::string other = folder_ + "_other";
  fs::copy(folder_, other);
  Json json = test::small_tokenizer();
  json["model"]["vocab"].erase("q");
  json["model"]["vocab"]["\u00df"] = 5 + 1 + 'q' - 'a';
  std::ofstream(other + "/tokenizer.json") << json.dump();
  EngineOptions options;
  options.model = folder_;
  options.threads = 2;
  options.speculation = spec("draft_model:vocabulary=same,model=" + other);
  const Status status = Engine::open(options).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.message();
  EXPECT_THAT(status.message(), testing::StartsWith(other));
}

// The tokenizer may know more than the model: Gemma 3's has a token for pictures.
TEST_F(HuggingFaceEngine, TokensBeyondTheModel) {
  const std::string more = folder_ + "_more", to = more + ".gguf";
  fs::copy(folder_, more);
  Json json = test::small_tokenizer();
  json["added_tokens"].push_back(test::added_token(kRows, "<image>"));
  std::ofstream(more + "/tokenizer.json") << json.dump();
  ConvertOptions options;
  options.input = more;
  options.output = to;
  const auto report = convert_model(options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  ASSERT_EQ(report->notes.size(), 1u);
  EXPECT_THAT(report->notes[0], HasSubstr("'<image>' is token 101"));
  const auto file = open(to);
  ASSERT_TRUE(file);
  EXPECT_EQ(file->parts().tokenizer().vocab_size(), kRows);
  EXPECT_EQ(generate(*file, 1.0).tokens, generate(*open(folder_), 1.0).tokens);

  for (int i = kTokens; i <= kRows; ++i) json["model"]["vocab"][fmt::format("w{}", i)] = i;
  json["added_tokens"].erase(5);
  std::ofstream(more + "/tokenizer.json") << json.dump();
  const Status status = convert_model(options).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), testing::StartsWith(more));
  EXPECT_THAT(status.message(), HasSubstr("the token 'w101', number 101, and the model has 101"));
}

TEST_F(HuggingFaceEngine, PyTorchFilesBecomeSafetensors) {
  const std::string to = folder_ + "_torch";
  ConvertOptions options;
  options.input = "tests/fuzz/corpus/torch/module.pt";
  options.output = to;
  const auto report = convert_model(options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(static_cast<uintmax_t>(report->bytes), fs::file_size(to + "/model.safetensors"));
  options.weight_type = DType::kQ8_0;
  EXPECT_EQ(convert_model(options).status().code(), StatusCode::kInvalidArgument);
  fs::remove_all(to);
}

TEST_F(HuggingFaceEngine, FoldersInEightBitsAreTheSameAsConvertedAtLoad) {
  ConvertOptions options;
  options.input = folder_;
  options.output = folder_ + "_int8";
  const Status status = convert_model(options).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("ends in .gguf; or ask for the type q8_0 or q4_0"));
  options.weight_type = DType::kQ8_0;
  const auto report = convert_model(options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  const auto stored = open(options.output), converted = open(folder_, {}, DType::kQ8_0);
  ASSERT_TRUE(stored && converted);
  EXPECT_EQ(generate(*stored, 1.0).tokens, generate(*converted, 1.0).tokens);
  fs::remove_all(options.output);
}

TEST_F(HuggingFaceEngine, WhatIsMissing) {
  const std::string bare = folder_ + "_bare";
  fs::copy(folder_, bare);
  fs::remove(bare + "/tokenizer_config.json");
  const auto engine = open(bare);
  ASSERT_TRUE(engine);
  EXPECT_EQ(engine->parts().chat_template().status().code(), StatusCode::kNotFound);
  EXPECT_THAT(engine->parts().chat_template().status().message(),
              HasSubstr(bare + " has no chat template"));
  fs::remove(bare + "/tokenizer.json");
  EngineOptions options;
  options.model = bare;
  EXPECT_EQ(Engine::open(options).status().code(), StatusCode::kNotFound);
  EXPECT_THAT(Engine::open(options).status().message(), testing::StartsWith(bare));
  EXPECT_THAT(Engine::open(options).status().message(), HasSubstr("tokenizer.json"));
}

}  // namespace aerie::hugging_face_test
