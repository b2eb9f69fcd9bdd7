#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/simd_avx512.h"

// After the lanes that they are written over.
#include "kernels/cpu/attention_impl.h"
#include "kernels/cpu/matmul_impl.h"
#include "kernels/cpu/row_ops_impl.h"

namespace aerie::kernels {

const CpuOps* avx512_ops() {
  static constexpr CpuOps kOps = {avx512::matmul,
                                  avx512::quantize,
                                  avx512::rms_norm,
                                  avx512::silu_mul,
                                  avx512::rope,
                                  avx512::store_kv,
                                  avx512::attention_chunk,
                                  avx512::attention_merge,
                                  avx512::attention_finish};
  return &kOps;
}

}  // namespace aerie::kernels
