// What simt.h promises, on CUDA. Included by it alone.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <type_traits>
#include <utility>

#define SIMT_DEV __device__ __forceinline__
#define SIMT_BOTH __host__ __device__ __forceinline__
#define SIMT_UNROLL _Pragma("unroll")
#define SIMT_PRAGMA(text) _Pragma(#text)
#define SIMT_UNROLL_BY(n) SIMT_PRAGMA(unroll n)

namespace simt {

template <typename T, int N>
struct Array {
  T v[N];
  SIMT_DEV T& operator[](int i) { return v[i]; }
  SIMT_DEV const T& operator[](int i) const { return v[i]; }
};

template <typename T>
SIMT_DEV T& shared() {
  extern __shared__ __align__(1024) unsigned char simt_shared_memory[];
  return *reinterpret_cast<T*>(simt_shared_memory);
}

SIMT_DEV void copy_async16(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                   static_cast<unsigned>(__cvta_generic_to_shared(to))),
               "l"(from)
               : "memory");
}
// If `is_asked`, without a branch.
SIMT_DEV void copy_async16_if(bool is_asked, void* to, const void* from) {
  asm volatile(
      "{.reg .pred p; setp.ne.u32 p, %2, 0; @p cp.async.cg.shared.global [%0], [%1], 16;}" ::"r"(
          static_cast<unsigned>(__cvta_generic_to_shared(to))),
      "l"(from), "r"(static_cast<unsigned>(is_asked))
      : "memory");
}
SIMT_DEV void copy_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kLeft>
SIMT_DEV void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

SIMT_DEV void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
SIMT_DEV void mma_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

SIMT_DEV uint32_t add_bf16x2(uint32_t a, uint32_t b) {
  uint32_t sum;
#if __CUDA_ARCH__ >= 900
  asm("add.rn.bf16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
#else
  asm("fma.rn.bf16x2 %0, %1, %3, %2;" : "=r"(sum) : "r"(a), "r"(b), "r"(0x3f803f80u));
#endif
  return sum;
}
SIMT_DEV uint32_t sub_bf16x2(uint32_t a, uint32_t b) {
  uint32_t difference;
#if __CUDA_ARCH__ >= 900
  asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(difference) : "r"(a), "r"(b));
#else
  asm("fma.rn.bf16x2 %0, %1, %3, %2;" : "=r"(difference) : "r"(b), "r"(a), "r"(0xbf80bf80u));
#endif
  return difference;
}

SIMT_DEV uint32_t mul_bf16x2(uint32_t a, uint32_t b) {
  uint32_t product;
#if __CUDA_ARCH__ >= 900
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
#else
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(0x80008000u));
#endif
  return product;
}

SIMT_DEV uint32_t fma_bf16x2(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t sum;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  return sum;
}

// (word & mask) | bits in one instruction.
SIMT_DEV uint32_t and_or(uint32_t word, uint32_t mask, uint32_t bits) {
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(word), "r"(mask), "r"(bits));
  return result;
}

// 2^23 + byte i of the word.
SIMT_DEV float two_23_and_byte(uint32_t word, int i) {
  uint32_t bits;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bits) : "r"(word), "r"(0x4b000000u), "r"(0x7440u + i));
  return __uint_as_float(bits);
}

SIMT_DEV uint4 load16(const void* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}
SIMT_DEV uint4 load16_cached(const void* from) {
  return __ldg(static_cast<const uint4*>(from));
}
SIMT_DEV uint2 load8(const void* from) {
  return __ldg(static_cast<const uint2*>(from));
}
SIMT_DEV uint32_t load4(const void* from) {
  return __ldg(static_cast<const uint32_t*>(from));
}

