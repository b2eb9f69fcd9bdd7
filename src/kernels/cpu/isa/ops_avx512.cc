#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/isa/simd_avx512.h"

// After the lanes that they are written over.
#include "kernels/cpu/isa/attention/long_key_impl.h"
#include "kernels/cpu/isa/matmul_impl.h"
#include "kernels/cpu/isa/peak_impl.h"

namespace aerie::kernels {
namespace {

constexpr DotOps kDots = {avx512::matmul, avx512::attention_chunk, avx512::attention_merge,
                          avx512::attention_finish, avx512::peak};

}  // namespace

const DotOps* avx512_dots() {
  return &kDots;
}

}  // namespace aerie::kernels
