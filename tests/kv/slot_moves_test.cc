// Moves that make no difference are left out, and no others.

#include "kv/slot_moves.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <vector>

namespace aerie::slot_moves_test {

std::vector<int32_t> moved(std::span<const SlotMove> moves, int slots) {
  std::vector<int32_t> contents(static_cast<size_t>(slots));
  std::iota(contents.begin(), contents.end(), 0);
  for (const SlotMove& move : moves) {
    contents[static_cast<size_t>(move.to)] = contents[static_cast<size_t>(move.from)];
  }
  return contents;
}

// Few slots, so that moves hang on one another.
TEST(SlotMoves, ManyMovesDoTheSame) {
  for (const int slots : {2, 3, 7, 64, 1000}) {
    std::mt19937_64 random(static_cast<uint64_t>(slots));
    const auto draw = [&] { return static_cast<int32_t>(random() % static_cast<uint64_t>(slots)); };
    SlotMoves moves(slots);
    std::vector<SlotMove> all;
    for (size_t i = 0; i < 3 * SlotMoves::kMany; ++i) {
      all.push_back({draw(), draw()});
      moves.add(all.back().from, all.back().to);
      if (i % 50'000 == 0) {
        ASSERT_EQ(moved(moves.list(), slots), moved(all, slots)) << slots;
      }
    }
    ASSERT_EQ(moved(moves.list(), slots), moved(all, slots)) << slots;
    EXPECT_LT(moves.list().size(), all.size()) << slots;
    moves.clear();
    EXPECT_TRUE(moves.list().empty());
  }
}

// As of sequences that begin with what is kept, one after the other, and are given up.
TEST(SlotMoves, CopiesThatNobodyReadDoNotGather) {
  constexpr int kSlots = 128;
  SlotMoves moves(kSlots);
  size_t most = 0;
  for (int copies = 0; copies < 10'000; ++copies) {
    for (int32_t i = 0; i < kSlots / 2; ++i) moves.add(i, kSlots / 2 + i);
    most = std::max(most, moves.list().size());
  }
  EXPECT_LT(most, SlotMoves::kMany);
  EXPECT_EQ(moved(moves.list(), kSlots)[kSlots - 1], kSlots / 2 - 1);
}

// A chain is all read: nothing of it may go.
TEST(SlotMoves, WhatIsReadStays) {
  const auto slots = static_cast<int32_t>(SlotMoves::kMany) + 10;
  SlotMoves moves(slots);
  for (int32_t i = 0; i + 1 < slots; ++i) moves.add(i, i + 1);
  EXPECT_EQ(moves.list().size(), static_cast<size_t>(slots) - 1);
  EXPECT_EQ(moved(moves.list(), slots), std::vector<int32_t>(static_cast<size_t>(slots), 0));
}

}  // namespace aerie::slot_moves_test
