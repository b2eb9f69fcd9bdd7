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
#include <filesystem>
#include <fstream>

#include "base/files.h"
#include "engine/learning/learn_store.h"
#include "format/output_file.h"
#include "tests/engine/learning/learned_replies.h"
#include "tests/testing/file_size_limit.h"
#include "tests/train/data/data_folder.h"
#include "train/data/dataset.h"
#include "train/data/features/features.h"
#include "train/data/info.h"

namespace aerie::train::learn_store_test {

namespace fs = std::filesystem;
using test::kLayers;
using test::kWidth;
using test::learned_data;
using test::learned_info;
using test::learned_kind;
using test::learned_reply;
using test::learned_store;
using test::Scratch;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<uint16_t> first_of_rows(const std::string& folder, const Sample& sample) {
  const auto source = stored_features(folder, kLayers);
  EXPECT_TRUE(source.ok()) << source.status().message();
  if (!source.ok()) return {};
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

size_t shards_in(const std::string& folder) {
  const auto names = names_in(folder);
  return static_cast<size_t>(std::ranges::count_if(
      names, [](const std::string& name) { return name.starts_with("answers-"); }));
}

std::vector<std::string> ids_in(const std::string& folder) {
  std::vector<std::string> ids;
  for (const Sample& sample : learned_data(folder).samples) ids.push_back(sample.id);
  return ids;
}

TEST(LearnStore, TrainingReadsWhatItKeeps) {
  const Scratch scratch;
  const std::string folder = scratch.path("learn");
  {
    LearnStore store = learned_store(folder);
    ASSERT_TRUE(store.add(learned_reply(1, 3, 7)).ok());
    LearnedReply cut = learned_reply(2, 2, 5);
    cut.finish = FinishReason::kNone;
    ASSERT_TRUE(store.add(cut).ok());
    ASSERT_TRUE(store.add(learned_reply(3, 4, 4)).ok());  // nothing was generated
    ASSERT_TRUE(store.flush().ok());
  }
  const Dataset data = learned_data(folder);
  EXPECT_TRUE(data.info.served);
  ASSERT_EQ(data.samples.size(), 2U);
  const Sample& sample = data.samples[0];
  EXPECT_EQ(sample.tokens, learned_reply(1, 3, 7).tokens);
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
    LearnStore store = learned_store(folder);
    ASSERT_TRUE(store.add(learned_reply(1, 3, 7)).ok());
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
    LearnStore store = learned_store(folder, bound);
    for (int i = 0; i < 300; ++i) {
      ASSERT_TRUE(store.add(learned_reply(++last, 100, 2000)).ok());
      if (i % 50 == 0) {
        EXPECT_LE(bytes_in(folder), bound + bound / 8);
      }
    }
    ASSERT_TRUE(store.flush().ok());
    EXPECT_LE(bytes_in(folder), bound + bound / 8);
    EXPECT_GT(bytes_in(folder), bound / 2);
  }
  const Dataset data = learned_data(folder);
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
  LearnStore store = learned_store(folder);
  const LearnedReply first = learned_reply(1, 3, 7);
  LearnedReply next =
      learned_reply(1, 6, 10, 5);  // the same beginning, of which 5 were in the cache
  for (uint16_t& value : next.taps) value = 9;
  LearnedReply other = learned_reply(4, 6, 10, 5);  // one that nobody has
  ASSERT_TRUE(store.add(first).ok());
  ASSERT_TRUE(store.add(next).ok());
  ASSERT_TRUE(store.add(other).ok());
  ASSERT_TRUE(store.flush().ok());
  const Dataset data = learned_data(folder);
  ASSERT_EQ(data.samples.size(), 3U);
  EXPECT_THAT(first_of_rows(folder, data.samples[1]),
              ElementsAre(100, 101, 102, 103, 104, 9, 9, 9, 9, 0));
  const auto source = stored_features(folder, kLayers);
  ASSERT_TRUE(source.ok());
  EXPECT_FALSE((*source)->has(data.samples[2]));
}

// learned_reply() with another seed of its own and rows that are all `value`.
LearnedReply reply_of(int seed, int tokens, int reused, uint16_t value) {
  LearnedReply out = learned_reply(seed, 3, tokens, reused);
  out.seed = value;
  std::ranges::fill(out.taps, value);
  return out;
}

Sample sample_of(const Dataset& data, uint64_t seed) {
  const auto found = std::ranges::find(data.samples, seed, &Sample::seed);
  EXPECT_NE(found, data.samples.end()) << seed;
  return found == data.samples.end() ? Sample() : *found;
}

bool has_features(const std::string& folder, const Sample& sample) {
  const auto source = stored_features(folder, kLayers);
  EXPECT_TRUE(source.ok()) << source.status().message();
  return source.ok() && (*source)->has(sample);
}

TEST(LearnStore, WhatWasReusedMayLieInAnyShard) {
  const Scratch scratch;
  const std::string folder = scratch.path("learn");
  LearnStore store = learned_store(folder, LearnStore::kLeastBytes);
  int others = 100;
  const auto add_others = [&](int count) {
    for (const int end = others + count; others < end; ++others) {
      ASSERT_TRUE(store.add(learned_reply(others, 100, 2000)).ok());
    }
  };
  ASSERT_TRUE(store.add(reply_of(1, 7, 0, 8)).ok());
  add_others(60);
  ASSERT_TRUE(store.add(reply_of(1, 10, 5, 9)).ok());
  ASSERT_TRUE(store.flush().ok());
  EXPECT_GE(shards_in(folder), 4U);
  {
    const Dataset data = learned_data(folder);
    EXPECT_THAT(first_of_rows(folder, sample_of(data, 9)),
                ElementsAre(8, 8, 8, 8, 8, 9, 9, 9, 9, 0));
  }
  // Of what has gone nothing is known, nor of a shard that others removed.
  add_others(300);
  ASSERT_TRUE(store.add(reply_of(1, 12, 5, 10)).ok());
  ASSERT_TRUE(store.add(reply_of(2, 7, 0, 11)).ok());
  add_others(30);
  ASSERT_TRUE(store.flush().ok());
  for (const std::string& name : names_in(folder)) {
    if (name.starts_with("features-")) {
      ASSERT_TRUE(fs::remove(fs::path(folder) / name));
    }
  }
  ASSERT_TRUE(store.add(reply_of(2, 12, 5, 12)).ok());
  ASSERT_TRUE(store.flush().ok());
  const Dataset data = learned_data(folder);
  EXPECT_FALSE(has_features(folder, sample_of(data, 10)));
  EXPECT_FALSE(has_features(folder, sample_of(data, 12)));
}

TEST(LearnStore, TurnsOfAChatStandOnOneSide) {
  const Scratch scratch;
  LearnStore store = learned_store(scratch.path("learn"));
  const LearnedReply first = learned_reply(1, 3, 7);
  LearnedReply again = first;
  LearnedReply next = learned_reply(1, 9, 12);  // goes on from the first, reply included
  ASSERT_TRUE(store.add(first).ok());
  ASSERT_TRUE(store.add(learned_reply(2, 3, 7)).ok());
  ASSERT_TRUE(store.add(again).ok());
  ASSERT_TRUE(store.add(next).ok());
  ASSERT_TRUE(store.add(learned_reply(1, 2, 5)).ok());  // a prompt that is shorter than any
  ASSERT_TRUE(store.flush().ok());
  EXPECT_THAT(ids_in(scratch.path("learn")), ElementsAre("0-0", "0-1", "0-2", "1-0", "2-0"));
}

// As where nothing but a first token was asked with.
TEST(LearnStore, AShortPromptDoesNotJoinAllThatBeginSo) {
  const Scratch scratch;
  LearnStore store = learned_store(scratch.path("learn"));
  const LearnedReply bare = learned_reply(1, 1, 6);
  ASSERT_TRUE(store.add(bare).ok());
  for (const int32_t token : {500, 600}) {
    LearnedReply other = learned_reply(1, 3, 7);
    other.tokens[1] = token;
    ASSERT_TRUE(store.add(other).ok());
  }
  ASSERT_TRUE(store.add(bare).ok());
  ASSERT_TRUE(store.flush().ok());
  EXPECT_THAT(ids_in(scratch.path("learn")), ElementsAre("0-0", "0-1", "1-0", "2-0"));
}

TEST(LearnStore, GivesNoNumberAgainAfterARestart) {
  const Scratch scratch;
  const std::string folder = scratch.path("learn");
  LearnedReply first = learned_reply(1, 3, 2000);
  first.taps.clear();
  {
    LearnStore store = learned_store(folder);
    for (int i = 1; i <= 10; ++i) {
      LearnedReply reply = learned_reply(i, 3, 7);
      reply.taps.clear();
      ASSERT_TRUE(store.add(reply).ok());
    }
    // Until the last shard has this prompt alone.
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(store.add(first).ok());
    ASSERT_TRUE(store.flush().ok());
  }
  ASSERT_EQ(shards_in(folder), 2U);
  LearnStore store = learned_store(folder);
  ASSERT_TRUE(store.add(learned_reply(20, 3, 7)).ok());
  ASSERT_TRUE(store.flush().ok());
  const Dataset data = learned_data(folder);
  ASSERT_EQ(data.samples.size(), 111U);
  EXPECT_EQ(data.samples.back().id, "10-0");
}

TEST(LearnStore, OneReplyThatIsTooMuchGoesWithoutItsLayersAndTheOthersStay) {
  const Scratch scratch;
  const std::string folder = scratch.path("learn");
  FeatureKind wide = learned_kind();
  wide.hidden = 2048;
  const auto width = static_cast<size_t>(feature_width(wide));
  const auto reply = [&](int seed, int tokens) {
    LearnedReply out = learned_reply(seed, 3, tokens);
    out.taps.assign(static_cast<size_t>(tokens - 1) * width, 1);
    return out;
  };
  auto store = LearnStore::open(folder, LearnStore::kLeastBytes);
  ASSERT_TRUE(store.ok() && store->begin(learned_info(), wide).ok());
  ASSERT_TRUE(store->add(reply(1, 10)).ok());
  ASSERT_TRUE(store->add(reply(2, 1500)).ok());  // 12 MB
  ASSERT_TRUE(store->add(reply(3, 10)).ok());
  ASSERT_TRUE(store->flush().ok());
  const Dataset data = learned_data(folder);
  ASSERT_EQ(data.samples.size(), 3U);
  const auto source = stored_features(folder, kLayers);
  ASSERT_TRUE(source.ok()) << source.status().message();
  EXPECT_TRUE((*source)->has(data.samples[0]));
  EXPECT_FALSE((*source)->has(data.samples[1]));
  EXPECT_TRUE((*source)->has(data.samples[2]));
}

// Links that lead nowhere are listed and cannot be opened, like what the server deletes meanwhile.
TEST(LearnStore, WhatGoesWhileItIsReadIsLeftOut) {
  const Scratch scratch;
  const std::string folder = scratch.path("learn");
  LearnStore store = learned_store(folder);
  ASSERT_TRUE(store.add(learned_reply(1, 3, 7)).ok());
  ASSERT_TRUE(store.flush().ok());
  fs::create_symlink("gone", folder + "/answers-000000.jsonl");
  fs::create_symlink("gone", folder + "/features-000000.safetensors");
  const Dataset data = learned_data(folder);
  ASSERT_EQ(data.samples.size(), 1U);
  EXPECT_THAT(first_of_rows(folder, data.samples[0]), ElementsAre(100, 101, 102, 103, 104, 105, 0));
  // Of files that no server deletes, this is an error.
  DataInfo info = data.info;
  info.served = false;
  ASSERT_TRUE(write_file(info_path(folder), to_json(info)).ok());
  EXPECT_EQ(read_dataset(folder).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(stored_features(folder, kLayers).status().code(), StatusCode::kNotFound);
}

TEST(LearnStore, WhatCannotBeIsRefused) {
  const Scratch scratch;
  const std::string folder = scratch.path("learn");
  {
    LearnStore store = learned_store(folder);
    EXPECT_THAT(LearnStore::open(folder, 0).status().message(), HasSubstr("another process"));
    ASSERT_TRUE(store.add(learned_reply(1, 3, 7)).ok());
    ASSERT_TRUE(store.flush().ok());
  }
  const auto refused = [&](const DataInfo& info, const FeatureKind& kind) {
    return LearnStore::open(folder, 0)->begin(info, kind).message();
  };
  DataInfo other = learned_info();
  other.fingerprint = "11";
  EXPECT_THAT(refused(other, learned_kind()), HasSubstr("give another folder"));
  FeatureKind layers = learned_kind();
  layers.tap_layers = {0, 1};
  EXPECT_THAT(refused(learned_info(), layers), HasSubstr("layers 0,2"));
  EXPECT_THAT(LearnStore::open("/proc/none/learn", 0).status().message(), HasSubstr("/proc/none"));
  EXPECT_THAT(LearnStore::open(scratch.write("file", ""), 0).status().message(),
              HasSubstr("no folder"));
  // Answers to prompts are not a server's replies.
  EXPECT_THAT(difference(learned_data(folder).info, learned_info()),
              HasSubstr("samples a server's replies there"));
}

TEST(LearnStore, GoesOnAfterADiskWasFull) {
  const Scratch scratch;
  const std::string folder = scratch.path("learn");
  LearnStore store = learned_store(folder);
  ASSERT_TRUE(store.add(learned_reply(1, 3, 700)).ok());
  {
    const aerie::test::FileSizeLimit limit(1000);
    EXPECT_EQ(store.flush().code(), StatusCode::kResourceExhausted);
  }
  ASSERT_TRUE(store.add(learned_reply(2, 3, 700)).ok());
  ASSERT_TRUE(store.flush().ok());
  EXPECT_EQ(learned_data(folder).samples.size(), 2U);
}

TEST(LearnStore, AFullDiskTakesNothingOfWhatIsThere) {
  const Scratch scratch;
  const std::string folder = scratch.path("learn");
  LearnStore store = learned_store(folder);
  ASSERT_TRUE(store.add(learned_reply(1, 3, 7)).ok());
  ASSERT_TRUE(store.flush().ok());
  int added = 1;
  {
    const aerie::test::FileSizeLimit limit(1000);
    Status status;
    while (status.ok() && added < 100) status = store.add(learned_reply(++added, 3, 2000));
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  }
  EXPECT_EQ(store.counts().kept, 1);
  EXPECT_EQ(store.counts().thrown_away, added - 2);  // the last is of the next shard
  ASSERT_TRUE(store.flush().ok());
  EXPECT_EQ(store.counts().kept, 2);
  const Dataset data = learned_data(folder);
  ASSERT_EQ(data.samples.size(), 2U);
  EXPECT_THAT(first_of_rows(folder, data.samples[0]), ElementsAre(100, 101, 102, 103, 104, 105, 0));
  EXPECT_EQ(data.samples[1].seed, static_cast<uint64_t>(added));
}

// Killed at one moment or another while it writes, the folder can be read each time and grows.
TEST(LearnStore, CanBeReadWhereverItWasKilled) {
  const Scratch scratch;
  const std::string folder = scratch.path("learn");
  { learned_store(folder); }
  size_t before = 0;
  for (int kill_after_us = 0; kill_after_us < 30000; kill_after_us += 3700) {
    const size_t shards = shards_in(folder);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto store = LearnStore::open(folder, LearnStore::kLeastBytes);
      if (!store.ok() || !store->begin(learned_info(), learned_kind()).ok()) _exit(3);
      for (int i = 1;; ++i) {
        if (!store->add(learned_reply(i % 900, 3, 40)).ok() || !store->flush().ok()) _exit(4);
      }
    }
    for (int i = 0; i < 60000 && shards_in(folder) == shards; ++i) usleep(1000);
    usleep(static_cast<useconds_t>(kill_after_us));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << WEXITSTATUS(status);
    const Dataset data = learned_data(folder);
    EXPECT_GT(data.samples.size(), before);
    before = data.samples.size();
    first_of_rows(folder, data.samples.back());
    // What was left of a shard that never came to be is tidied up by the next one.
    { learned_store(folder); }
    EXPECT_EQ(learned_data(folder).samples.size(), before);
  }
}

}  // namespace aerie::train::learn_store_test
