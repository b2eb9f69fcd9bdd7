// The emulated runtime: as late as it may be, exact about what it was asked, and a device that runs
// out of memory or is lost.
#include <numeric>
#include <thread>

#include "tests/kernels/simt/simt_testing.h"

namespace aerie::runtime_test {

using simt_testing::Numbers;
using simt_testing::Stream;

__global__ void scale(const int* place, const float* from, float* to) {
  to[threadIdx.x] = 2 * from[*place * 32 + static_cast<int>(threadIdx.x)];
}

__global__ void increment(int* numbers) {
  ++numbers[threadIdx.x];
}

bool all_garbage(const std::vector<float>& numbers) {
  return std::all_of(numbers.begin(), numbers.end(),
                     [](float f) { return simt::bits_of(f) == 0xffffffffu; });
}

TEST(EmulatedRuntime, NothingRunsBeforeItIsWaitedFor) {
  const Stream stream;
  const Numbers<float> numbers(stream, 32);
  std::vector<float> host(32, 1.0f), back(32, 5.0f);
  EXPECT_CUDA(cudaMemcpyAsync(numbers.data(), host.data(), 128, cudaMemcpyHostToDevice, stream));
  EXPECT_CUDA(cudaMemcpyAsync(back.data(), numbers.data(), 128, cudaMemcpyDeviceToHost, stream));
  EXPECT_TRUE(all_garbage(back));
  host.assign(32, 3.0f);  // too early: the copy has not read it yet
  stream.wait();
  EXPECT_EQ(back, host);
}

TEST(EmulatedRuntime, NewMemoryIsGarbage) {
  const Stream stream;
  EXPECT_TRUE(all_garbage(Numbers<float>(stream, 100).read()));
  float* pinned = nullptr;
  EXPECT_CUDA(cudaMallocHost(&pinned, 400));
  EXPECT_TRUE(all_garbage({pinned, pinned + 100}));
  EXPECT_CUDA(cudaFreeHost(pinned));
  EXPECT_EQ(cudaFreeHost(pinned), cudaErrorInvalidValue);
}

TEST(EmulatedRuntime, GraphsReplay) {
  const Stream stream;
  std::vector<float> from(64), back(32);
  std::iota(from.begin(), from.end(), 0.0f);
  const Numbers<float> numbers(stream, from), to(stream, 32);
  const Numbers<int> device_place(stream, 1);
  int place = 0;
  EXPECT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  EXPECT_CUDA(cudaMemcpyAsync(device_place.data(), &place, 4, cudaMemcpyHostToDevice, stream));
  EXPECT_CUDA(simt::launch(scale, {}, stream, device_place.data(), numbers.data(), to.data()));
  EXPECT_CUDA(cudaMemcpyAsync(back.data(), to.data(), 128, cudaMemcpyDeviceToHost, stream));
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
  float* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 4), cudaErrorStreamCaptureUnsupported);
  cudaGraph_t graph = nullptr;
  EXPECT_CUDA(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t exec = nullptr;
  EXPECT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  EXPECT_CUDA(cudaGraphDestroy(graph));
  const simt::Counts before = simt::counts();
  for (place = 0; place < 2; ++place) {
    EXPECT_CUDA(cudaGraphLaunch(exec, stream));
    EXPECT_TRUE(all_garbage(back));
    stream.wait();
    for (int i = 0; i < 32; ++i) {
      EXPECT_EQ(back[static_cast<size_t>(i)], static_cast<float>(2 * (place * 32 + i)));
    }
  }
  const simt::Counts after = simt::counts();
  EXPECT_EQ(after.graph_launches - before.graph_launches, 2);
  EXPECT_EQ(after.launches - before.launches, 2);
  EXPECT_EQ(after.copies - before.copies, 4);
  EXPECT_EQ(after.waits - before.waits, 2);
  EXPECT_CUDA(cudaGraphExecDestroy(exec));
}

