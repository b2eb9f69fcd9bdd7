// Dot products of bfloat16, two products to a float: no kernel here is made of them, and a machine
// that has them is measured by them all the same.
#include <immintrin.h>

#include "kernels/cpu/peak.h"

namespace aerie::kernels {

// As dot_bytes() in peak_impl.h.
void run_bfloat_dots(const PeakShare& s) {
  const auto* inputs = reinterpret_cast<const int32_t*>(s.data);
  const auto weights = reinterpret_cast<__m512bh>(_mm512_loadu_ps(s.data));
  __m512 sum[kBfloatSums];
#pragma GCC unroll 16
  for (__m512& one : sum) one = _mm512_setzero_ps();
  for (int64_t step = 0; step < s.steps; ++step) {
    const int32_t* base = inputs + step % kPeakDepth;
    asm("" : "+r"(base));
#pragma GCC unroll 16
    for (int j = 0; j < kBfloatSums; ++j) {
      const __m512i x = _mm512_set1_epi32(base[j]);
      sum[j] = _mm512_dpbf16_ps(sum[j], weights, reinterpret_cast<__m512bh>(x));
    }
  }
#pragma GCC unroll 16
  for (int j = 1; j < kBfloatSums; ++j) sum[0] = _mm512_add_ps(sum[0], sum[j]);
  *s.result = _mm512_reduce_add_ps(sum[0]);
}

}  // namespace aerie::kernels
