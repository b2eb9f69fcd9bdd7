// Products of groups of four warps, and the barriers and copies that bring what they take: the
// bits of mma_bf16; and programs that are wrong, each of which is found.
#include <cstring>
#include <random>

#include "kernels/simt/sanitizers.h"
#include "tests/kernels/simt/simt_testing.h"

namespace aerie::groups_test {

using simt_testing::kOrders;
using simt_testing::Numbers;
using simt_testing::Stream;

constexpr int kThreads = 128, kTiles = 8, kRows = kTiles * 8, kOutputs = 64, kSteps = 4;
constexpr int kRowBytes = kRows * 128;

enum class Fault {
  kNone,
  kNoWait,          // sums are read at once
  kChangedWeights,  // while the product is under way
  kChangedSums,
  kChangedRows,
  kNoFence,       // no group_fence
  kNoCommit,      // and a return
  kNoSwizzle,     // rows lie straight
  kOperand,       // does not begin where it has to
  kOtherOperand,  // is of another form
  kOneWarp,       // asks for another product
  kBarrier,       // was not begun
  kNobodyArrives,
  kTooManyArrive,
  kExpectsMore,  // than is copied
  kExpectsLess,
  kCopyAskew,
  kCopyOutside,
  kCopyForgotten,
  kCopyEarly,  // rows are read without a wait
};

struct Shared {
  unsigned char rows[kRowBytes];
  simt::Barrier full, other;
};

// Where 16 bytes of a row lie.
int place_of(int row, int piece) {
  return row * 128 + (piece ^ row % 8) * 16;
}

struct Args {
  const uint16_t* weights;  // [output][k]
  const unsigned char* rows;
  const float* start;  // [output][row]
  float* sums;
  float* expected;
  Fault fault;
};

SIMT_DEV uint32_t two(const uint16_t* from) {
  return from[0] | static_cast<uint32_t>(from[1]) << 16;
}

SIMT_DEV void bring(const Args& args, Shared& shared) {
  const Fault fault = args.fault;
  if (threadIdx.x == 0) {
    if (fault != Fault::kBarrier) simt::barrier_begin(shared.full, 1);
    simt::barrier_begin(shared.other, 1);
    simt::barriers_begun();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    unsigned char* to = shared.rows;
    if (fault == Fault::kCopyAskew) to += 8;
    if (fault == Fault::kCopyOutside) to += 1024;
    if (fault == Fault::kExpectsMore) {
      simt::barrier_expect(shared.full, kRowBytes + 16);
    } else if (fault == Fault::kExpectsLess) {
      simt::barrier_expect(shared.full, kRowBytes - 16);
    } else if (fault != Fault::kNobodyArrives) {
      simt::barrier_expect(shared.full, kRowBytes);
    }
    simt::copy_block(to, args.rows, kRowBytes / 2, shared.full);
    simt::copy_block(to + kRowBytes / 2, args.rows + kRowBytes / 2, kRowBytes / 2, shared.full);
    if (fault == Fault::kTooManyArrive) simt::barrier_arrive(shared.full);
    if (fault == Fault::kCopyForgotten) {
      simt::copy_block(shared.rows, args.rows, 16, shared.other);
    }
  }
  if (fault != Fault::kCopyEarly) simt::barrier_wait(shared.full, 0);
}

SIMT_DEV void multiply(const Args& args, Shared& shared, const uint32_t (&a)[kSteps][4],
                       float (&d)[kTiles][4]) {
  const Fault fault = args.fault;
  const bool is_first = threadIdx.x < 32;
  uint64_t rows = simt::operand_of(shared.rows + (fault == Fault::kOperand ? 512 : 0));
  if (fault == Fault::kOtherOperand) rows &= ~(uint64_t{3} << 62);
  if (fault == Fault::kOneWarp && is_first) rows += 2;
  if (fault != Fault::kNoFence) simt::group_fence();
  for (int step = 0; step < kSteps - 1; ++step) {
    simt::group_mma_bf16(d, a[step], rows + static_cast<uint64_t>(step) * 2, true);
  }
  simt::group_commit();
  simt::group_fence();
  // The rest of k, of the last of which the other rows are taken for nothing.
  simt::group_mma_bf16(d, a[kSteps - 1], rows + (kSteps - 1) * 2, true);
  if (fault != Fault::kNoCommit) simt::group_commit();
}

__global__ void group_kernel(const Args args) {
  auto& shared = simt::shared<Shared>();
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, g = lane / 4,
            t = lane % 4 * 2, first = thread / 32 * 16;
  bring(args, shared);
  uint32_t a[kSteps][4];
  float d[kTiles][4];
  for (int step = 0; step < kSteps; ++step) {
    for (int i = 0; i < 4; ++i) {
      a[step][i] = two(args.weights + (first + g + i % 2 * 8) * 64 + step * 16 + t + i / 2 * 8);
    }
  }
  const auto at = [&](int tile, int i) {
    return (first + g + i / 2 * 8) * kRows + tile * 8 + t + i % 2;
  };
  for (int i = 0; i < kTiles * 4; ++i) d[i / 4][i % 4] = args.start[at(i / 4, i % 4)];
  multiply(args, shared, a, d);
  const Fault fault = args.fault;
  if (fault == Fault::kChangedWeights && thread == 77) a[2][1] ^= 1;
  if (fault == Fault::kChangedSums && thread == 78) d[1][1] = 0.0f;
  if (fault == Fault::kChangedRows && thread == 79) shared.rows[place_of(20, 3)] ^= 1;
  simt::group_wait<1>(d);  // of the first group of products; the sums have another under way
  if (fault != Fault::kNoWait) simt::group_wait<0>(d);
  for (int i = 0; i < kTiles * 4; ++i) args.sums[at(i / 4, i % 4)] = d[i / 4][i % 4];
  if (fault == Fault::kNoWait) simt::group_wait<0>(d);
}

// The same by the product of one warp.
__global__ void warp_kernel(const Args args) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, g = lane / 4,
            t = lane % 4 * 2, first = thread / 32 * 16;
  for (int tile = 0; tile < kTiles; ++tile) {
    float d[4];
    for (int i = 0; i < 4; ++i) {
      d[i] = args.start[(first + g + i / 2 * 8) * kRows + tile * 8 + t + i % 2];
    }
    for (int step = 0; step < kSteps; ++step) {
      uint32_t a[4], b[2];
      for (int i = 0; i < 4; ++i) {
        a[i] = two(args.weights + (first + g + i % 2 * 8) * 64 + step * 16 + t + i / 2 * 8);
      }
      for (int i = 0; i < 2; ++i) {
        std::memcpy(&b[i], args.rows + place_of(tile * 8 + g, step * 2 + i) + t * 2, 4);
      }
      simt::mma_bf16(d, a, b);
    }
    for (int i = 0; i < 4; ++i) {
      args.expected[(first + g + i / 2 * 8) * kRows + tile * 8 + t + i % 2] = d[i];
    }
  }
}

