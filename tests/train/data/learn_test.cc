// What a server keeps to learn from is data that training reads: whole, bounded, private, whatever
// ends the process; and what it holds of the layers is what reading the texts again gives.

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/files.h"
#include "engine/learning/learn_store.h"
#include "engine/learning/learn_writer.h"
#include "engine/learning/tap_keeper.h"
#include "tests/testing/file_size_limit.h"
#include "tests/testing/test_drafters.h"
#include "tests/train/data/data_folder.h"
#include "train/data/dataset.h"
#include "train/data/features/features.h"
#include "train/data/info.h"

namespace aerie::train::learn_test {

namespace fs = std::filesystem;
using test::Scratch;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kHidden = 8;
const std::vector<int32_t> kLayers = {0, 2};
constexpr size_t kWidth = 2 * kHidden;

DataInfo info() {
  DataInfo info;
  info.model = "a model";
  info.fingerprint = "00ff00ff00ff00ff";
  info.vocab = 1000;
  info.context = 8192;
  info.settings.max_tokens = 8192;
  info.held_out = 0.05;
  return info;
}

FeatureKind kind() {
  return {info().fingerprint, kLayers, kHidden};
}

LearnStore opened(const std::string& folder, int64_t bytes = LearnStore::kLeastBytes) {
  auto store = LearnStore::open(folder, bytes);
  EXPECT_TRUE(store.ok()) << store.status().message();
  const Status begun = store->begin(info(), kind());
  EXPECT_TRUE(begun.ok()) << begun.message();
  return *std::move(store);
}

// Row r has the value 100 * seed + r in 16 bits, so that it can be told whose it is.
LearnedReply reply(int seed, int prompt, int tokens, int reused = 0) {
  LearnedReply out;
  for (int i = 0; i < tokens; ++i) out.tokens.push_back((seed * 7 + i) % 1000);
  out.prompt_length = prompt;
  out.finish = FinishReason::kStop;
  out.temperature = 0.5;
  out.seed = static_cast<uint64_t>(seed);
  out.first_row = reused;
  for (int r = reused; r + 1 < tokens; ++r) {
    out.taps.insert(out.taps.end(), kWidth, static_cast<uint16_t>(100 * seed + r));
  }
  return out;
}

Dataset read(const std::string& folder) {
  auto dataset = read_dataset(folder);
  EXPECT_TRUE(dataset.ok()) << dataset.status().message();
  return dataset.ok() ? *std::move(dataset) : Dataset();
}

std::vector<uint16_t> first_of_rows(const std::string& folder, const Sample& sample) {
  const auto source = stored_features(folder, kLayers);
  EXPECT_TRUE(source.ok()) << source.status().message();
  std::vector<uint16_t> all(sample.tokens.size() * kWidth), out;
  EXPECT_TRUE((*source)->has(sample)) << sample.id;
  EXPECT_TRUE((*source)->read_bfloats(sample, all).ok());
  for (size_t r = 0; r < sample.tokens.size(); ++r) out.push_back(all[r * kWidth]);
  return out;
}

int64_t bytes_in(const std::string& folder) {
  int64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    bytes += static_cast<int64_t>(entry.file_size());
  }
  return bytes;
}

TEST(LearnStore, TrainingReadsWhatItKeeps) {
  const Scratch scratch;
  const std::string folder = scratch.path("learn");
  {
    LearnStore store = opened(folder);
    ASSERT_TRUE(store.add(reply(1, 3, 7)).ok());
    LearnedReply cut = reply(2, 2, 5);
    cut.finish = FinishReason::kNone;
    ASSERT_TRUE(store.add(cut).ok());
    ASSERT_TRUE(store.add(reply(3, 4, 4)).ok());  // nothing was generated
    ASSERT_TRUE(store.flush().ok());
  }
  const Dataset data = read(folder);
  EXPECT_TRUE(data.info.served);
  ASSERT_EQ(data.samples.size(), 2U);
  const Sample& sample = data.samples[0];
  EXPECT_EQ(sample.tokens, reply(1, 3, 7).tokens);
  EXPECT_THAT(sample.mask, ElementsAre(0, 0, 0, 1, 1, 1, 1));
  EXPECT_EQ(sample.temperature, 0.5);
  EXPECT_EQ(sample.finish, FinishReason::kStop);
  EXPECT_EQ(data.samples[1].finish, FinishReason::kLength);
  // The last token is read by nobody.
  EXPECT_THAT(first_of_rows(folder, sample), ElementsAre(100, 101, 102, 103, 104, 105, 0));
}

