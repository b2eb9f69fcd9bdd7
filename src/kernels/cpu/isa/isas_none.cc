// For processors that no kernels are written for: the reference backend runs there.
#include "kernels/cpu/isas.h"

namespace aerie::kernels {

std::span<const CpuIsa> cpu_isas() {
  return {};
}

void (*bfloat_dots(Isa))(const PeakShare&) {
  return nullptr;
}

}  // namespace aerie::kernels
