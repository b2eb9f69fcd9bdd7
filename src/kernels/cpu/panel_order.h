// Which order of panels is the faster on this processor.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <iterator>

#include "kernels/backend.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/tiles.h"

namespace aerie::kernels {

// For each number of rows up to a tile's. One row waits for memory and more have to compute
// meanwhile, how many until that is most of the time hangs on the processor; besides, kernels keep
// fewer panels' sums in registers the more rows there are.
class PanelOrders {
 public:
  static constexpr int64_t kMeasured[] = {1, 2, 4, kMaxTile};

  explicit PanelOrders(PanelOrder all = MatmulShare().order) { orders_.fill(all); }

  // What was measured with as many rows, or with the next number above.
  PanelOrder of(int64_t rows) const {
    size_t i = 0;
    while (i + 1 < orders_.size() && rows > kMeasured[i]) ++i;
    return orders_[i];
  }
  void set(size_t measured, PanelOrder order) { orders_[measured] = order; }

 private:
  std::array<PanelOrder, std::size(kMeasured)> orders_;
};

// A product in one order, by all threads that there will be.
using OrderedProduct = std::function<void(PanelOrder, const Activations&, const MatmulTarget&)>;

// Times products of each number of rows in PanelOrders::kMeasured with weights from memory in
// either order, in turns: some 60 ms, in which 48 MiB are in use. Without that memory, the
// defaults. `most_tile_rows`: as CpuOps has it.
PanelOrders faster_orders(int64_t most_tile_rows, const OrderedProduct& product);

}  // namespace aerie::kernels
