#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/simd_avx2.h"

// After the lanes that they are written over.
#include "kernels/cpu/attention_impl.h"
#include "kernels/cpu/matmul_impl.h"
#include "kernels/cpu/row_ops_impl.h"

namespace aerie::kernels {

const CpuOps* avx2_ops() {
  static constexpr CpuOps kOps = {avx2::matmul,
                                  avx2::quantize,
                                  avx2::rms_norm,
                                  avx2::silu_mul,
                                  avx2::rope,
                                  avx2::store_kv,
                                  avx2::attention_chunk,
                                  avx2::attention_merge,
                                  avx2::attention_finish};
  return &kOps;
}

}  // namespace aerie::kernels
