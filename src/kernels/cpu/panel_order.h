// Which order of panels is the faster on this processor.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/backend.h"
#include "kernels/cpu/cpu_ops.h"

namespace aerie::kernels {

// Of few rows, which wait for memory, and of more, which have to compute meanwhile.
struct PanelOrders {
  static constexpr int64_t kFewRows = 4;

  PanelOrder few = MatmulShare().order;
  PanelOrder more = MatmulShare().order;

  PanelOrder of(int64_t rows) const { return rows <= kFewRows ? few : more; }
};

// A product in one order, by all threads that there will be.
using OrderedProduct = std::function<void(PanelOrder, const Activations&, const MatmulTarget&)>;

// Times products of one row and of the most rows of a tile with weights from memory in either
// order, in turns: some 30 ms, in which 48 MiB are in use. Without that memory, the defaults.
// `most_tile_rows`: as CpuOps has it.
PanelOrders faster_orders(int64_t most_tile_rows, const OrderedProduct& product);

}  // namespace aerie::kernels