TEST(LearnStore, IsForItsOwnerAlone) {
  const Scratch scratch;
  const std::string folder = scratch.path("learn");
  const mode_t before = umask(0);
  {
    LearnStore store = opened(folder);
    ASSERT_TRUE(store.add(reply(1, 3, 7)).ok());
    ASSERT_TRUE(store.flush().ok());
  }
  umask(before);
  struct stat info = {};
  ASSERT_EQ(stat(folder.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700U);
  int files = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    ASSERT_EQ(stat(entry.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600U) << entry.path();
    ++files;
  }
  EXPECT_EQ(files, 4);
}

TEST(LearnStore, TheOldestShardsGo) {
  const Scratch scratch;
  const std::string folder = scratch.path("learn");
  const int64_t bound = LearnStore::kLeastBytes;
  int last = 0;
  // Twice in turns, so that what earlier processes left counts.
  for (int round = 0; round < 2; ++round) {
    LearnStore store = opened(folder, bound);
    for (int i = 0; i < 300; ++i) {
      ASSERT_TRUE(store.add(reply(++last, 100, 2000)).ok());
      if (i % 50 == 0) {
        EXPECT_LE(bytes_in(folder), bound + bound / 8);
      }
    }
    ASSERT_TRUE(store.flush().ok());
    EXPECT_LE(bytes_in(folder), bound + bound / 8);
    EXPECT_GT(bytes_in(folder), bound / 2);
  }
  const Dataset data = read(folder);
  ASSERT_GT(data.samples.size(), 50U);
  // The newest, without a gap.
  for (size_t i = 0; i < data.samples.size(); ++i) {
    EXPECT_EQ(data.samples[i].seed, static_cast<uint64_t>(last) - data.samples.size() + 1 + i);
  }
  EXPECT_EQ(data.samples.back().prompt, last - 1);
  const Sample& oldest = data.samples.front();
  EXPECT_EQ(first_of_rows(folder, oldest)[1], static_cast<uint16_t>(100 * oldest.seed + 1));
}

TEST(LearnStore, WhatWasReusedIsThatOfTheEarlierReply) {
  const Scratch scratch;
  const std::string folder = scratch.path("learn");
  LearnStore store = opened(folder);
  const LearnedReply first = reply(1, 3, 7);
  LearnedReply next = reply(1, 6, 10, 5);  // the same beginning, of which 5 were in the cache
  for (uint16_t& value : next.taps) value = 9;
  LearnedReply other = reply(4, 6, 10, 5);  // one that nobody has
  ASSERT_TRUE(store.add(first).ok());
  ASSERT_TRUE(store.add(next).ok());
  ASSERT_TRUE(store.add(other).ok());
  ASSERT_TRUE(store.flush().ok());
  const Dataset data = read(folder);
  ASSERT_EQ(data.samples.size(), 3U);
  EXPECT_THAT(first_of_rows(folder, data.samples[1]),
              ElementsAre(100, 101, 102, 103, 104, 9, 9, 9, 9, 0));
  const auto source = stored_features(folder, kLayers);
  ASSERT_TRUE(source.ok());
  EXPECT_FALSE((*source)->has(data.samples[2]));
}

TEST(LearnStore, TurnsOfAChatStandOnOneSide) {
  const Scratch scratch;
  LearnStore store = opened(scratch.path("learn"));
  const LearnedReply first = reply(1, 3, 7);
  LearnedReply again = first;
  LearnedReply next = reply(1, 9, 12);  // goes on from the first, reply included
  ASSERT_TRUE(store.add(first).ok());
  ASSERT_TRUE(store.add(reply(2, 3, 7)).ok());
  ASSERT_TRUE(store.add(again).ok());
  ASSERT_TRUE(store.add(next).ok());
  ASSERT_TRUE(store.add(reply(1, 2, 5)).ok());  // a prompt that is shorter than any
  ASSERT_TRUE(store.flush().ok());
  std::vector<std::string> ids;
  for (const Sample& sample : read(scratch.path("learn")).samples) ids.push_back(sample.id);
  EXPECT_THAT(ids, ElementsAre("0-0", "0-1", "0-2", "1-0", "2-0"));
}

TEST(LearnStore, WhatCannotBeIsRefused) {
  const Scratch scratch;
  const std::string folder = scratch.path("learn");
  {
    LearnStore store = opened(folder);
    EXPECT_THAT(LearnStore::open(folder, 0).status().message(), HasSubstr("another process"));
    ASSERT_TRUE(store.add(reply(1, 3, 7)).ok());
    ASSERT_TRUE(store.flush().ok());
  }
  const auto refused = [&](const DataInfo& info, const FeatureKind& kind) {
    return LearnStore::open(folder, 0)->begin(info, kind).message();
  };
  DataInfo other = info();
  other.fingerprint = "11";
  EXPECT_THAT(refused(other, kind()), HasSubstr("give another folder"));
  FeatureKind layers = kind();
  layers.tap_layers = {0, 1};
  EXPECT_THAT(refused(info(), layers), HasSubstr("layers 0,2"));
  EXPECT_THAT(LearnStore::open("/proc/none/learn", 0).status().message(), HasSubstr("/proc/none"));
  EXPECT_THAT(LearnStore::open(scratch.write("file", ""), 0).status().message(),
              HasSubstr("no folder"));
  // Answers to prompts are not a server's replies.
  EXPECT_THAT(difference(read(folder).info, info()), HasSubstr("samples a server's replies there"));
}

TEST(LearnStore, GoesOnAfterADiskWasFull) {
  const Scratch scratch;
  const std::string folder = scratch.path("learn");
  LearnStore store = opened(folder);
  ASSERT_TRUE(store.add(reply(1, 3, 700)).ok());
  {
    const aerie::test::FileSizeLimit limit(1000);
    EXPECT_EQ(store.flush().code(), StatusCode::kResourceExhausted);
  }
  ASSERT_TRUE(store.add(reply(2, 3, 700)).ok());
  ASSERT_TRUE(store.flush().ok());
  EXPECT_EQ(read(folder).samples.size(), 2U);
}

size_t shards_in(const std::string& folder) {
  const auto names = names_in(folder);
  return static_cast<size_t>(std::ranges::count_if(
      names, [](const std::string& name) { return name.starts_with("answers-"); }));
}

// Killed at one moment or another while it writes, the folder can be read each time and grows.
TEST(LearnStore, CanBeReadWhereverItWasKilled) {
  const Scratch scratch;
  const std::string folder = scratch.path("learn");
  { opened(folder); }
  size_t before = 0;
  for (int kill_after_us = 0; kill_after_us < 30000; kill_after_us += 3700) {
    const size_t shards = shards_in(folder);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto store = LearnStore::open(folder, LearnStore::kLeastBytes);
      if (!store.ok() || !store->begin(info(), kind()).ok()) _exit(3);
      for (int i = 1;; ++i) {
        if (!store->add(reply(i % 900, 3, 40)).ok() || !store->flush().ok()) _exit(4);
      }
    }
    for (int i = 0; i < 60000 && shards_in(folder) == shards; ++i) usleep(1000);
    usleep(static_cast<useconds_t>(kill_after_us));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << WEXITSTATUS(status);
    const Dataset data = read(folder);
    EXPECT_GT(data.samples.size(), before);
    before = data.samples.size();
    first_of_rows(folder, data.samples.back());
    // What was left of a shard that never came to be is tidied up by the next one.
    { opened(folder); }
    EXPECT_EQ(read(folder).samples.size(), before);
  }
}