class Groups : public testing::Test {
 protected:
  Groups() {
    if (SIMT_TSAN != 0) GTEST_FLAG_SET(death_test_style, "threadsafe");
    std::mt19937 random(7);
    const auto number = [&] {
      // Of all sizes.
      const auto bits = static_cast<uint32_t>(random());
      return static_cast<uint16_t>((bits & 0x8fff) | (0x30u + (bits >> 16 & 0xf)) << 8);
    };
    for (uint16_t& one : weights_) one = number();
    for (int row = 0; row < kRows; ++row) {
      for (int k = 0; k < 64; ++k) {
        const uint16_t x = number();
        std::memcpy(&rows_[static_cast<size_t>(place_of(row, k / 8) + k % 8 * 2)], &x, 2);
        std::memcpy(&straight_[static_cast<size_t>(row * 128 + k * 2)], &x, 2);
      }
    }
    for (float& one : start_) one = std::normal_distribution<float>()(random);
  }

  // Whether the group's sums are the warps'.
  bool run(Fault fault) {
    const Stream stream;
    const Numbers<uint16_t> weights(stream, weights_);
    const Numbers<unsigned char> rows(stream, rows_), straight(stream, straight_);
    const Numbers<float> start(stream, start_), sums(stream, start_), expected(stream, start_);
    Args args = {weights.data(), rows.data(), start.data(), sums.data(), expected.data(), fault};
    EXPECT_CUDA(simt::launch(warp_kernel, {.block = kThreads}, stream, args));
    if (fault == Fault::kNoSwizzle) args.rows = straight.data();
    EXPECT_CUDA(simt::launch(group_kernel, {.block = kThreads, .shared_bytes = sizeof(Shared)},
                             stream, args));
    const std::vector<float> a = sums.read(), b = expected.read();
    return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }

