// What a GPU gives at most: bytes read from its memory, bfloat16 products of its tensor cores as the project's kernels
// ask for them (mma.sync), and what launches and waits take. The limits that passes are held against (docs/cuda.md).
//   aerie-device-peak [INDEX [FILE.json]]
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

namespace {

constexpr int kThreads = 512;
constexpr int kRepeats = 7;
constexpr int kProducts = 8;      // of a warp at a time, independent of one another
constexpr int kProductTurns = 4096;
constexpr int kChain = 256;       // launches one after the other

void must(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "aerie-device-peak: %s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}

__global__ void __launch_bounds__(kThreads) read_all(const uint4* from, int64_t count, uint32_t* found) {
  uint32_t bits = 0;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
#pragma unroll 8
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += stride) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from + i));
    bits |= v.x | v.y | v.z | v.w;
  }
  if (bits != 0) atomicOr(found, bits);  // never: it was cleared
}

__global__ void __launch_bounds__(kThreads) multiply(float* out) {
  float sums[kProducts][4] = {};
  const uint32_t one = 0x3f803f80u + threadIdx.x % 2;
  const uint32_t a[4] = {one, one, one, one}, b[2] = {one, one};
  for (int turn = 0; turn < kProductTurns; ++turn) {
#pragma unroll
    for (int i = 0; i < kProducts; ++i) {
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
          : "+f"(sums[i][0]), "+f"(sums[i][1]), "+f"(sums[i][2]), "+f"(sums[i][3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
  }
  float all = 0.0f;
  for (int i = 0; i < kProducts; ++i) all += sums[i][0] + sums[i][1] + sums[i][2] + sums[i][3];
  if (all < 0.0f) *out = all;  // never
}

__global__ void nothing() {}

// Of what is put on the stream, the least of several times.
double seconds(cudaStream_t stream, const std::function<void()>& work) {
  cudaEvent_t begin, end;
  must(cudaEventCreate(&begin), "a clock");
  must(cudaEventCreate(&end), "a clock");
  double best = 1e9;
  for (int i = 0; i < kRepeats; ++i) {
    must(cudaEventRecord(begin, stream), "a clock");
    work();
    must(cudaEventRecord(end, stream), "a clock");
    must(cudaEventSynchronize(end), "a measurement");
    must(cudaGetLastError(), "a measurement");
    float ms = 0.0f;
    must(cudaEventElapsedTime(&ms, begin, end), "a clock");
    best = std::min(best, ms * 1e-3);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return best;
}

cudaGraphExec_t graph_of(cudaStream_t stream, int launches) {
  must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "a graph");
  for (int i = 0; i < launches; ++i) nothing<<<1, 32, 0, stream>>>();
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  must(cudaStreamEndCapture(stream, &graph), "a graph");
  must(cudaGraphInstantiate(&exec, graph, 0), "a graph");
  cudaGraphDestroy(graph);
  return exec;
}

// Seconds of the host for a graph of one launch and the wait for it.
double round_trip(cudaStream_t stream, cudaGraphExec_t graph) {
  constexpr int kTurns = 200;
  double best = 1e9;
  for (int i = 0; i < kRepeats; ++i) {
    timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int turn = 0; turn < kTurns; ++turn) {
      must(cudaGraphLaunch(graph, stream), "a graph");
      must(cudaStreamSynchronize(stream), "a graph");
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    const double took = static_cast<double>(end.tv_sec - begin.tv_sec) + static_cast<double>(end.tv_nsec - begin.tv_nsec) * 1e-9;
    best = std::min(best, took / kTurns);
  }
  return best;
}

struct Peak {
  double read = 0, copy = 0, products = 0, launch = 0, round_trip = 0;
};

Peak measure(const cudaDeviceProp& device) {
  Peak peak;
  cudaStream_t stream;
  must(cudaStreamCreate(&stream), "a stream");
  size_t free = 0, total = 0;
  must(cudaMemGetInfo(&free, &total), "asking for its memory");
  const size_t bytes = std::min<size_t>(free / 3, size_t{4} << 30) / 4096 * 4096;
  void *from = nullptr, *to = nullptr;
  uint32_t* found = nullptr;
  must(cudaMalloc(&from, bytes), "memory");
  must(cudaMalloc(&to, bytes), "memory");
  must(cudaMalloc(&found, sizeof *found), "memory");
  must(cudaMemsetAsync(from, 0, bytes, stream), "clearing memory");
  const int blocks = device.multiProcessorCount * (device.maxThreadsPerMultiProcessor / kThreads);
  const auto size = static_cast<double>(bytes);
  peak.read = size / seconds(stream, [&] {
    read_all<<<blocks, kThreads, 0, stream>>>(static_cast<const uint4*>(from), static_cast<int64_t>(bytes / 16), found);
  });
  peak.copy = 2 * size / seconds(stream, [&] { cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream); });
  const double operations = 2.0 * 16 * 8 * 16 * kProducts * kProductTurns * (kThreads / 32) * blocks;
  peak.products = operations / seconds(stream, [&] {
    multiply<<<blocks, kThreads, 0, stream>>>(reinterpret_cast<float*>(found));
  });
  cudaGraphExec_t one = graph_of(stream, 1), many = graph_of(stream, kChain);
  peak.launch = seconds(stream, [&] { cudaGraphLaunch(many, stream); }) / kChain;
  peak.round_trip = round_trip(stream, one);
  return peak;
}

}  // namespace

int main(int count, char** arguments) {
  const int index = count > 1 ? std::atoi(arguments[1]) : 0;
  cudaDeviceProp device;
  must(cudaSetDevice(index), "opening the GPU");
  must(cudaGetDeviceProperties(&device, index), "opening the GPU");
  const Peak peak = measure(device);
  std::printf("%s, sm_%d%d, %d processors, %.1f GiB\n", device.name, device.major, device.minor,
              device.multiProcessorCount, static_cast<double>(device.totalGlobalMem) / (1 << 30));
  std::printf("reading        %8.1f GB/s\ncopying        %8.1f GB/s, read and written\n", peak.read * 1e-9,
              peak.copy * 1e-9);
  std::printf("bf16 products  %8.1f TFLOP/s (mma.sync)\n", peak.products * 1e-12);
  std::printf("a launch       %8.2f us, in a graph\na round trip   %8.2f us, a graph and the wait for it\n",
              peak.launch * 1e6, peak.round_trip * 1e6);
  if (count <= 2) return 0;
  FILE* file = std::fopen(arguments[2], "w");
  if (file == nullptr) {
    std::fprintf(stderr, "aerie-device-peak: cannot write %s\n", arguments[2]);
    return 1;
  }
  std::fprintf(file,
               "{\"device\": \"%s\", \"compute_capability\": \"%d.%d\", \"read_bytes_per_second\": %.6g, "
               "\"copy_bytes_per_second\": %.6g, \"bf16_flops\": %.6g, \"launch_seconds\": %.4g, "
               "\"round_trip_seconds\": %.4g}\n",
               device.name, device.major, device.minor, peak.read, peak.copy, peak.products, peak.launch,
               peak.round_trip);
  return std::fclose(file) == 0 ? 0 : 1;
}
