// Reading a folder of samples, and splitting them.

#include "train/data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <set>

#include "tests/train/data/data_folder.h"
#include "train/data/answer_file.h"

namespace aerie::train::dataset_test {

namespace fs = std::filesystem;
using test::generate;
using test::options_for;
using testing::AllOf;
using testing::HasSubstr;

class DatasetTest : public testing::Test {
 protected:
  Status status() { return read_dataset(options_.out).status(); }

  test::Scratch scratch_;
  GenerateOptions options_ =
      options_for(scratch_, write_target(scratch_), {write_prompts(scratch_, "prompts.jsonl", 40)});
};

TEST_F(DatasetTest, OrderAndCounts) {
  options_.samples = 2;
  for (const int part : {2, 1}) {
    options_.shard = {part, 2};
    generate(options_);
  }
  const auto dataset = read_dataset(options_.out);
  ASSERT_TRUE(dataset.ok()) << dataset.status().message();
  ASSERT_EQ(dataset->samples.size(), 80u);
  EXPECT_EQ(dataset->info.held_out, 0.25);
  EXPECT_EQ(dataset->info.vocab, aerie::test::kByteVocab);
  int64_t tokens = 0, generated = 0;
  std::vector<int64_t> counts(300, 0);
  for (int i = 0; i < 80; ++i) {
    const Sample& sample = dataset->samples[static_cast<size_t>(i)];
    EXPECT_EQ(sample.prompt, i / 2);
    EXPECT_EQ(sample.index, i % 2);
    tokens += static_cast<int64_t>(sample.tokens.size());
    for (size_t t = 0; t < sample.tokens.size(); ++t) {
      generated += sample.mask[t];
      counts[static_cast<size_t>(sample.tokens[t])] += sample.mask[t];
    }
  }
  EXPECT_EQ(dataset->tokens, tokens);
  EXPECT_EQ(dataset->generated, generated);
  EXPECT_GT(generated, 0);
  EXPECT_EQ(token_counts(*dataset, 300), counts);
}

TEST_F(DatasetTest, SplitIsByPrompt) {
  options_.samples = 2;
  generate(options_);
  const auto dataset = read_dataset(options_.out);
  ASSERT_TRUE(dataset.ok());
  const DatasetSplit halves = split(*dataset, 0.5);
  std::set<int> training, validation;
  for (const size_t i : halves.training) training.insert(dataset->samples[i].prompt);
  for (const size_t i : halves.validation) validation.insert(dataset->samples[i].prompt);
  EXPECT_EQ(halves.training.size() + halves.validation.size(), 80u);
  EXPECT_EQ(training.size() + validation.size(), 40u) << "a prompt stands on both sides";
  EXPECT_GT(validation.size(), 5u);
  EXPECT_GT(training.size(), 5u);
  EXPECT_TRUE(std::ranges::is_sorted(halves.training));
  EXPECT_EQ(split(*dataset, 0.0).training.size(), 80u);
}

TEST(HeldOut, FractionsHoldAndNest) {
  constexpr int kPrompts = 100000;
  for (const double fraction : {0.02, 0.3}) {
    int count = 0;
    for (int prompt = 0; prompt < kPrompts; ++prompt) {
      if (!is_held_out(prompt, fraction)) continue;
      ++count;
      EXPECT_TRUE(is_held_out(prompt, fraction + 0.1));
    }
    const double deviation = std::sqrt(kPrompts * fraction * (1.0 - fraction));
    EXPECT_NEAR(count, kPrompts * fraction, 4.0 * deviation);
  }
}

TEST_F(DatasetTest, RefusesTwins) {
  options_.shard = {1, 2};
  generate(options_);
  fs::copy(options_.out + "/answers-1-of-2.jsonl", options_.out + "/answers-1-of-4.jsonl");
  EXPECT_EQ(status().code(), StatusCode::kInvalidData);
  EXPECT_THAT(status().message(), AllOf(HasSubstr("answers-1-of-2.jsonl"),
                                        HasSubstr("answers-1-of-4.jsonl"), HasSubstr("sample ")));
}

TEST_F(DatasetTest, RefusesSamplesOfOtherSettings) {
  options_.shard = {1, 2};
  generate(options_);
  const std::string here = options_.out;
  const auto foreign = [&](const auto& change) {
    GenerateOptions other = options_;
    other.shard = {2, 2};
    other.out = scratch_.path("foreign");
    change(other);
    fs::remove_all(other.out);
    generate(other);
    fs::copy(other.out + "/answers-2-of-2.jsonl", here + "/answers-2-of-2.jsonl",
             fs::copy_options::overwrite_existing);
    return status();
  };
  EXPECT_TRUE(foreign([](GenerateOptions&) {}).ok());
  for (const Status& refused : {
           foreign([](GenerateOptions& o) { o.settings.seed = 9; }),
           foreign([](GenerateOptions& o) {
             o.settings.temperatures = {1.0, 0.0};
           }),
           foreign([](GenerateOptions& o) { o.settings.temperatures = {0.5}; }),
           foreign([](GenerateOptions& o) {
             o.settings.max_tokens = 600;
             o.target.context = 1000;
             o.settings.temperatures = {0.0, 1.0};
           }),
       }) {
    EXPECT_EQ(refused.code(), StatusCode::kInvalidData);
    EXPECT_THAT(refused.message(),
                AllOf(HasSubstr("answers-2-of-2.jsonl"), HasSubstr("settings of data.json")));
  }
}

TEST_F(DatasetTest, RefusesWhatIsNoDataset) {
  EXPECT_EQ(status().code(), StatusCode::kNotFound);
  fs::create_directory(options_.out);
  EXPECT_EQ(status().code(), StatusCode::kNotFound);
  generate(options_);
  EXPECT_TRUE(status().ok());
  fs::remove(options_.out + "/answers-1-of-1.jsonl");
  EXPECT_EQ(status().code(), StatusCode::kInvalidArgument);
  scratch_.write("out/answers-1-of-1.jsonl", "{}\n");
  EXPECT_EQ(status().code(), StatusCode::kInvalidData);
  EXPECT_THAT(status().message(), HasSubstr("answers-1-of-1.jsonl:1"));
}

}  // namespace aerie::train::dataset_test
