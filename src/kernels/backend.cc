#include "kernels/backend.h"

#include <cpuid.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/reference/reference_backend.h"

namespace aerie::kernels {
namespace {

// Not every compiler's __builtin_cpu_supports() knows it.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

}  // namespace

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::kReference:
      return "reference";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
  }
  return "unknown";
}

bool isa_supported(Isa isa) {
  switch (isa) {
    case Isa::kReference:
      return true;
    case Isa::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
    case Isa::kAvx512:
      return isa_supported(Isa::kAvx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
  }
  return false;
}

Isa best_isa() {
  if (isa_supported(Isa::kAvx512)) return Isa::kAvx512;
  if (isa_supported(Isa::kAvx2)) return Isa::kAvx2;
  return Isa::kReference;
}

const Backend* backend(Isa isa) {
  if (!isa_supported(isa)) return nullptr;
  static const ReferenceBackend reference;
  static const CpuBackend avx2(Isa::kAvx2, avx2_ops());
  static const CpuBackend avx512(Isa::kAvx512, avx512_ops());
  switch (isa) {
    case Isa::kReference:
      return &reference;
    case Isa::kAvx2:
      return &avx2;
    case Isa::kAvx512:
      return &avx512;
  }
  return nullptr;
}

}  // namespace aerie::kernels
