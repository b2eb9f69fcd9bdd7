#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/isa/simd_neon.h"

// After the lanes that it is written over.
#include "kernels/cpu/isa/ops_impl.h"

namespace aerie::kernels {

const CpuOps* neon_ops() {
  return &neon::kOps;
}

}  // namespace aerie::kernels
