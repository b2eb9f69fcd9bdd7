#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/cpu/isas.h"

namespace aerie::kernels {
namespace {

// Not every compiler's __builtin_cpu_supports() knows it.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

// Nor this.
bool has_avxvnni() {
  constexpr unsigned kAvxVnni = 1u << 4;
  unsigned a = 0, b = 0, c = 0, d = 0;
  return has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & kAvxVnni) != 0;
}

bool has_avx512bw() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

bool has_avx512() {
  return has_avx512bw() && __builtin_cpu_supports("avx512vnni");
}

// Asks the system for the tiles' registers, for all threads of the process: they enlarge what is
// kept of a thread that waits, so Linux (5.16 and later) gives them to those who ask.
bool has_amx() {
  constexpr unsigned kTiles = 1u << 24, kBytes = 1u << 25;
  constexpr int kAskForState = 0x1023, kTileData = 18;  // arch_prctl(2): ARCH_REQ_XCOMP_PERM
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!has_avx512() || __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  if ((d & kTiles) == 0 || (d & kBytes) == 0) return false;
  return syscall(SYS_arch_prctl, kAskForState, kTileData) == 0;
}

// With VNNI only dot products are other instructions than without; the rest is compiled once.
CpuOps with_dots(CpuOps all, const DotOps& dots) {
  all.matmul = dots.matmul;
  all.attention_chunk = dots.attention_chunk;
  all.attention_merge = dots.attention_merge;
  all.attention_finish = dots.attention_finish;
  all.peak = dots.peak;
  return all;
}

const CpuOps* avx512_ops() {
  static const CpuOps ops = with_dots(*avx512bw_ops(), *avx512_dots());
  return &ops;
}

// So few rows wait for memory as it is, and floats are not bytes.
void matmul_with_amx(const MatmulShare& s) {
  const bool many = s.rows > kMaxTile && panel_format(s.dtype).scale != PanelScale::kFloat;
  (many ? amx_matmul : avx512_dots()->matmul)(s);
}

const CpuOps* amx_ops() {
  static const CpuOps ops = [] {
    CpuOps all = *avx512_ops();
    all.matmul = matmul_with_amx;
    all.most_tile_rows = kMaxWideTile;
    return all;
  }();
  return &ops;
}

const CpuOps* avxvnni_ops() {
  static const CpuOps ops = with_dots(*avx2_ops(), *avxvnni_dots());
  return &ops;
}

constexpr CpuIsa kIsas[] = {
    {Isa::kAmx, has_amx, amx_ops},
    {Isa::kAvx512, has_avx512, avx512_ops},
    {Isa::kAvx512Bw, has_avx512bw, avx512bw_ops},
    {Isa::kAvxVnni, has_avxvnni, avxvnni_ops},
    {Isa::kAvx2, has_avx2, avx2_ops},
};

}  // namespace

std::span<const CpuIsa> cpu_isas() {
  return kIsas;
}

void (*bfloat_dots(Isa isa))(const PeakShare&) {
  const bool may_use = isa == Isa::kAvx512 && __builtin_cpu_supports("avx512bf16");
  return may_use ? run_bfloat_dots : nullptr;
}

}  // namespace aerie::kernels
