#include "sampling/philox_tops.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace aerie {
namespace {

constexpr int kRounds = 10;
constexpr size_t kBlocks = kPhiloxTops / 2;
constexpr uint32_t kMul0 = 0xD2511F53u, kMul1 = 0xCD9E8D57u;
constexpr uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;

using Tops = void (*)(const PhiloxBlock& counter, const PhiloxKey& key, uint32_t* out);

void tops_plain(const PhiloxBlock& counter, const PhiloxKey& key, uint32_t* out) {
  for (uint32_t i = 0; i < kBlocks; ++i) {
    const PhiloxBlock block = philox4x32({counter[0] + i, counter[1], counter[2], counter[3]}, key);
    out[2 * i] = block[0];
    out[2 * i + 1] = block[2];
  }
}

#ifdef __x86_64__

// A word in the lower half of each lane of 64 bits, where the products are wanted. What is above it
// is never looked at, so a product's upper half need not be cleared. Several vectors at a time hide
// how long a product takes. Compilers make multiplications of 64 bits of the plain loop.
__attribute__((target("avx512f"))) void tops_avx512(const PhiloxBlock& counter,
                                                    const PhiloxKey& key, uint32_t* out) {
  constexpr int kVectors = 4;
  constexpr size_t kLanes = 8;
  const __m512i mul0 = _mm512_set1_epi64(kMul0), mul1 = _mm512_set1_epi64(kMul1);
  const __m512i lane = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
  for (size_t first = 0; first < kBlocks; first += kVectors * kLanes) {
    __m512i c0[kVectors], c1[kVectors], c2[kVectors], c3[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      const auto from = static_cast<uint32_t>(counter[0] + first + kLanes * static_cast<size_t>(v));
      c0[v] = _mm512_add_epi64(_mm512_set1_epi64(from), lane);
      c1[v] = _mm512_set1_epi64(counter[1]);
      c2[v] = _mm512_set1_epi64(counter[2]);
      c3[v] = _mm512_set1_epi64(counter[3]);
    }
    uint32_t key0 = key[0], key1 = key[1];
    for (int round = 0; round < kRounds; ++round, key0 += kWeyl0, key1 += kWeyl1) {
      const __m512i k0 = _mm512_set1_epi64(key0), k1 = _mm512_set1_epi64(key1);
      for (int v = 0; v < kVectors; ++v) {
        const __m512i p0 = _mm512_mul_epu32(c0[v], mul0), p1 = _mm512_mul_epu32(c2[v], mul1);
        const __m512i high0 = _mm512_castps_si512(_mm512_movehdup_ps(_mm512_castsi512_ps(p0)));
        const __m512i high1 = _mm512_castps_si512(_mm512_movehdup_ps(_mm512_castsi512_ps(p1)));
        constexpr int kXorOfThree = 0x96;
        c0[v] = _mm512_ternarylogic_epi64(high1, c1[v], k0, kXorOfThree);
        c2[v] = _mm512_ternarylogic_epi64(high0, c3[v], k1, kXorOfThree);
        c1[v] = p1;
        c3[v] = p0;
      }
    }
    for (int v = 0; v < kVectors; ++v, out += 2 * kLanes) {
      const __m512i upper = _mm512_slli_epi64(c2[v], 32);
      _mm512_storeu_si512(out, _mm512_mask_mov_epi32(c0[v], 0xAAAA, upper));
    }
  }
}

__attribute__((target("avx2"))) void tops_avx2(const PhiloxBlock& counter, const PhiloxKey& key,
                                               uint32_t* out) {
  constexpr int kVectors = 2;
  constexpr size_t kLanes = 4;
  const __m256i mul0 = _mm256_set1_epi64x(kMul0), mul1 = _mm256_set1_epi64x(kMul1);
  const __m256i lane = _mm256_set_epi64x(3, 2, 1, 0);
  for (size_t first = 0; first < kBlocks; first += kVectors * kLanes) {
    __m256i c0[kVectors], c1[kVectors], c2[kVectors], c3[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      const auto from = static_cast<uint32_t>(counter[0] + first + kLanes * static_cast<size_t>(v));
      c0[v] = _mm256_add_epi64(_mm256_set1_epi64x(from), lane);
      c1[v] = _mm256_set1_epi64x(counter[1]);
      c2[v] = _mm256_set1_epi64x(counter[2]);
      c3[v] = _mm256_set1_epi64x(counter[3]);
    }
    uint32_t key0 = key[0], key1 = key[1];
    for (int round = 0; round < kRounds; ++round, key0 += kWeyl0, key1 += kWeyl1) {
      const __m256i k0 = _mm256_set1_epi64x(key0), k1 = _mm256_set1_epi64x(key1);
      for (int v = 0; v < kVectors; ++v) {
        const __m256i p0 = _mm256_mul_epu32(c0[v], mul0), p1 = _mm256_mul_epu32(c2[v], mul1);
        const __m256i high0 = _mm256_shuffle_epi32(p0, 0xF5),
                      high1 = _mm256_shuffle_epi32(p1, 0xF5);
        c0[v] = _mm256_xor_si256(_mm256_xor_si256(c1[v], k0), high1);
        c2[v] = _mm256_xor_si256(_mm256_xor_si256(c3[v], k1), high0);
        c1[v] = p1;
        c3[v] = p0;
      }
    }
    for (int v = 0; v < kVectors; ++v, out += 2 * kLanes) {
      const __m256i upper = _mm256_slli_epi64(c2[v], 32);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_blend_epi32(c0[v], upper, 0xAA));
    }
  }
}

Tops fastest() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) return tops_avx512;
  if (__builtin_cpu_supports("avx2")) return tops_avx2;
  return tops_plain;
}

#else

Tops fastest() {
  return tops_plain;
}

#endif

}  // namespace

void philox_tops(PhiloxBlock counter, PhiloxKey key, std::span<uint32_t, kPhiloxTops> out) {
  static const Tops tops = fastest();
  tops(counter, key, out.data());
}

}  // namespace aerie
