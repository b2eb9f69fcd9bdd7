#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/simd_avx512.h"

// After the lanes that they are written over.
#include "kernels/cpu/attention_impl.h"
#include "kernels/cpu/kv_impl.h"
#include "kernels/cpu/matmul_impl.h"
#include "kernels/cpu/peak_impl.h"
#include "kernels/cpu/row_ops_impl.h"

namespace aerie::kernels {

const CpuOps* avx512_ops() {
  using namespace avx512;  // NOLINT(google-build-using-namespace)
  static constexpr CpuOps kOps = {
      matmul,   quantize, rms_norm, layer_norm,      rms_norm_heads,  add_rms_norm,     activate,
      soft_cap, rope,     store_kv, attention_chunk, attention_merge, attention_finish, peak};
  return &kOps;
}

}  // namespace aerie::kernels
