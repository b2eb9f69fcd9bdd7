// What the emulator's tests share: a stream, memory of the device, kernels played in several
// orders.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/simt/emulation.h"
#include "kernels/simt/simt.h"
#include "kernels/simt/simt_runtime.h"

namespace aerie::simt_testing {

// 0 ascends, 1 descends, the others are shuffled.
constexpr uint64_t kOrders = 6;

#define EXPECT_CUDA(call) EXPECT_EQ(call, cudaSuccess)

// A stream of a test; the order of threads is ascending again behind it.
class Stream {
 public:
  Stream() { EXPECT_CUDA(cudaStreamCreate(&stream_)); }
  ~Stream() {
    EXPECT_CUDA(cudaStreamDestroy(stream_));
    simt::set_order(0);
    simt::set_tensor_core(simt::kHopper);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  operator cudaStream_t() const { return stream_; }
  void wait() const { EXPECT_CUDA(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_ = nullptr;
};

// Numbers on the device.
template <typename T>
class Numbers {
 public:
  Numbers(const Stream& stream, const std::vector<T>& from) : stream_(stream), count_(from.size()) {
    EXPECT_CUDA(cudaMalloc(&memory_, bytes()));
    EXPECT_CUDA(cudaMemcpyAsync(memory_, from.data(), bytes(), cudaMemcpyHostToDevice, stream_));
    stream_.wait();
  }
  Numbers(const Stream& stream, size_t count) : stream_(stream), count_(count) {
    EXPECT_CUDA(cudaMalloc(&memory_, bytes()));
  }
  ~Numbers() { EXPECT_CUDA(cudaFree(memory_)); }
  Numbers(const Numbers&) = delete;
  Numbers& operator=(const Numbers&) = delete;

  T* data() const { return memory_; }
  size_t bytes() const { return count_ * sizeof(T); }
  void clear() const {
    EXPECT_CUDA(cudaMemsetAsync(memory_, 0, bytes(), stream_));
    stream_.wait();
  }
  // What is there after all that the stream was given.
  std::vector<T> read() const {
    std::vector<T> to(count_);
    EXPECT_CUDA(cudaMemcpyAsync(to.data(), memory_, bytes(), cudaMemcpyDeviceToHost, stream_));
    stream_.wait();
    return to;
  }

 private:
  const Stream& stream_;
  size_t count_;
  T* memory_ = nullptr;
};

}  // namespace aerie::simt_testing
