// The vector instruction sets of this build: one file isas_<family>.cc for each family of
// processors, isas_none.cc for the rest.
#pragma once

#include <span>

#include "kernels/backend.h"
#include "kernels/cpu/cpu_ops.h"

namespace aerie::kernels {

struct CpuIsa {
  Isa isa = Isa::kReference;
  bool (*supported)() = nullptr;  // by the processor and the system
  const CpuOps* (*ops)() = nullptr;
};

// The fastest first. Lives as long as the program.
std::span<const CpuIsa> cpu_isas();

// nullptr for the reference and for what is not in this build.
const CpuOps* cpu_ops(Isa isa);

// Dot products of bfloat16 (see cpu/peak.h) that measurements with `isa` may use; nullptr if the
// build or the processor has none.
void (*bfloat_dots(Isa isa))(const PeakShare& share);

}  // namespace aerie::kernels