TEST(LearnWriter, WritesInTimeAndDropsWhatIsTooMuch) {
  const Scratch scratch;
  const std::string folder = scratch.path("learn");
  auto store = std::make_shared<LearnStore>(opened(folder));
  LearnWriter::Options options;
  options.max_bytes = 100000;
  options.flush_seconds = 0.05;
  LearnWriter writer(store, options);
  writer.add(reply(1, 3, 7));
  for (int i = 0; i < 600 && !fs::exists(folder + "/answers-000001.jsonl"); ++i) usleep(50000);
  EXPECT_EQ(read(folder).samples.size(), 1U);
  writer.add(reply(2, 3, 4000));
  EXPECT_EQ(writer.counts().dropped, 1);
  writer.drop();
  EXPECT_EQ(writer.counts().dropped, 2);
  EXPECT_EQ(writer.counts().kept, 1);
}

TEST(LearnWriter, SaysOnceWhatIsWrongAndThatItIsOver) {
  const Scratch scratch;
  auto store = std::make_shared<LearnStore>(opened(scratch.path("learn")));
  std::vector<std::string> said;
  LearnWriter::Options options;
  options.flush_seconds = 0.0;
  options.warn = [&](const std::string& message) { said.push_back(message); };
  {
    LearnWriter writer(store, options);
    const auto wait = [&](size_t lines) {
      for (int i = 0; i < 600; ++i, usleep(20000)) {
        if (writer.counts().kept >= static_cast<int64_t>(lines)) return;
      }
    };
    {
      const aerie::test::FileSizeLimit limit(1000);
      writer.add(reply(1, 3, 700));
      wait(1);
      writer.add(reply(2, 3, 700));
      wait(2);
      usleep(300000);
    }
    writer.add(reply(3, 3, 700));
    wait(3);
  }
  ASSERT_GE(said.size(), 2U);
  EXPECT_THAT(said.front(), HasSubstr("not kept"));
  EXPECT_THAT(said.back(), HasSubstr("again"));
  EXPECT_EQ(read(scratch.path("learn")).samples.size(), 3U);
}