TEST(EmulatedRuntime, EventsAreWaitedForUpToWhereTheyStand) {
  const Stream stream;
  const Numbers<int> numbers(stream, std::vector<int>(32));
  std::vector<int> first(32), second(32);
  cudaEvent_t begin = nullptr, end = nullptr;
  EXPECT_CUDA(cudaEventCreate(&begin));
  EXPECT_CUDA(cudaEventCreate(&end));
  EXPECT_CUDA(simt::launch(increment, {}, stream, numbers.data()));
  EXPECT_CUDA(cudaMemcpyAsync(first.data(), numbers.data(), 128, cudaMemcpyDeviceToHost, stream));
  EXPECT_CUDA(cudaEventRecord(begin, stream));
  EXPECT_CUDA(simt::launch(increment, {}, stream, numbers.data()));
  EXPECT_CUDA(cudaMemcpyAsync(second.data(), numbers.data(), 128, cudaMemcpyDeviceToHost, stream));
  EXPECT_CUDA(cudaEventRecord(end, stream));
  EXPECT_CUDA(cudaEventSynchronize(begin));
  EXPECT_EQ(first, std::vector<int>(32, 1));
  EXPECT_EQ(second, std::vector<int>(32, -1));
  float milliseconds = -1;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, begin, end), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_CUDA(cudaEventSynchronize(end));
  EXPECT_EQ(second, std::vector<int>(32, 2));
  EXPECT_CUDA(cudaEventElapsedTime(&milliseconds, begin, end));
  EXPECT_GE(milliseconds, 0.0f);
  EXPECT_CUDA(cudaEventDestroy(begin));
  EXPECT_CUDA(cudaEventDestroy(end));
}