SIMT_DEV void fetch_line(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

template <typename T>
SIMT_DEV T shuffle_xor(T value, int mask) {
  static_assert(sizeof(T) == 4);
  return __shfl_xor_sync(0xffffffffu, value, mask);
}
template <typename T>
SIMT_DEV T shuffle(T value, int lane) {
  static_assert(sizeof(T) == 4);
  return __shfl_sync(0xffffffffu, value, lane);
}

SIMT_DEV uint32_t warp_largest(uint32_t value) {
  return __reduce_max_sync(0xffffffffu, value);
}

SIMT_DEV unsigned atomic_add(unsigned* to, unsigned value) {
  return atomicAdd(to, value);
}
SIMT_DEV bool arrive_last(unsigned* counter, unsigned count) {
  // The barrier hands the block's writes to its first thread, whose release and acquire are for all
  // (causality order of the PTX memory model); the counter starts again by itself.
  __syncthreads();
  int last = 0;
  if (threadIdx.x == 0) {
    unsigned before;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(counter), "r"(count - 1)
                 : "memory");
    last = before == count - 1;
  }
  return __syncthreads_or(last) != 0;
}

SIMT_DEV void release_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
SIMT_DEV void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

SIMT_DEV uint32_t bits_of(float f) {
  return __float_as_uint(f);
}
SIMT_DEV float float_of(uint32_t bits) {
  return __uint_as_float(bits);
}
SIMT_DEV float fma(float a, float b, float c) {
  return __fmaf_rn(a, b, c);
}
SIMT_DEV float divide(float a, float b) {
  return __fdiv_rn(a, b);
}
SIMT_DEV float square_root(float x) {
  return __fsqrt_rn(x);
}
SIMT_DEV float reciprocal(float x) {
  return __frcp_rn(x);
}

SIMT_DEV uint16_t to_f16(float f) {
  uint16_t h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
  return h;
}
SIMT_DEV float from_f16(uint16_t h) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
  return f;
}
SIMT_DEV uint16_t to_bf16(float f) {
  uint16_t h;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(f));
  return h;
}
SIMT_DEV float from_bf16(uint16_t h) {
  return __uint_as_float(static_cast<uint32_t>(h) << 16);
}
SIMT_DEV uint32_t pack_f16(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
SIMT_DEV uint32_t pack_bf16(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

struct Shape {
  dim3 grid = 1;
  dim3 block = 32;
  size_t shared_bytes = 0;
  // May begin before the launch ahead of it in the stream has ended: see wait_for_previous().
  bool dependent = false;
};

namespace detail {

// Above 48 KiB a kernel has to be allowed its shared memory once on each device.
inline cudaError_t allow_shared(const void* kernel, size_t bytes) {
  if (bytes <= 48 * 1024) return cudaSuccess;
  static std::mutex mutex;
  static std::map<std::pair<int, const void*>, size_t> allowed;
  int device = 0;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  const std::lock_guard lock(mutex);
  size_t& now = allowed[{device, kernel}];
  if (bytes <= now) return cudaSuccess;
  const cudaError_t error = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (error == cudaSuccess) now = bytes;
  return error;
}

// Whether there is code that waits where it has to: what is compiled for older GPUs alone does not,
// and newer ones run that, too.
inline bool may_overlap() {
  constexpr int kCompiledFor[] = {__CUDA_ARCH_LIST__};
  return *std::max_element(std::begin(kCompiledFor), std::end(kCompiledFor)) >= 900;
}

// Whether launches may overlap on the current device.
inline bool overlaps() {
  static thread_local int known_device = -1;
  static thread_local bool known = false;
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return false;
  if (device != known_device) {
    int major = 0;
    known =
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
        major >= 9 && may_overlap();
    known_device = device;
  }
  return known;
}

}  // namespace detail

template <typename... P>
cudaError_t launch(void (*kernel)(P...), const Shape& shape, cudaStream_t stream,
                   std::type_identity_t<P>... arguments) {
  const cudaError_t error =
      detail::allow_shared(reinterpret_cast<const void*>(kernel), shape.shared_bytes);
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = shape.dependent && detail::overlaps() ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

}  // namespace simt

#include "kernels/simt/cuda_groups.h"
