// The vector backends: divides the work of an operation over the pool's threads and leaves the
// arithmetic to the functions of one instruction set.
#pragma once

#include <memory>
#include <optional>

#include "kernels/backend.h"
#include "kernels/cpu/cpu_ops.h"

namespace aerie::kernels {

// `order`: of panels; none: the first matrices that are worth it have it measured.
std::unique_ptr<const Backend> make_cpu_backend(Isa isa, const CpuOps* ops,
                                                std::optional<PanelOrder> order = std::nullopt);

}  // namespace aerie::kernels
