#include "kernels/cpu/panel_order.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "kernels/cpu/panel.h"
#include "kernels/cpu/tiles.h"

namespace aerie::kernels {

PanelOrders faster_orders(int64_t most_tile_rows, const OrderedProduct& product) {
  // Numbers take the same time, so all are zero.
  constexpr int64_t kBytes = int64_t{48} << 20;
  PackedMatrix weights;
  weights.dtype = DType::kQ4_0;
  weights.k = 2048;
  weights.n = kBytes / panel_bytes(weights.dtype, weights.k) * kPanelRows;
  auto data = Buffer::allocate(kBytes);
  auto x = Activations::allocate(kMaxTile, weights.k);
  if (!data.ok() || !x.ok()) return PanelOrders();
  // Pages that nobody has written to are all the same one.
  std::memset(data->data(), 0, data->size());
  weights.data = *std::move(data);
  x->k = weights.k;
  x->has_int8 = true;
  x->most_tile_rows = most_tile_rows;
  std::vector<float> y(static_cast<size_t>(weights.n * kMaxTile));
  const MatmulTarget target = {&weights, y.data(), weights.n};

  const auto seconds = [&](PanelOrder order) {
    const auto start = steady_now();
    product(order, *x, target);
    return seconds_since(start);
  };
  const auto faster = [&](int64_t rows) {
    x->rows = rows;
    double turns = 1e9, one_by_one = 1e9;
    for (int i = 0; i < 3; ++i) {
      turns = std::min(turns, seconds(PanelOrder::kTurns));
      one_by_one = std::min(one_by_one, seconds(PanelOrder::kOneByOne));
    }
    return turns < one_by_one ? PanelOrder::kTurns : PanelOrder::kOneByOne;
  };
  PanelOrders orders;
  for (size_t i = 0; i < std::size(PanelOrders::kMeasured); ++i) {
    orders.set(i, faster(PanelOrders::kMeasured[i]));
  }
  return orders;
}

}  // namespace aerie::kernels
