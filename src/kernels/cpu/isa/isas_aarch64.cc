#include <asm/hwcap.h>
#include <sys/auxv.h>

#include "kernels/cpu/isas.h"

namespace aerie::kernels {
namespace {

bool has_neon_dot_product() {
  return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
}

constexpr CpuIsa kIsas[] = {
    {Isa::kNeon, has_neon_dot_product, neon_ops},
};

}  // namespace

std::span<const CpuIsa> cpu_isas() {
  return kIsas;
}

void (*bfloat_dots(Isa))(const PeakShare&) {
  return nullptr;
}

}  // namespace aerie::kernels
