#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/isa/simd_avx512.h"

// After the lanes that it is written over.
#include "kernels/cpu/isa/amx_impl.h"

namespace aerie::kernels {

void amx_matmul(const MatmulShare& s) {
  amx::matmul(s);
}

}  // namespace aerie::kernels
