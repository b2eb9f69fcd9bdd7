// What the threads of a block, of a warp and the blocks of a launch do together, in every order.
#include <numeric>

#include "tests/kernels/simt/simt_testing.h"

namespace aerie::collectives_test {

using simt_testing::kOrders;
using simt_testing::Numbers;
using simt_testing::Stream;

constexpr int kThreads = 128;

struct Sums {
  simt::Array<int, kThreads> value;
};

// Prefix sums in log2 steps, each of which needs both of its barriers.
__global__ void prefix_sums(const int* from, int* to) {
  auto& s = simt::shared<Sums>();
  const int t = static_cast<int>(threadIdx.x);
  const auto at = blockIdx.x * kThreads + threadIdx.x;
  s.value[t] = from[at];
  __syncthreads();
  for (int step = 1; step < kThreads; step *= 2) {
    const int other = t >= step ? s.value[t - step] : 0;
    __syncthreads();
    s.value[t] += other;
    __syncthreads();
  }
  to[at] = s.value[t];
}

TEST(Collectives, ABarrierOrdersABlock) {
  const Stream stream;
  std::vector<int> from(3 * kThreads);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<int>(i * i % 17);
  std::vector<int> expected = from;
  for (int b = 0; b < 3; ++b) {
    const auto first = expected.begin() + b * kThreads;
    std::partial_sum(first, first + kThreads, first);
  }
  const Numbers<int> device_from(stream, from), to(stream, from.size());
  for (uint64_t order = 0; order < kOrders; ++order) {
    simt::set_order(order);
    EXPECT_CUDA(simt::launch(prefix_sums,
                             {.grid = 3, .block = kThreads, .shared_bytes = sizeof(Sums)}, stream,
                             device_from.data(), to.data()));
    EXPECT_EQ(to.read(), expected) << "order " << order;
  }
}

// Each warp turns its numbers round through shared memory that it alone uses, and adds a
// neighbour's.
__global__ void turn_warps(int* numbers) {
  auto& s = simt::shared<Sums>();
  const int t = static_cast<int>(threadIdx.x), lane = t % 32;
  s.value[t] = numbers[t];
  __syncwarp();
  const int turned = s.value[t - lane + 31 - lane];
  numbers[t] = turned + 1000 * simt::shuffle_xor(turned, 1) + 1000000 * simt::shuffle(turned, 5);
}

TEST(Collectives, WarpsExchange) {
  const Stream stream;
  std::vector<int> from(kThreads), expected(kThreads);
  std::iota(from.begin(), from.end(), 0);
  for (int t = 0; t < kThreads; ++t) {
    const int warp = t / 32 * 32, lane = t % 32;
    expected[static_cast<size_t>(t)] =
        warp + 31 - lane + 1000 * (warp + 31 - (lane ^ 1)) + 1000000 * (warp + 31 - 5);
  }
  for (uint64_t order = 0; order < kOrders; ++order) {
    simt::set_order(order);
    const Numbers<int> numbers(stream, from);
    EXPECT_CUDA(simt::launch(turn_warps, {.block = kThreads, .shared_bytes = sizeof(Sums)}, stream,
                             numbers.data()));
    EXPECT_EQ(numbers.read(), expected) << "order " << order;
  }
}

// Every block leaves a number of its own; the last one to arrive adds all of them up.
__global__ void add_blocks(unsigned* counter, int* parts, int* sums) {
  const auto t = threadIdx.x;
  parts[blockIdx.x * 32 + t] = static_cast<int>(blockIdx.x * 100 + t);
  if (!simt::arrive_last(counter, gridDim.x)) return;
  int sum = 0;
  for (unsigned b = 0; b < gridDim.x; ++b) sum += parts[b * 32 + t];
  sums[t] += sum;
}

TEST(Collectives, TheLastBlockSeesTheOthers) {
  const Stream stream;
  constexpr unsigned kBlocks = 7;
  const Numbers<unsigned> counter(stream, std::vector<unsigned>{0});
  const Numbers<int> parts(stream, 32 * kBlocks), sums(stream, std::vector<int>(32));
  std::vector<int> expected(32);
  for (uint64_t order = 0; order < kOrders; ++order) {
    simt::set_order(order);
    // Twice, as the counter is to start again by itself.
    for (int i = 0; i < 2; ++i) {
      EXPECT_CUDA(simt::launch(add_blocks, {.grid = kBlocks}, stream, counter.data(), parts.data(),
                               sums.data()));
    }
    for (int t = 0; t < 32; ++t) expected[static_cast<size_t>(t)] += 2 * (2100 + 7 * t);
    EXPECT_EQ(sums.read(), expected) << "order " << order;
    EXPECT_EQ(counter.read(), std::vector<unsigned>{0});
  }
}

__global__ void count_threads(unsigned* counts) {
  simt::atomic_add(&counts[threadIdx.x % 4], 1);
  simt::atomic_add(&counts[4], blockIdx.x);
}

TEST(Collectives, BlocksAddAtomically) {
  const Stream stream;
  const Numbers<unsigned> counts(stream, std::vector<unsigned>(5));
  EXPECT_CUDA(simt::launch(count_threads, {.grid = 5, .block = 64}, stream, counts.data()));
  EXPECT_EQ(counts.read(), (std::vector<unsigned>{80, 80, 80, 80, 640}));
}

__global__ void name_threads(unsigned* to) {
  const auto block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const auto thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  to[block * 128 + thread] = block * 1000 + threadIdx.x + 50 * threadIdx.y + 100 * threadIdx.z;
}

TEST(Collectives, EveryThreadHasItsPlace) {
  const Stream stream;
  std::vector<unsigned> expected;
  for (unsigned block = 0; block < 24; ++block) {
    for (unsigned t = 0; t < 128; ++t) {
      expected.push_back(block * 1000 + t % 32 + 50 * (t / 32 % 2) + 100 * (t / 64));
    }
  }
  const Numbers<unsigned> to(stream, expected.size());
  for (uint64_t order = 0; order < kOrders; ++order) {
    simt::set_order(order);
    to.clear();
    EXPECT_CUDA(
        simt::launch(name_threads, {.grid = {2, 3, 4}, .block = {32, 2, 2}}, stream, to.data()));
    EXPECT_EQ(to.read(), expected);
  }
}

constexpr int kStages = 3, kTiles = 9;

struct Pipeline {
  simt::Array<simt::Array<uint4, 32>, kStages> tiles;
};

// A ring of tiles that are brought while others are added up, as products do it.
__global__ void add_tiles(const uint4* from, unsigned* to) {
  auto& s = simt::shared<Pipeline>();
  const int t = static_cast<int>(threadIdx.x);
  const auto bring = [&](int tile) {
    if (tile < kTiles) simt::copy_async16(&s.tiles[tile % kStages][t], from + tile * 32 + t);
    simt::copy_commit();
  };
  for (int tile = 0; tile < kStages - 1; ++tile) bring(tile);
  unsigned sum = 0;
  for (int tile = 0; tile < kTiles; ++tile) {
    simt::copy_wait<kStages - 2>();
    __syncthreads();
    const uint4 v = s.tiles[tile % kStages][31 - t];
    sum = sum * 3 + v.x + v.w;
    bring(tile + kStages - 1);
  }
  simt::copy_wait<0>();
  to[t] = sum;
}

TEST(Collectives, CopiesAreBroughtWhileOthersAreUsed) {
  const Stream stream;
  std::vector<uint4> from(kTiles * 32);
  for (unsigned i = 0; i < from.size(); ++i) from[i] = {i, 0, 0, i * i};
  std::vector<unsigned> expected(32);
  for (unsigned tile = 0; tile < kTiles; ++tile) {
    for (unsigned t = 0; t < 32; ++t) {
      const unsigned i = tile * 32 + 31 - t;
      expected[t] = expected[t] * 3 + i + i * i;
    }
  }
  const Numbers<uint4> tiles(stream, from);
  const Numbers<unsigned> to(stream, 32);
  for (uint64_t order = 0; order < kOrders; ++order) {
    simt::set_order(order);
    EXPECT_CUDA(simt::launch(add_tiles, {.shared_bytes = sizeof(Pipeline)}, stream,
                             static_cast<const uint4*>(tiles.data()), to.data()));
    EXPECT_EQ(to.read(), expected) << "order " << order;
  }
}

// Before the wait: the target is NaNs.
__global__ void look_early(const uint4* from, unsigned* to) {
  auto& s = simt::shared<Pipeline>();
  const int t = static_cast<int>(threadIdx.x);
  simt::copy_async16(&s.tiles[0][t], from + t);
  simt::copy_commit();
  to[t] = s.tiles[0][t].y;
  simt::copy_wait<0>();
  to[32 + t] = s.tiles[0][t].y;
}

TEST(Collectives, CopiesAreLate) {
  const Stream stream;
  const Numbers<uint4> from(stream, std::vector<uint4>(32, uint4{1, 2, 3, 4}));
  const Numbers<unsigned> to(stream, 64);
  EXPECT_CUDA(simt::launch(look_early, {.shared_bytes = sizeof(Pipeline)}, stream,
                           static_cast<const uint4*>(from.data()), to.data()));
  std::vector<unsigned> expected(64, 0xffffffffu);
  std::fill(expected.begin() + 32, expected.end(), 2u);
  EXPECT_EQ(to.read(), expected);
}

__global__ void load_all(const unsigned* from, unsigned* to) {
  const uint4 a = simt::load16(from), b = simt::load16_cached(from + 4);
  const uint2 c = simt::load8(from + 8);
  const unsigned v[] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w, c.x, c.y, simt::load4(from + 10)};
  if (threadIdx.x < 11) to[threadIdx.x] = v[threadIdx.x];
}

TEST(Collectives, Loads) {
  const Stream stream;
  std::vector<unsigned> from(11);
  std::iota(from.begin(), from.end(), 7u);
  const Numbers<unsigned> device_from(stream, from), to(stream, 11);
  EXPECT_CUDA(simt::launch(load_all, {}, stream, static_cast<const unsigned*>(device_from.data()),
                           to.data()));
  EXPECT_EQ(to.read(), from);
}

}  // namespace aerie::collectives_test
