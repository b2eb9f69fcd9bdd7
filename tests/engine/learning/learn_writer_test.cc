// Replies on their way to the disk: in time, bounded, and counted as what became of them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/learning/learn_writer.h"
#include "tests/engine/learning/learned_replies.h"
#include "tests/testing/file_size_limit.h"
#include "tests/train/data/data_folder.h"

namespace aerie::train::learn_writer_test {

namespace fs = std::filesystem;
using test::learned_data;
using test::learned_reply;
using test::learned_store;
using test::Scratch;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

template <typename Condition>
bool comes(const Condition& condition) {
  for (int i = 0; i < 3000 && !condition(); ++i) usleep(10000);
  return condition();
}

// What a writer warns of, from its thread.
class Said {
 public:
  std::function<void(const std::string&)> hear() {
    return [this](const std::string& message) {
      const std::lock_guard lock(mutex_);
      lines_.push_back(message);
    };
  }
  std::vector<std::string> lines() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

class LearnWriterTest : public testing::Test {
 protected:
  std::unique_ptr<LearnWriter> open(double flush_seconds, size_t max_bytes = size_t{1} << 20) {
    auto store = std::make_shared<LearnStore>(learned_store(folder_));
    return std::make_unique<LearnWriter>(
        store, LearnWriter::Options{max_bytes, flush_seconds, said_.hear()});
  }

  const Scratch scratch_;
  const std::string folder_ = scratch_.path("learn");
  Said said_;
};

TEST_F(LearnWriterTest, WritesInTime) {
  const auto writer = open(0.05);
  writer->add(learned_reply(1, 3, 7));
  EXPECT_TRUE(comes([&] { return writer->counts().kept == 1; }));
  EXPECT_EQ(learned_data(folder_).samples.size(), 1U);
  EXPECT_EQ(writer->counts().dropped, 0);
  EXPECT_THAT(said_.lines(), IsEmpty());
}

TEST_F(LearnWriterTest, WhatIsTooMuchGoesWithoutItsLayersOrIsDropped) {
  const auto writer = open(0.05, 100000);
  writer->add(learned_reply(1, 3, 4000));  // 16 kB of tokens and 128 kB of layers
  EXPECT_TRUE(comes([&] { return writer->counts().kept == 1; }));
  EXPECT_EQ(writer->counts().dropped, 0);
  EXPECT_EQ(learned_data(folder_).samples.at(0).tokens.size(), 4000U);
  EXPECT_FALSE(fs::exists(folder_ + "/features-000001.safetensors"));
  EXPECT_THAT(said_.lines(), IsEmpty());
  writer->add(learned_reply(2, 3, 30000));
  writer->drop();
  EXPECT_EQ(writer->counts().dropped, 2);
  EXPECT_TRUE(comes([&] { return said_.lines().size() == 2; }));
  EXPECT_THAT(said_.lines(), ElementsAre(HasSubstr("not kept"), HasSubstr("again")));
  EXPECT_EQ(writer->counts().kept, 1);
}

TEST_F(LearnWriterTest, SaysOnceWhatIsWrongTriesAgainAndSaysThatItIsOver) {
  const auto writer = open(0.02);
  {
    const aerie::test::FileSizeLimit limit(1000);
    writer->add(learned_reply(1, 3, 700));
    EXPECT_TRUE(comes([&] { return !said_.lines().empty(); }));
    writer->add(learned_reply(2, 3, 700));
    usleep(200000);
    EXPECT_EQ(writer->counts().kept, 0);
    EXPECT_THAT(said_.lines(), ElementsAre(HasSubstr("not kept")));
  }
  EXPECT_TRUE(comes([&] { return said_.lines().size() == 2; }));
  EXPECT_EQ(writer->counts().kept, 2);
  EXPECT_EQ(writer->counts().dropped, 0);
  EXPECT_THAT(said_.lines().back(), HasSubstr("again"));
  EXPECT_EQ(learned_data(folder_).samples.size(), 2U);
}

TEST_F(LearnWriterTest, TriesAgainAtTheEnd) {
  {
    const auto writer = open(0.5);
    const aerie::test::FileSizeLimit limit(1000);
    writer->add(learned_reply(1, 3, 700));
    EXPECT_TRUE(comes([&] { return !said_.lines().empty(); }));
  }
  EXPECT_EQ(learned_data(folder_).samples.size(), 1U);
}

TEST_F(LearnWriterTest, CountsWhatAFullDiskCost) {
  const auto writer = open(0.02);
  int added = 0;
  {
    const aerie::test::FileSizeLimit limit(1000);
    // More than a shard of 1 MiB.
    while (writer->counts().dropped == 0 && added < 200) {
      writer->add(learned_reply(++added, 3, 2000));
      usleep(20000);
    }
    EXPECT_EQ(writer->counts().kept, 0);
  }
  EXPECT_TRUE(comes([&] { return writer->counts().kept + writer->counts().dropped == added; }));
  EXPECT_GT(writer->counts().dropped, 0);
  EXPECT_EQ(static_cast<int64_t>(learned_data(folder_).samples.size()), writer->counts().kept);
}

}  // namespace aerie::train::learn_writer_test
