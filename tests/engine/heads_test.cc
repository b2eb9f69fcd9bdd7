// Trained heads from their settings: what is asked of them, and what does not go with a target.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "engine/engine.h"
#include "engine/model_source.h"
#include "tests/testing/tiny_heads.h"
#include "tests/testing/tiny_model.h"

namespace aerie::engine_heads_test {

namespace fs = std::filesystem;
using test::HeadFamily;
using testing::AllOf;
using testing::HasSubstr;

// A target on disk, and heads that fit it.
class HeadsTest : public testing::Test {
 protected:
  HeadsTest() {
    test::TinySpec spec;
    spec.tokenizer = true;
    spec.vocab = test::kByteVocab;
    target_ = testing::TempDir() + "aerie_heads_" + std::to_string(getpid()) + ".gguf";
    const test::GgufWriter writer = test::tiny_gguf(spec);
    EXPECT_TRUE(writer.write(target_).ok());
    file_ = std::make_unique<test::TinyFile>(writer);
  }
  ~HeadsTest() override { fs::remove(target_); }

  const std::string& head(HeadFamily family) {
    heads_.push_back(std::make_unique<test::TinyHead>(file_->gguf(), family, false));
    return heads_.back()->path();
  }
  Expected<std::unique_ptr<Engine>> open(const std::string& spec) const {
    EngineOptions options;
    options.model = target_;
    options.threads = 1;
    AERIE_ASSIGN_OR_RETURN(options.speculation, parse_speculative_spec(spec));
    options.speculation.open_gate();
    return Engine::open(options);
  }
  Generation generate(const std::string& spec, double temperature) const {
    auto engine = open(spec);
    EXPECT_TRUE(engine.ok()) << spec << ": " << engine.status().message();
    Request request;
    request.prompt = {'O', 'n', 'c', 'e'};
    request.sampling.temperature = temperature;
    request.sampling.seed = 3;
    request.max_tokens = 40;
    request.ignore_eos = true;
    return engine.ok() ? (*engine)->generate(request, nullptr).value() : Generation();
  }
  Status refusal(const std::string& spec) const { return open(spec).status(); }

  std::string target_;
  std::unique_ptr<test::TinyFile> file_;
  std::vector<std::unique_ptr<test::TinyHead>> heads_;
};

TEST_F(HeadsTest, SettingsChangeDraftsAndNothingElse) {
  const std::string eagle3 = "eagle3:model=" + head(HeadFamily::kEagle3);
  const std::string medusa = "medusa:model=" + head(HeadFamily::kMedusa);
  const std::string list = testing::TempDir() + "aerie_heads_ids.txt";
  std::ofstream(list) << "101\n32\n97\n111\n116\n";
  for (const double temperature : {0.0, 0.9}) {
    const Generation plain = generate("none", temperature);
    for (const std::string& spec :
         {eagle3 + ",draft_type=q8_0", eagle3 + ",draft_vocab=" + list + ",draft_vocab_size=4",
          eagle3 + ",topk=3,num_steps=3,num_speculative_tokens=9", eagle3 + ",tap_layers=0+1+2",
          eagle3 + ",norm_before_residual=true", medusa + ",tree=medusa", "ngram," + medusa,
          "merge," + eagle3 + "," + medusa, "auto," + eagle3}) {
      SCOPED_TRACE(spec);
      const Generation fast = generate(spec, temperature);
      EXPECT_EQ(fast.tokens, plain.tokens);
      if (!spec.starts_with("auto")) {
        EXPECT_GT(fast.stats.drafted, 0);
      }
    }
  }
  fs::remove(list);
}

// What a device has code for it computes, and where it has none the processor drafts as before.
TEST_F(HeadsTest, DraftOnTheDeviceOfTheirTarget) {
  const std::string list = testing::TempDir() + "aerie_heads_ids.txt";
  std::ofstream(list) << "101\n32\n97\n111\n116\n";
  const std::string eagle = "eagle:model=" + head(HeadFamily::kEagle);
  const std::string eagle3 = "eagle3:model=" + head(HeadFamily::kEagle3);
  const std::string cut = ",draft_vocab=" + list + ",draft_vocab_size=4";
  const std::pair<std::string, bool> specs[] = {
      {eagle, true},
      {eagle + ",draft_type=q8_0", true},
      {eagle + cut, true},
      {eagle3 + ",draft_type=q8_0", true},
      {eagle3 + cut + ",topk=3,num_steps=2,num_speculative_tokens=6", true},
      {"medusa:model=" + head(HeadFamily::kMedusa) + cut, true},
      {"mtp:model=" + head(HeadFamily::kMtp), false}};
  Request request;
  request.prompt = {'O', 'n', 'c', 'e'};
  request.max_tokens = 8;
  request.ignore_eos = true;
  for (const auto& [spec, on_device] : specs) {
    SCOPED_TRACE(spec);
    EngineOptions options;
    options.model = target_;
    options.threads = 1;
    options.context = 64;
    options.device = "emulated";
    options.speculation = *parse_speculative_spec(spec);
    options.speculation.open_gate();
    const auto engine = Engine::open(options);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    EXPECT_EQ((*engine)->parts().memory.taken == 0, on_device);
    request.speculate = true;
    const auto drafted = (*engine)->generate(request, nullptr);
    ASSERT_TRUE(drafted.ok()) << drafted.status().message();
    EXPECT_GT(drafted->stats.drafted, 0);
    request.speculate = false;
    const auto plain = (*engine)->generate(request, nullptr);
    ASSERT_TRUE(plain.ok()) << plain.status().message();
    EXPECT_EQ(drafted->tokens, plain->tokens);
  }
  fs::remove(list);
}

TEST_F(HeadsTest, FoldersInEightBitsDraftAsConvertedOnes) {
  for (const HeadFamily family : test::kHeadFamilies) {
    SCOPED_TRACE(test::head_family_name(family));
    ConvertOptions options;
    options.input = head(family);
    options.output = options.input + "_int8";
    EXPECT_EQ(convert_model(options).status().code(), StatusCode::kInvalidArgument)
        << "without a type";
    options.weight_type = DType::kQ8_0;
    const auto report = convert_model(options);
    ASSERT_TRUE(report.ok()) << report.status().message();
    const std::string method = std::string(test::head_family_method(family)) + ":model=";
    const Generation a = generate(method + options.input + ",draft_type=q8_0", 0.9);
    const Generation b = generate(method + options.output + ",draft_type=q8_0", 0.9);
    const Generation c = generate(method + options.output, 0.9);
    EXPECT_EQ(a.tokens, b.tokens);
    EXPECT_EQ(a.stats.drafted, b.stats.drafted);
    EXPECT_EQ(a.stats.accepted, b.stats.accepted);
    EXPECT_EQ(a.tokens, c.tokens) << "with the target's output matrix as it is";
    EXPECT_GT(c.stats.drafted, 0);
    fs::remove_all(options.output);
  }
}

TEST_F(HeadsTest, ParallelDraftingIsAsTheHeadWasTrained) {
  const std::string trained = "eagle3:model=" + head(HeadFamily::kPEagle);
  EXPECT_TRUE(open(trained + ",parallel_drafting=true,num_speculative_tokens=7").ok());
  EXPECT_TRUE(open(trained + ",parallel_drafting=0").ok());
  const Status status =
      refusal("eagle3:model=" + head(HeadFamily::kEagle3) + ",parallel_drafting=true");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("mask_hidden"), HasSubstr("parallel_drafting")));
}

