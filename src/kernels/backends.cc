// The backends that there are: what backend.h says of all of them.
#include <algorithm>
#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/isas.h"
#include "kernels/reference/reference_backend.h"

namespace aerie::kernels {

std::span<const Isa> built_isas() {
  static const std::vector<Isa> all = [] {
    std::vector<Isa> isas;
    for (const CpuIsa& each : cpu_isas()) isas.push_back(each.isa);
    isas.push_back(Isa::kReference);
    return isas;
  }();
  return all;
}

bool isa_supported(Isa isa) {
  return isa == Isa::kReference || std::ranges::any_of(cpu_isas(), [isa](const CpuIsa& each) {
           return each.isa == isa && each.supported();
         });
}

Isa best_isa() {
  return *std::ranges::find_if(built_isas(), isa_supported);
}

const CpuOps* cpu_ops(Isa isa) {
  for (const CpuIsa& each : cpu_isas()) {
    if (each.isa == isa) return each.ops();
  }
  return nullptr;
}

const Backend* backend(Isa isa) {
  static const std::vector<std::unique_ptr<const Backend>> all = [] {
    std::vector<std::unique_ptr<const Backend>> backends;
    for (const CpuIsa& each : cpu_isas()) {
      backends.push_back(make_cpu_backend(each.isa, each.ops()));
    }
    backends.push_back(make_reference_backend());
    return backends;
  }();
  if (!isa_supported(isa)) return nullptr;
  return std::ranges::find(all, isa, [](const auto& one) { return one->isa(); })->get();
}

}  // namespace aerie::kernels