// Layers 1 and 2 are read; the taps of layer l at position p are 10 * p + l.
class TapKeeperTest : public testing::Test {
 protected:
  DraftCommit commit(SequenceId id, int first, int rows) {
    taps_.clear();
    for (int r = first; r < first + rows; ++r) {
      for (const int32_t layer : keeper_->needs().tap_layers) {
        taps_.insert(taps_.end(), kHidden, static_cast<float>(10 * r + layer));
      }
    }
    DraftCommit out;
    out.id = id;
    out.first = first;
    out.rows = rows;
    out.taps = taps_;
    return out;
  }
  void read(SequenceId id, int first, int rows) {
    const DraftCommit commits[] = {commit(id, first, rows)};
    ASSERT_TRUE(keeper_->observe(commits).ok());
  }
  void open(SequenceId id, bool learn = true) {
    DraftSequence sequence;
    sequence.id = id;
    sequence.learn = learn;
    ASSERT_TRUE(keeper_->open(sequence).ok());
  }
  // Of the first layer that is kept, by row.
  std::vector<int> rows(const TapKeeper::Taps& taps) {
    std::vector<int> out;
    for (size_t i = 0; i < taps.values.size(); i += kWidth) {
      const auto value = static_cast<uint32_t>(taps.values[i]) << 16;
      float number = 0;
      std::memcpy(&number, &value, sizeof(number));
      out.push_back(static_cast<int>(number));
    }
    return out;
  }

  aerie::test::TestDrafter inner_;
  std::unique_ptr<TapKeeper> keeper_ = TapKeeper::make(inner_, {1, 2}, 8, 1000).value();
  std::vector<float> taps_;
};

TEST_F(TapKeeperTest, KeepsWhatIsReadThroughSuspensions) {
  open(1);
  open(2, false);
  read(1, 3, 2);  // three were in the cache
  read(2, 0, 2);
  read(1, 5, 1);
  keeper_->close(1);
  open(1);
  read(1, 4, 2);  // one was kept
  keeper_->close(1);
  const auto taps = keeper_->take(1);
  ASSERT_TRUE(taps);
  EXPECT_EQ(taps->first_row, 3);
  EXPECT_THAT(rows(*taps), ElementsAre(31, 41, 51));
  EXPECT_FALSE(keeper_->take(1));
  EXPECT_FALSE(keeper_->take(2));
}

TEST_F(TapKeeperTest, BeginsAnewWhereAllIsReadAgainAndLosesWhatHasAGap) {
  open(1);
  read(1, 3, 2);
  read(1, 0, 3);
  EXPECT_THAT(rows(*keeper_->take(1)), ElementsAre(1, 11, 21));
  open(1);
  read(1, 0, 2);
  read(1, 4, 1);
  read(1, 5, 1);
  EXPECT_THAT(rows(*keeper_->take(1)), IsEmpty());
}

TEST_F(TapKeeperTest, IsBounded) {
  open(1);
  read(1, 6, 5);
  EXPECT_THAT(rows(*keeper_->take(1)), ElementsAre(61, 71));  // of at most eight tokens
  // 1000 bytes are 31 rows.
  for (SequenceId id = 1; id <= 5; ++id) {
    open(id);
    read(id, 0, 7);
  }
  EXPECT_EQ(rows(*keeper_->take(4)).size(), 7U);
  EXPECT_THAT(rows(*keeper_->take(5)), IsEmpty());
  open(5);
  read(5, 0, 7);
  EXPECT_EQ(rows(*keeper_->take(5)).size(), 7U);
}

}  // namespace aerie::train::learn_test
