// What the emulator's files know of its threads besides each other. Not for kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/simt/tensor_core.h"

namespace simt {

enum class State : uint8_t {
  kReady,
  kBarrier,
  kSyncWarp,
  kShuffle,
  kMmaBf16,
  kMmaF16,
  kGroupProduct,
  kGroupMark,
  kPhase,
  kPrevious,
  kDone
};

// A warp's part of a group's product that is under way.
struct GroupProduct {
  static constexpr int kMostTiles = 16;
  int tiles;
  bool committed;
  uint64_t operand;
  float* d[32];
  const uint32_t* a[32];
  uint32_t weights[32][4];            // what a was
  uint16_t rows[kMostTiles * 8][16];  // what the operand was
  float result[32][kMostTiles * 4];   // what d will be
};

// Those of a warp, oldest first.
struct GroupProducts {
  static constexpr unsigned kMost = 16;
  std::vector<GroupProduct> products;  // go round
  unsigned begun = 0, ended = 0;
  bool fenced = false;
  uint64_t asked = 0;  // a digest of all that were asked for

  GroupProduct& at(unsigned i) { return products[i % kMost]; }
  void clear();
  void check_ended() const;
};

// copy_block()s of a block that nobody has waited for.
struct BlockCopy {
  unsigned char* to;
  const void* from;
  size_t bytes;
  const void* barrier;
};

// Of the thread that runs, of its warp, of its block.
GroupProducts& group_products();
std::vector<BlockCopy>& block_copies();
const TensorCore& tensor_cores();

// The lanes of a warp meet. To the last one to come: what each brought, and it is to wake_warp();
// to the others, which go on then, nullptr.
const void* const* meet_warp(State meeting, const void* part);
void wake_warp();

// The thread waits until another calls wake() with the same place.
void wait_at(const void* place);
void wake(const void* place);

}  // namespace simt
