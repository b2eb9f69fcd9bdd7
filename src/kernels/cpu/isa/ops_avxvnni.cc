#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/isa/simd_avx2.h"

// After the lanes that they are written over.
#include "kernels/cpu/isa/attention/long_key_impl.h"
#include "kernels/cpu/isa/matmul_impl.h"
#include "kernels/cpu/isa/peak_impl.h"

namespace aerie::kernels {
namespace {

constexpr DotOps kDots = {avxvnni::matmul, avxvnni::attention_chunk, avxvnni::attention_merge,
                          avxvnni::attention_finish, avxvnni::peak};

}  // namespace

const DotOps* avxvnni_dots() {
  return &kDots;
}

}  // namespace aerie::kernels
