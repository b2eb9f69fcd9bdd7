#include "kernels/backend.h"

#include <algorithm>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/isas.h"
#include "kernels/reference/reference_backend.h"

namespace aerie::kernels {

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::kReference:
      return "reference";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Bw:
      return "avx512bw";
    case Isa::kNeon:
      return "neon";
  }
  return "unknown";
}

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

Expected<PackedMatrix> Backend::allocate(const TensorView& weights, Arena& arena) const {
  PackedMatrix matrix;
  matrix.dtype = weights.dtype;
  matrix.n = weights.rows();
  matrix.k = weights.row_length();
  AERIE_ASSIGN_OR_RETURN(matrix.data, arena.allocate(static_cast<size_t>(packed_bytes(weights))));
  return matrix;
}

Expected<PackedMatrix> Backend::packed(ThreadPool& pool, const TensorView& weights) const {
  Arena none;
  AERIE_ASSIGN_OR_RETURN(PackedMatrix matrix, allocate(weights, none));
  pack(pool, {&weights, 1}, {&matrix, 1});
  return matrix;
}

const CpuOps* cpu_ops(Isa isa) {
  for (const CpuIsa& each : cpu_isas()) {
    if (each.isa == isa) return each.ops();
  }
  return nullptr;
}

const Backend* backend(Isa isa) {
  static const ReferenceBackend reference;
  static const std::vector<CpuBackend> backends = [] {
    std::vector<CpuBackend> all;
    for (const CpuIsa& each : cpu_isas()) all.emplace_back(each.isa, each.ops());
    return all;
  }();
  if (isa == Isa::kReference) return &reference;
  if (!isa_supported(isa)) return nullptr;
  return &*std::ranges::find(backends, isa, &CpuBackend::isa);
}

}  // namespace aerie::kernels
