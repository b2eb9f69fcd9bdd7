#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/isa/simd_avx512.h"

// After the lanes that they are written over.
#include "kernels/cpu/isa/attention_impl.h"
#include "kernels/cpu/isa/matmul_impl.h"
#include "kernels/cpu/isa/peak_impl.h"

namespace aerie::kernels {

// Only dot products of bytes are other instructions here than there.
const CpuOps* avx512_ops() {
  static const CpuOps ops = [] {
    CpuOps all = *avx512bw_ops();
    all.matmul = avx512::matmul;
    all.attention_chunk = avx512::attention_chunk;
    all.attention_merge = avx512::attention_merge;
    all.attention_finish = avx512::attention_finish;
    all.peak = avx512::peak;
    return all;
  }();
  return &ops;
}

}  // namespace aerie::kernels