TEST(EmulatedRuntime, MemoryRunsOut) {
  size_t free = 0, total = 0, left = 0;
  EXPECT_CUDA(cudaMemGetInfo(&free, &total));
  simt::set_device_memory(total - free + 3000);
  char *one = nullptr, *two = nullptr;
  EXPECT_CUDA(cudaMalloc(&one, 2000));
  EXPECT_EQ(cudaMalloc(&two, 2000), cudaErrorMemoryAllocation);
  EXPECT_EQ(two, nullptr);
  EXPECT_STREQ(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
  EXPECT_CUDA(cudaMemGetInfo(&left, &free));
  EXPECT_EQ(left, 1000u);
  EXPECT_CUDA(cudaFree(one));
  EXPECT_EQ(cudaFree(one), cudaErrorInvalidValue);
  EXPECT_CUDA(cudaMalloc(&two, 2000));
  EXPECT_CUDA(cudaFree(two));
  simt::set_device_memory(total);
}

inline void nothing() {}

TEST(EmulatedRuntime, SharedMemoryOfABlockIsLimited) {
  const Stream stream;
  const simt::Shape shape = {1, 32, size_t{100} << 10};
  EXPECT_CUDA(simt::launch(nothing, shape, stream));
  simt::set_shared_memory(size_t{99} << 10);
  int bytes = 0;
  EXPECT_CUDA(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
  EXPECT_EQ(bytes, 99 << 10);
  EXPECT_EQ(simt::launch(nothing, shape, stream), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
  simt::set_shared_memory(size_t{227} << 10);
  EXPECT_CUDA(cudaStreamSynchronize(stream));
}

TEST(EmulatedRuntime, WrongPlacesAreErrors) {
  const Stream stream;
  const Numbers<char> numbers(stream, 100);
  char host[200] = {};
  char* device = numbers.data();
  EXPECT_EQ(cudaMemcpyAsync(device, host, 101, cudaMemcpyHostToDevice, stream),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(device, host, 10, cudaMemcpyDeviceToHost, stream),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(host, host, 10, cudaMemcpyHostToDevice, stream), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(host, device, 10, cudaMemcpyDeviceToDevice, stream),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(host, 0, 10, stream), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(device + 50, 0, 51, stream), cudaErrorInvalidValue);
  EXPECT_EQ(simt::launch(increment, {.block = 2048}, stream, nullptr),
            cudaErrorInvalidConfiguration);
  EXPECT_EQ(simt::launch(increment, {.grid = 0}, stream, nullptr), cudaErrorInvalidConfiguration);
  EXPECT_EQ(simt::launch(increment, {.shared_bytes = 300 << 10}, stream, nullptr),
            cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaSetDevice(1), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
}

TEST(EmulatedRuntime, ADeviceIsLostInTheMiddle) {
  const Stream stream;
  const Numbers<int> numbers(stream, std::vector<int>(32));
  std::vector<int> back(32, 7);
  size_t free = 0, total = 0;
  EXPECT_CUDA(cudaMemGetInfo(&free, &total));
  for (const long operations : {0, 1, 3}) {
    numbers.clear();
    void* held = nullptr;
    EXPECT_CUDA(cudaMalloc(&held, 1000));
    for (int i = 0; i < 3; ++i) {
      EXPECT_CUDA(simt::launch(increment, {}, stream, numbers.data()));
    }
    EXPECT_CUDA(cudaMemcpyAsync(back.data(), numbers.data(), 128, cudaMemcpyDeviceToHost, stream));
    simt::lose_device(operations);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
    EXPECT_EQ(back, std::vector<int>(32, -1));  // never came
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, 10), cudaErrorLaunchFailure);
    EXPECT_EQ(cudaFree(held), cudaErrorLaunchFailure);
    EXPECT_EQ(simt::launch(increment, {}, stream, numbers.data()), cudaErrorLaunchFailure);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
    simt::revive_device();
    size_t free_again = 0;
    EXPECT_CUDA(cudaMemGetInfo(&free_again, &total));
    EXPECT_EQ(free_again, free);
    EXPECT_EQ(numbers.read(), std::vector<int>(32, static_cast<int>(operations)));
  }
}

__global__ void dependent_sum(const int* constants, const int* from, int* to) {
  const auto t = threadIdx.x;
  const int constant = constants[t];
  simt::wait_for_previous();
  simt::release_dependents();
  to[blockIdx.x * 32 + t] = from[t] + constant;
}

// A chain of launches that overlap gives what they give one after another.
TEST(EmulatedRuntime, DependentLaunchesWait) {
  const Stream stream;
  std::vector<int> constants(32);
  std::iota(constants.begin(), constants.end(), 1);
  const Numbers<int> device_constants(stream, constants), a(stream, std::vector<int>(96)),
      b(stream, std::vector<int>(96));
  for (int i = 0; i < 4; ++i) {
    EXPECT_CUDA(simt::launch(dependent_sum, {.grid = 3, .dependent = true}, stream,
                             device_constants.data(), i % 2 == 0 ? a.data() : b.data(),
                             i % 2 == 0 ? b.data() : a.data()));
  }
  std::vector<int> expected;
  for (int i = 0; i < 96; ++i) expected.push_back(4 * (i % 32 + 1));
  EXPECT_EQ(a.read(), expected);
}

// Threads with streams of their own, at once.
TEST(EmulatedRuntime, ServesSeveralThreads) {
  std::vector<std::thread> threads;
  std::vector<std::vector<int>> results(4);
  for (size_t i = 0; i < results.size(); ++i) {
    threads.emplace_back([&results, i] {
      const Stream stream;
      const Numbers<int> numbers(stream, std::vector<int>(64, static_cast<int>(i)));
      for (int n = 0; n < 20; ++n) {
        EXPECT_CUDA(simt::launch(increment, {.block = 64}, stream, numbers.data()));
        if (n % 3 == 0) stream.wait();
      }
      results[i] = numbers.read();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i], std::vector<int>(64, static_cast<int>(i) + 20));
  }
}

TEST(EmulatedRuntime, TellsWhatItIs) {
  int count = 0, value = 0;
  EXPECT_CUDA(cudaGetDeviceCount(&count));
  EXPECT_EQ(count, 1);
  EXPECT_CUDA(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 0));
  EXPECT_EQ(value, 9);
  cudaDeviceProp properties;
  EXPECT_CUDA(cudaGetDeviceProperties(&properties, 0));
  EXPECT_STREQ(properties.name, "emulated sm_90");
  EXPECT_EQ(cudaGetDeviceProperties(&properties, 1), cudaErrorInvalidDevice);
}

}  // namespace aerie::runtime_test
