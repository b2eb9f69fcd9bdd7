#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/isa/simd_avx512.h"

// After the lanes that it is written over.
#include "kernels/cpu/isa/ops_impl.h"

namespace aerie::kernels {

const CpuOps* avx512_ops() {
  return &avx512::kOps;
}

}  // namespace aerie::kernels
