// Which order of panels is the faster on this processor.
#pragma once

#include <functional>

#include "kernels/backend.h"
#include "kernels/cpu/cpu_ops.h"

namespace aerie::kernels {

// A product in one order, by all threads that there will be.
using OrderedProduct = std::function<void(PanelOrder, const Activations&, const MatmulTarget&)>;

// Times products of the most rows of a tile with weights from memory in either order, in turns:
// some 20 ms, in which 48 MiB are in use. Without that memory, the default of MatmulShare.
// `most_tile_rows`: as CpuOps has it.
PanelOrder faster_order(int64_t most_tile_rows, const OrderedProduct& product);

}  // namespace aerie::kernels
