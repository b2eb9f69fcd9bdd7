// What is kept of the layers of sequences that others draft for.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "engine/learning/tap_keeper.h"
#include "tests/testing/test_drafters.h"

namespace aerie::tap_keeper_test {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr int kHidden = 8;
constexpr size_t kWidth = 2 * kHidden;

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
  void open(SequenceId id, bool learn = true, std::span<const int32_t> tokens = {}) {
    DraftSequence sequence;
    sequence.id = id;
    sequence.learn = learn;
    sequence.tokens = tokens;
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

TEST_F(TapKeeperTest, WhatWasReusedIsThatOfOneThatIsOpen) {
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 5, 6}, others = {1, 2, 3, 9, 9, 9};
  open(1, true, tokens);
  read(1, 2, 2);  // two were in the cache, of one that has ended
  open(2, true, tokens);
  read(2, 4, 2);
  open(3, true, others);
  read(3, 4, 1);
  open(4, true, others);
  read(4, 3, 1);
  open(5, true, tokens);
  read(5, 5, 1);  // the second one has it, and not the first
  const auto second = keeper_->take(2), third = keeper_->take(3), fourth = keeper_->take(4),
             fifth = keeper_->take(5);
  EXPECT_EQ(second->first_row, 2);
  EXPECT_THAT(rows(*second), ElementsAre(21, 31, 41, 51));
  EXPECT_EQ(third->first_row, 4);
  EXPECT_THAT(rows(*third), ElementsAre(41));
  EXPECT_EQ(fourth->first_row, 2);
  EXPECT_THAT(rows(*fourth), ElementsAre(21, 31));
  EXPECT_EQ(fifth->first_row, 2);
  EXPECT_THAT(rows(*fifth), ElementsAre(21, 31, 41, 51));
  EXPECT_EQ(rows(*keeper_->take(1)).size(), 2U);
}

TEST_F(TapKeeperTest, OwnRowsGoBeforeThoseOfOthers) {
  const std::vector<int32_t> tokens(8, 1);
  // 1000 bytes are 31 rows, of which others' take half at most.
  for (SequenceId id = 1; id <= 4; ++id) {
    open(id, true, tokens);
    read(id, id == 1 ? 0 : 6, id == 1 ? 7 : 1);
  }
  EXPECT_EQ(keeper_->take(2)->first_row, 0);
  EXPECT_EQ(keeper_->take(3)->first_row, 6);
  EXPECT_EQ(keeper_->take(4)->first_row, 6);
  open(5, true, tokens);
  read(5, 6, 1);
  EXPECT_EQ(keeper_->take(5)->first_row, 0);  // what was borrowed is free again
}

TEST_F(TapKeeperTest, IsBounded) {
  open(1);
  read(1, 6, 5);
  read(1, 11, 1);
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

}  // namespace aerie::tap_keeper_test
