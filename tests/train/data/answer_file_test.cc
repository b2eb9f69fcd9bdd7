// Files of samples grow by whole lines, whatever ends the run that writes them.

#include "train/data/answer_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/testing/file_size_limit.h"
#include "tests/train/data/data_folder.h"

namespace aerie::train::answer_file_test {

namespace fs = std::filesystem;
using test::generate;
using test::lines_in;
using test::options_for;
using test::read_file;
using testing::ElementsAre;
using testing::HasSubstr;

class AnswerFileTest : public testing::Test {
 protected:
  test::Scratch scratch_;
  GenerateOptions options_ =
      options_for(scratch_, write_target(scratch_), {write_prompts(scratch_, "prompts.jsonl", 16)});
  std::string file_ = options_.out + "/answers-1-of-1.jsonl";
};

// Killed at any byte.
TEST_F(AnswerFileTest, GoesOnAfterATornLine) {
  generate(options_);
  const std::string whole = read_file(file_);
  const auto all = lines_in(options_.out);
  ASSERT_EQ(all.size(), 16u);
  const size_t fourth = whole.find('\n', whole.find('\n', whole.find('\n') + 1) + 1) + 1;
  for (const size_t length : {size_t{0}, size_t{1}, fourth - 1, fourth, fourth + 1, fourth + 40,
                              whole.size() - 1, whole.size()}) {
    scratch_.write("out/answers-1-of-1.jsonl", whole.substr(0, length));
    const auto torn = whole.substr(0, length);
    const auto lines = static_cast<int>(std::count(torn.begin(), torn.end(), '\n'));
    const GenerateResult result = generate(options_);
    EXPECT_EQ(result.there, lines) << length;
    EXPECT_EQ(result.counts.samples, 16 - lines) << length;
    EXPECT_EQ(lines_in(options_.out), all) << length;
  }
}

TEST_F(AnswerFileTest, ReadersPassATornLineOver) {
  generate(options_);
  const std::string whole = read_file(file_);
  scratch_.write("out/answers-1-of-1.jsonl", whole.substr(0, whole.size() - 1));
  EXPECT_EQ(lines_in(options_.out).size(), 15u);
}

TEST_F(AnswerFileTest, NamesABrokenLine) {
  generate(options_);
  std::string text = read_file(file_);
  const size_t second = text.find('\n') + 1;
  text.replace(second, 2, "[[");
  scratch_.write("out/answers-1-of-1.jsonl", text);
  const auto result = generate_data(options_);
  EXPECT_EQ(result.status().code(), StatusCode::kInvalidData);
  EXPECT_THAT(result.status().message(), HasSubstr("answers-1-of-1.jsonl:2"));
  EXPECT_EQ(read_file(file_), text);
}

// Other shards' files are not this run's to repair, but their samples count.
TEST_F(AnswerFileTest, TakesSamplesOfOtherShards) {
  options_.shard = {1, 2};
  generate(options_);
  const std::string other = options_.out + "/answers-1-of-2.jsonl";
  const std::string torn = read_file(other) + "{\"id\":";
  scratch_.write("out/answers-1-of-2.jsonl", torn);
  options_.shard = {1, 1};
  const GenerateResult result = generate(options_);
  EXPECT_EQ(result.there, 8);
  EXPECT_EQ(result.counts.samples, 8);
  EXPECT_EQ(read_file(other), torn);
  EXPECT_EQ(lines_in(options_.out).size(), 16u);
}

// Which engine answers makes no difference; one that has nothing to do is none.
TEST_F(AnswerFileTest, SeveralEnginesMakeTheSameSamples) {
  generate(options_);
  const auto alone = lines_in(options_.out);
  for (const int engines : {2, 5, 20}) {
    fs::remove_all(options_.out);
    options_.engines = engines;
    EXPECT_EQ(generate(options_).counts.samples, 16) << engines;
    EXPECT_EQ(lines_in(options_.out), alone) << engines;
  }
  options_.engines = 0;
  EXPECT_THAT(generate_data(options_).status().message(), HasSubstr("--engines 0"));
}

TEST_F(AnswerFileTest, OneWriterAtATime) {
  fs::create_directory(options_.out);
  {
    auto first = AnswerFile::open(options_.out, {1, 2});
    ASSERT_TRUE(first.ok()) << first.status().message();
    const auto second = AnswerFile::open(options_.out, {1, 2});
    EXPECT_EQ(second.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(second.status().message(), HasSubstr("another run"));
    EXPECT_TRUE(AnswerFile::open(options_.out, {2, 2}).ok());
  }
  EXPECT_TRUE(AnswerFile::open(options_.out, {1, 2}).ok());
  fs::create_directory(options_.out + "/answers-1-of-3.jsonl");
  EXPECT_FALSE(AnswerFile::open(options_.out, {1, 3}).ok());
  EXPECT_FALSE(AnswerFile::open("/nowhere", {1, 3}).ok());
}

TEST_F(AnswerFileTest, FullDiskKeepsWholeLines) {
  generate(options_);
  const std::string whole = read_file(file_);
  const auto all = lines_in(options_.out);
  fs::remove(file_);
  {
    const aerie::test::FileSizeLimit limit(whole.size() / 2);
    const auto result = generate_data(options_);
    EXPECT_EQ(result.status().code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(result.status().message(), HasSubstr("answers-1-of-1.jsonl"));
  }
  const std::string half = read_file(file_);
  ASSERT_FALSE(half.empty());
  EXPECT_EQ(half, whole.substr(0, half.size()));
  EXPECT_EQ(half.back(), '\n');
  EXPECT_GT(generate(options_).there, 0);
  EXPECT_EQ(lines_in(options_.out), all);
}

TEST(Shard, Parses) {
  const auto shard = parse_shard("2/3");
  ASSERT_TRUE(shard.ok());
  EXPECT_EQ(shard->part, 2);
  EXPECT_EQ(shard->of, 3);
  std::vector<int> prompts;
  for (int i = 0; i < 8; ++i) {
    if (shard->has(i)) prompts.push_back(i);
  }
  EXPECT_THAT(prompts, ElementsAre(1, 4, 7));
  for (const char* text : {"", "1", "0/2", "3/2", "1/0", "1/2/3", "1/2 ", "a/b", "-1/2", "1/"}) {
    const auto wrong = parse_shard(text);
    EXPECT_EQ(wrong.status().code(), StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace aerie::train::answer_file_test