TEST_F(HeadsTest, WrongPairingsSayWhatDiffers) {
  test::TinySpec wide;
  wide.hidden = 96;
  wide.vocab = test::kByteVocab;
  const test::TinyFile other(wide);
  const test::TinyHead alien(other.gguf(), HeadFamily::kEagle3, false);
  const Status hidden = refusal("eagle3:model=" + alien.path());
  EXPECT_EQ(hidden.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(hidden.message(),
              AllOf(HasSubstr("96"), HasSubstr("64"), HasSubstr("another model")));

  const std::string eagle3 = head(HeadFamily::kEagle3);
  EXPECT_THAT(refusal("eagle3:model=" + eagle3 + ",tap_layers=0+1").message(),
              AllOf(HasSubstr("192"), HasSubstr("128")));
  EXPECT_THAT(refusal("eagle3:model=" + eagle3 + ",draft_vocab_size=4").message(),
              HasSubstr("'draft_vocab'"));
  EXPECT_THAT(refusal("eagle3:model=" + head(HeadFamily::kMedusa)).message(), HasSubstr("config"));
  EXPECT_THAT(refusal("mtp").message(), HasSubstr("give model=FOLDER"));

  std::ofstream(fs::path(eagle3) / "tokenizer.json")
      << R"({"added_tokens": [], "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []},
             "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
             "decoder": {"type": "ByteLevel"}})";
  const Status tokenizer = refusal("eagle3:model=" + eagle3);
  EXPECT_FALSE(tokenizer.ok());
  EXPECT_THAT(tokenizer.message(), HasSubstr(eagle3));
}

// A draft model with rows for most of the target's tokens needs no tokenizer.
TEST_F(HeadsTest, DraftModelsWithTheTargetsIdsAreExact) {
  test::TinySpec spec;
  spec.vocab = test::kByteVocab;
  test::GgufWriter writer = test::tiny_gguf(spec);
  // Offsets: the target's first ids.
  writer.add_array("draft.d2t", std::vector<int32_t>(250, 0));
  writer.add_u32("draft.target_vocab_size", test::kByteVocab);
  const std::string path =
      testing::TempDir() + "aerie_pruned_" + std::to_string(getpid()) + ".gguf";
  ASSERT_TRUE(writer.write(path).ok());
  const std::string draft = "draft_model:model=" + path;
  for (const double temperature : {0.0, 0.9}) {
    const Generation plain = generate("none", temperature);
    for (const char* way : {"", ",topk=3,num_speculative_tokens=9"}) {
      const Generation out = generate(draft + way, temperature);
      EXPECT_EQ(out.tokens, plain.tokens) << way << ", temperature " << temperature;
      EXPECT_GT(out.stats.mean_accepted_length(), 1.5) << way << ", temperature " << temperature;
    }
  }
  const Status status = refusal(draft + ",vocabulary=text");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), AllOf(HasSubstr(path), HasSubstr("vocabulary=text")));
  fs::remove(path);
}

}  // namespace aerie::engine_heads_test
