// What simt.h promises, on any processor: the threads of a block are fibers of one thread, blocks
// run one after another, in orders that tests choose (emulation.h). Included by simt.h alone.
//
// A program's mistakes end it with a message: a collective that not all lanes or threads take part
// in, an index out of an Array, a misaligned access, copies that nobody waited for. Shared memory
// and the targets of copies under way are NaNs. Under ThreadSanitizer threads and blocks are
// threads to it, ordered by __syncthreads() and __syncwarp() alone; under AddressSanitizer what is
// beyond the shared memory or a device's allocations is poisoned.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>

#include "kernels/simt/cuda_words.h"
#include "kernels/simt/numbers.h"

#define __global__ inline
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define SIMT_DEV inline
#define SIMT_BOTH inline
#define SIMT_UNROLL
#define SIMT_UNROLL_BY(n)
#define threadIdx (::simt::here.thread)
#define blockIdx (::simt::here.block)
#define blockDim (::simt::here.block_size)
#define gridDim (::simt::here.grid)

namespace simt {

// The thread that runs now.
struct Here {
  uint3 thread{}, block{};
  dim3 block_size, grid;
  unsigned char* shared = nullptr;
  size_t shared_bytes = 0;
};
extern Here here;

// Ends the program with `what` and where its threads are.
[[noreturn]] void fail(const char* what);

void sync_threads();
void sync_warp();
uint32_t shuffle_bits(uint32_t value, int lane);
void mma(bool binary16, float* d, const uint32_t* a, const uint32_t* b);
bool arrive_last(unsigned* counter, unsigned count);
void wait_for_previous();
inline void release_dependents() {}

template <typename T, int N>
struct Array {
  T v[N];
  T& operator[](int i) { return v[checked(i)]; }
  const T& operator[](int i) const { return v[checked(i)]; }

 private:
  static int checked(int i) {
    if (i < 0 || i >= N) fail("an index is out of its array");
    return i;
  }
};

template <typename T>
T& shared() {
  if (sizeof(T) > here.shared_bytes) fail("the launch gives less shared memory than is used");
  return *reinterpret_cast<T*>(here.shared);
}

// Copies of the calling thread: note_copy() of one that starts; next_copy() of the next one that is
// due if only the last `left` groups may be under way.
struct Copy {
  void* to;
  const void* from;
};
void note_copy(const Copy& copy);
void copy_commit();
bool next_copy(int left, Copy& copy);

inline void copy_async16(void* to, const void* from) {
  note_copy({to, from});
  std::memset(to, 0xff, 16);
}
inline void copy_async16_if(bool is_asked, void* to, const void* from) {
  if (is_asked) copy_async16(to, from);
}
template <int kLeft>
void copy_wait() {
  for (Copy copy; next_copy(kLeft, copy);) std::memcpy(copy.to, copy.from, 16);
}

inline void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  mma(false, d, a, b);
}
inline void mma_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  mma(true, d, a, b);
}

// Groups of warps and their barriers: emulated_group.cc.
inline constexpr bool kHasGroups = true;

struct alignas(8) Barrier {
  uint32_t mark, left, count, phase;
  int64_t bytes;  // of copies that the phase waits for
};
void barrier_begin(Barrier& barrier, int count);
inline void barriers_begun() {}
void barrier_arrive(Barrier& barrier);
void barrier_expect(Barrier& barrier, int bytes);
void barrier_wait(Barrier& barrier, int parity);
void copy_block(void* to, const void* from, int bytes, Barrier& barrier);

uint64_t operand_of(const void* rows);
void group_product(int tiles, float* d, const uint32_t* a, uint64_t operand, bool adds);
template <int kTiles>
void group_mma_bf16(float (&d)[kTiles][4], const uint32_t (&a)[4], uint64_t operand, bool adds) {
  group_product(kTiles, d[0], a, operand, adds);
}
void group_fence();
void group_commit();
void group_wait_for(int left);
template <int kLeft, int kTiles>
void group_wait(float (&)[kTiles][4]) {
  group_wait_for(kLeft);
}
template <int kLeft>
void group_wait() {
  group_wait_for(kLeft);
}
inline void group_keep(const uint32_t (&)[4]) {}

inline uint32_t and_or(uint32_t word, uint32_t mask, uint32_t bits) {
  return (word & mask) | bits;
}
inline float two_23_and_byte(uint32_t word, int i) {
  return float_of(0x4b000000u | (word >> 8 * i & 255u));
}

template <typename T>
T load(const void* from) {
  if (reinterpret_cast<uintptr_t>(from) % alignof(T) != 0) fail("a read is not aligned");
  return *static_cast<const T*>(from);
}
inline uint4 load16(const void* from) {
  return load<uint4>(from);
}
inline uint4 load16_cached(const void* from) {
  return load<uint4>(from);
}
inline uint2 load8(const void* from) {
  return load<uint2>(from);
}
inline uint32_t load4(const void* from) {
  return load<uint32_t>(from);
}

inline void fetch_line(const void*) {}

template <typename T>
T shuffle(T value, int lane) {
  static_assert(sizeof(T) == 4);
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  bits = shuffle_bits(bits, lane);
  std::memcpy(&value, &bits, 4);
  return value;
}
template <typename T>
T shuffle_xor(T value, int mask) {
  return shuffle(value, static_cast<int>(threadIdx.x % 32) ^ mask);
}
inline uint32_t warp_largest(uint32_t value) {
  for (int mask = 16; mask > 0; mask /= 2) {
    const uint32_t other = shuffle_xor(value, mask);
    value = other > value ? other : value;
  }
  return value;
}

inline unsigned atomic_add(unsigned* to, unsigned value) {
  return __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
}

inline float fma(float a, float b, float c) {
  return std::fma(a, b, c);
}
inline float divide(float a, float b) {
  return a / b;
}
inline float square_root(float x) {
  return std::sqrt(x);
}
inline float reciprocal(float x) {
  return 1.0f / x;
}

struct Shape {
  dim3 grid = 1;
  dim3 block = 32;
  size_t shared_bytes = 0;
  // May begin before the launch ahead of it in the stream has ended: see wait_for_previous().
  bool dependent = false;
};

// Puts a launch into the stream; fails as CUDA would if the device cannot have its shape.
cudaError_t enqueue(const Shape& shape, cudaStream_t stream, std::function<void()> thread);

template <typename... P>
cudaError_t launch(void (*kernel)(P...), const Shape& shape, cudaStream_t stream,
                   std::type_identity_t<P>... arguments) {
  return enqueue(shape, stream, [=] { kernel(arguments...); });
}

}  // namespace simt

inline void __syncthreads() {
  simt::sync_threads();
}
inline void __syncwarp() {
  simt::sync_warp();
}
