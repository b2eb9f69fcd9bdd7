// Which order of panels is the faster on this processor.
#pragma once

#include "base/thread_pool.h"
#include "kernels/cpu/cpu_ops.h"

namespace aerie::kernels {

// Times products of the most rows of a tile with weights from memory in either order, in turns:
// some 20 ms, in which all threads of the pool work and 48 MiB are in use. Without that memory, the
// default of MatmulShare.
PanelOrder faster_order(ThreadPool& pool, const CpuOps& ops);

}  // namespace aerie::kernels
