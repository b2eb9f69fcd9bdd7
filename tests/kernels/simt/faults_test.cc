// Programs that are wrong: each is found. Some end the program with a message; races give wrong
// numbers in some order of the threads, and ThreadSanitizer names them.
#include <cstdlib>
#include <cstring>

#include "kernels/simt/sanitizers.h"
#include "tests/kernels/simt/simt_testing.h"

namespace aerie::faults_test {

using simt_testing::Numbers;
using simt_testing::Stream;

constexpr int kThreads = 64;

struct Shared {
  simt::Array<int, kThreads> v;
};

// ---------------------------------------------------------------- what ends the program at once

class EmulatorFaults : public testing::Test {
 protected:
  EmulatorFaults() {
    // ThreadSanitizer takes no note of what a fork of several threads does, and emulated ones
    // count.
    if (SIMT_TSAN != 0) GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
};

using Kernel = void (*)(int*);

void run(Kernel kernel, unsigned blocks = 1, size_t shared_bytes = sizeof(Shared)) {
  const Stream stream;
  const Numbers<int> numbers(stream, std::vector<int>(kThreads));
  EXPECT_CUDA(simt::launch(kernel,
                           {.grid = blocks, .block = kThreads, .shared_bytes = shared_bytes},
                           stream, numbers.data()));
  stream.wait();
}

__global__ void meets_differently(int* out) {
  if (threadIdx.x % 32 < 16) {
    out[threadIdx.x] = simt::shuffle_xor(1, 1);
  } else {
    __syncwarp();
  }
}

__global__ void leaves_its_warp(int* out) {
  if (threadIdx.x == 40) return;
  out[threadIdx.x] = simt::shuffle_xor(1, 1);
}

__global__ void leaves_its_block(int* out) {
  if (threadIdx.x == 0) return;
  __syncthreads();
  out[threadIdx.x] = 1;
}

__global__ void waits_for_ever(int* out) {
  if (threadIdx.x < 33) {
    __syncthreads();
  } else {
    out[threadIdx.x] = simt::shuffle_xor(1, 1);
  }
}

TEST_F(EmulatorFaults, NotAllMeet) {
  EXPECT_DEATH(run(meets_differently), "lanes of a warp meet in different operations");
  EXPECT_DEATH(run(leaves_its_warp),
               "wait for one another for ever(.|\n)*from 40 on have returned(.|\n)*at a shuffle");
  EXPECT_DEATH(run(leaves_its_block), "__syncthreads after threads have returned");
  EXPECT_DEATH(run(waits_for_ever), "threads wait for one another for ever");
}

__global__ void goes_beyond(int* out) {
  auto& s = simt::shared<Shared>();
  const int t = static_cast<int>(threadIdx.x);
  s.v[t + 1] = 1;
  out[t] = 1;
}

__global__ void needs_more(int* out) {
  out[threadIdx.x] = simt::shared<Shared>().v[0];
}

__global__ void reads_askew(int* out) {
  out[0] = static_cast<int>(simt::load8(out + 1).x);
}

__global__ void copies_askew(int* out) {
  simt::copy_async16(&simt::shared<Shared>().v[1], out);
}

__global__ void copies_out(int* out) {
  simt::copy_async16(out, out);
}

__global__ void forgets_to_wait(int* out) {
  simt::copy_async16(&simt::shared<Shared>().v[0], out);
  simt::copy_commit();
}

TEST_F(EmulatorFaults, WrongPlaces) {
  EXPECT_DEATH(run(goes_beyond), "index is out of its array; block \\(0,0,0\\), thread 63");
  EXPECT_DEATH(run(needs_more, 1, 16), "less shared memory than is used");
  EXPECT_DEATH(run(reads_askew), "a read is not aligned");
  EXPECT_DEATH(run(copies_askew), "copy_async16 is not aligned");
  EXPECT_DEATH(run(copies_out), "outside of the shared memory");
  EXPECT_DEATH(run(forgets_to_wait), "copies that it did not wait for");
}

#if SIMT_ASAN
__global__ void reads_behind_shared(int* out) {
  const auto* numbers = reinterpret_cast<const int*>(&simt::shared<Shared>());
  out[threadIdx.x] = numbers[threadIdx.x + 1];
}

TEST_F(EmulatorFaults, BehindSharedMemory) {
  EXPECT_DEATH(run(reads_behind_shared), "AddressSanitizer: use-after-poison");
}
#endif

__global__ void writes_behind(int* out) {
  if (threadIdx.x == 0) out[kThreads] = 1;
}

TEST_F(EmulatorFaults, BehindAnAllocation) {
  EXPECT_DEATH(run(writes_behind), "behind the device's allocation of 256 bytes|AddressSanitizer");
}

void touch_device() {
  const Stream stream;
  const Numbers<int> numbers(stream, std::vector<int>(1));
  std::fprintf(stderr, "%d", *numbers.data());
}

TEST_F(EmulatorFaults, DeviceMemoryOnTheHost) {
  EXPECT_DEATH(touch_device(), "");
}

TEST_F(EmulatorFaults, BlocksThatAreNoWholeWarps) {
  const Stream stream;
  EXPECT_DEATH(simt::launch(needs_more, {.block = 33}, stream, nullptr), "no multiple of 32");
}

// ------------------------------------------------------------------------- what gives wrong
// numbers

__global__ void lacks_a_barrier(int* out) {
  auto& s = simt::shared<Shared>();
  const int t = static_cast<int>(threadIdx.x);
  s.v[t] = t;
  out[t] = s.v[kThreads - 1 - t];
}

// The next round's writes may overtake this round's reads.
__global__ void writes_after_reads(int* out) {
  auto& s = simt::shared<Shared>();
  const int t = static_cast<int>(threadIdx.x);
  for (int i = 0; i < 4; ++i) {
    s.v[t] = t;
    __syncthreads();
    out[t] = s.v[kThreads - 1 - t];
    s.v[t] = 100;
  }
}

// A shuffle orders no memory, though lanes have to come to it: ThreadSanitizer alone sees that.
__global__ void trusts_a_shuffle(int* out) {
  auto& s = simt::shared<Shared>();
  const int t = static_cast<int>(threadIdx.x);
  s.v[t] = simt::shuffle_xor(t, 1);
  simt::shuffle(t, 0);
  out[t] = kThreads - 1 - s.v[t ^ 1];
}

__global__ void races_between_blocks(int* out) {
  out[threadIdx.x] = kThreads - 1 - static_cast<int>(threadIdx.x) + static_cast<int>(blockIdx.x);
}

__global__ void waits_too_late(int* out) {
  auto& s = simt::shared<Shared>();
  const int t = static_cast<int>(threadIdx.x);
  if (t < kThreads / 4) simt::copy_async16(&s.v[4 * t], out + 4 * t);
  simt::copy_commit();
  __syncthreads();
  const int zero = s.v[kThreads - 1 - t];
  simt::copy_wait<0>();
  __syncthreads();
  out[t] = kThreads - 1 - t + zero;
}

// Whether all came out as those mean it, in the given order.
bool is_right(Kernel kernel, unsigned blocks, uint64_t order) {
  const Stream stream;
  simt::set_order(order);
  const Numbers<int> numbers(stream, std::vector<int>(kThreads));
  EXPECT_CUDA(simt::launch(kernel,
                           {.grid = blocks, .block = kThreads, .shared_bytes = sizeof(Shared)},
                           stream, numbers.data()));
  const auto got = numbers.read();
  for (int t = 0; t < kThreads; ++t) {
    if (got[static_cast<size_t>(t)] != kThreads - 1 - t) return false;
  }
  return true;
}

void run_orders(Kernel kernel, unsigned blocks, bool& wrong) {
  for (uint64_t order = 0; order < simt_testing::kOrders; ++order) {
    if (!is_right(kernel, blocks, order)) wrong = true;
  }
}

// In the orders' results, or by ThreadSanitizer.
void expect_race(Kernel kernel, unsigned blocks = 1) {
#if SIMT_TSAN
  EXPECT_EXIT(
      {
        bool wrong = false;
        run_orders(kernel, blocks, wrong);
        std::exit(0);
      },
      testing::ExitedWithCode(66), "data race");
#else
  bool wrong = false;
  run_orders(kernel, blocks, wrong);
  EXPECT_TRUE(wrong);
#endif
}

TEST_F(EmulatorFaults, RacesWithinABlock) {
  expect_race(lacks_a_barrier);
  expect_race(writes_after_reads);
  expect_race(waits_too_late);
#if SIMT_TSAN
  expect_race(trusts_a_shuffle);
#endif
}

TEST_F(EmulatorFaults, RacesBetweenBlocks) {
  expect_race(races_between_blocks, 2);
}

__global__ void increment(int* numbers) {
  ++numbers[threadIdx.x];
}

TEST_F(EmulatorFaults, DoesNotWaitForThePreviousLaunch) {
  const Stream stream;
  const Numbers<int> numbers(stream, std::vector<int>(32));
  const auto run_alone = [&] {
    EXPECT_CUDA(simt::launch(increment, {.dependent = true}, stream, numbers.data()));
    stream.wait();
  };
  EXPECT_DEATH(run_alone(), "returns without wait_for_previous");
}

__global__ void reads_before_the_previous(const int* from, int* to) {
  const int early = from[threadIdx.x];
  simt::wait_for_previous();
  to[threadIdx.x] = early;
}

bool previous_is_seen() {
  const Stream stream;
  const Numbers<int> from(stream, std::vector<int>(32)), to(stream, std::vector<int>(32));
  EXPECT_CUDA(simt::launch(increment, {}, stream, from.data()));
  EXPECT_CUDA(simt::launch(reads_before_the_previous, {.dependent = true}, stream,
                           static_cast<const int*>(from.data()), to.data()));
  return to.read() == std::vector<int>(32, 1);
}

TEST_F(EmulatorFaults, ReadsBeforeThePreviousLaunch) {
#if SIMT_TSAN
  EXPECT_EXIT(
      {
        previous_is_seen();
        std::exit(0);
      },
      testing::ExitedWithCode(66), "data race");
#else
  EXPECT_FALSE(previous_is_seen());
#endif
}

}  // namespace aerie::faults_test