  std::vector<uint16_t> weights_ = std::vector<uint16_t>(size_t{kOutputs} * 64);
  std::vector<unsigned char> rows_ = std::vector<unsigned char>(kRowBytes);
  std::vector<unsigned char> straight_ = std::vector<unsigned char>(kRowBytes);
  std::vector<float> start_ = std::vector<float>(size_t{kOutputs} * kRows);
};

TEST_F(Groups, GiveTheBitsOfWarps) {
  for (uint64_t order = 0; order < kOrders; ++order) {
    simt::set_order(order);
    EXPECT_TRUE(run(Fault::kNone)) << order;
  }
}

TEST_F(Groups, WrongNumbersAreSeen) {
  EXPECT_FALSE(run(Fault::kNoWait));
  EXPECT_FALSE(run(Fault::kNoSwizzle));
}

TEST_F(Groups, NothingMayBeTouchedBeforeTheWait) {
  EXPECT_DEATH(run(Fault::kChangedWeights), "weights were changed while the product was under way");
  EXPECT_DEATH(run(Fault::kChangedSums), "sums were changed while the product was under way");
  EXPECT_DEATH(run(Fault::kChangedRows), "operand was changed while the product was under way");
  EXPECT_DEATH(run(Fault::kCopyEarly), "operand was changed while|copy_blocks that it did not");
}

TEST_F(Groups, WrongProducts) {
  EXPECT_DEATH(run(Fault::kNoFence), "without a group_fence");
  EXPECT_DEATH(run(Fault::kNoCommit), "products of its group that it did not wait for");
  EXPECT_DEATH(run(Fault::kOperand), "does not begin at a multiple of 1024");
  EXPECT_DEATH(run(Fault::kOtherOperand), "not of rows of 128 bytes");
  EXPECT_DEATH(run(Fault::kOneWarp), "warps of a group ask for different products");
}

TEST_F(Groups, WrongBarriersAndCopies) {
  EXPECT_DEATH(run(Fault::kBarrier), "was not begun");
  EXPECT_DEATH(run(Fault::kNobodyArrives), "for ever(.|\n)*wait for the phase of a Barrier");
  EXPECT_DEATH(run(Fault::kTooManyArrive), "too many arrive");
  EXPECT_DEATH(run(Fault::kExpectsMore), "for ever(.|\n)*wait for the phase of a Barrier");
  EXPECT_DEATH(run(Fault::kExpectsLess), "expects fewer bytes");
  EXPECT_DEATH(run(Fault::kCopyAskew), "copy_block is not aligned");
  EXPECT_DEATH(run(Fault::kCopyOutside), "copy_block goes outside");
  EXPECT_DEATH(run(Fault::kCopyForgotten), "copy_blocks that it did not wait for");
}

}  // namespace aerie::groups_test
