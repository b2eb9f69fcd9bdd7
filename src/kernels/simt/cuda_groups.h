// What simt.h promises of groups of four warps, on CUDA: Hopper's own instructions (sm_90a).
// Included by cuda_simt.h alone.
#pragma once

namespace simt {

#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
inline constexpr bool kHasGroups = false;
#else
inline constexpr bool kHasGroups = true;
#endif

struct alignas(8) Barrier {
  uint64_t bits;
};
SIMT_DEV unsigned address_of(const void* shared) {
  return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}
SIMT_DEV void barrier_begin(Barrier& barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address_of(&barrier)), "r"(count)
               : "memory");
}
SIMT_DEV void barriers_begun() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
SIMT_DEV void barrier_arrive(Barrier& barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address_of(&barrier)) : "memory");
}
SIMT_DEV void barrier_wait(Barrier& barrier, int parity) {
  unsigned done;
  do {
    asm volatile(
        "{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;"
        " selp.u32 %0, 1, 0, p;}"
        : "=r"(done)
        : "r"(address_of(&barrier)), "r"(parity)
        : "memory");
  } while (done == 0);
}

SIMT_DEV void barrier_expect(Barrier& barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address_of(&barrier)),
               "r"(bytes)
               : "memory");
}
SIMT_DEV void copy_block(void* to, const void* from, int bytes, Barrier& barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(address_of(to)),
      "l"(from), "r"(bytes), "r"(address_of(&barrier))
      : "memory");
}

SIMT_DEV uint64_t operand_of(const void* rows) {
  return (address_of(rows) & 0x3ffffu) >> 4 | uint64_t{1} << 16 | uint64_t{64} << 32 |
         uint64_t{1} << 62;
}

SIMT_DEV void group_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
SIMT_DEV void group_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// The compiler is to see that the sums are others behind the wait.
template <int kLeft, int kTiles>
SIMT_DEV void group_wait(float (&d)[kTiles][4]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
  SIMT_UNROLL
  for (int i = 0; i < kTiles; ++i) {
    asm volatile("" : "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])::"memory");
  }
}
template <int kLeft>
SIMT_DEV void group_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}
SIMT_DEV void group_keep(uint32_t (&a)[4]) {
  asm volatile("" : "+r"(a[0]), "+r"(a[1]), "+r"(a[2]), "+r"(a[3])::"memory");
}

// clang-format off
#define SIMT_SUMS(i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define SIMT_SUMS_8(i) SIMT_SUMS(i), SIMT_SUMS(i + 1), SIMT_SUMS(i + 2), SIMT_SUMS(i + 3), \
                       SIMT_SUMS(i + 4), SIMT_SUMS(i + 5), SIMT_SUMS(i + 6), SIMT_SUMS(i + 7)
SIMT_DEV void group_mma_bf16(float (&d)[8][4], const uint32_t (&a)[4], uint64_t operand, bool adds) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %37, 0;"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31},"
      "{%32,%33,%34,%35}, %36, p, 1, 1, 0;}"
      : SIMT_SUMS_8(0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(operand), "r"(static_cast<int>(adds)));
}
SIMT_DEV void group_mma_bf16(float (&d)[16][4], const uint32_t (&a)[4], uint64_t operand, bool adds) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %69, 0;"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
      "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
      "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63},"
      "{%64,%65,%66,%67}, %68, p, 1, 1, 0;}"
      : SIMT_SUMS_8(0), SIMT_SUMS_8(8)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(operand), "r"(static_cast<int>(adds)));
}
// clang-format on
#undef SIMT_SUMS
#undef SIMT_SUMS_8

}  // namespace simt
