#include "kernels/cpu/panel_order.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "kernels/cpu/panel.h"
#include "kernels/cpu/tiles.h"
#include "tensor/tensor.h"

namespace aerie::kernels {
namespace {

// A tile of zeros with a matrix of zeros: numbers take the same time.
class Trial {
 public:
  explicit Trial(const CpuOps& ops)
      : ops_(ops),
        codes_(kMaxTile * kK),
        floats_(kMaxTile * kK / kGroup * kGroupSums),
        sums_(kMaxTile * kK / kGroup * kGroupSums),
        outputs_(static_cast<size_t>(panels() * kPanelRows * kMaxTile)) {}

  bool allocate(ThreadPool& pool) {
    auto weights = Buffer::allocate(static_cast<size_t>(panels() * panel_bytes(kType, kK)));
    if (!weights.ok()) return false;
    weights_ = std::move(*weights);
    // Pages that nobody has written to are all the same one.
    pool.parallel_for(panels(), 1, [&](int64_t begin, int64_t end, int) {
      const int64_t bytes = panel_bytes(kType, kK);
      std::memset(weights_.data() + begin * bytes, 0, static_cast<size_t>((end - begin) * bytes));
    });
    return true;
  }

  double seconds(ThreadPool& pool, PanelOrder order) {
    const auto start = steady_now();
    pool.parallel_pieces(panels(), 1, kPiecePanels, [&](int64_t begin, int64_t end, int) {
      MatmulShare share = whole();
      share.panel_begin = begin;
      share.panel_end = end;
      share.order = order;
      ops_.matmul(share);
    });
    return seconds_since(start);
  }

 private:
  static constexpr DType kType = DType::kQ4_0;
  static constexpr int64_t kK = 2048;
  static constexpr int64_t kBytes = int64_t{48} << 20;
  static constexpr int64_t kPiecePanels = 8 * kPanelsTogether;

  static int64_t panels() { return kBytes / panel_bytes(kType, kK); }

  MatmulShare whole() {
    const PanelFormat format = panel_format(kType);
    MatmulShare share;
    share.panels = weights_.data();
    share.dtype = kType;
    share.panel_bytes = panel_bytes(kType, kK);
    share.scales_offset = format.scales_at(kK);
    share.heads_offset = format.heads_at(kK);
    share.k = kK;
    share.n = panels() * kPanelRows;
    share.codes = codes_.data();
    share.scales = floats_.data();
    share.sums = sums_.data();
    share.scaled_sums = floats_.data();
    share.rows = kMaxTile;
    share.y = outputs_.data();
    share.stride = share.n;
    return share;
  }

  const CpuOps& ops_;
  Buffer weights_;
  std::vector<int8_t> codes_;
  std::vector<float> floats_;
  std::vector<int32_t> sums_;
  std::vector<float> outputs_;
};

}  // namespace

PanelOrder faster_order(ThreadPool& pool, const CpuOps& ops) {
  Trial trial(ops);
  if (!trial.allocate(pool)) return MatmulShare().order;
  const ThreadPool::Round round(pool);
  double turns = 1e9, one_by_one = 1e9;
  for (int i = 0; i < 3; ++i) {
    turns = std::min(turns, trial.seconds(pool, PanelOrder::kTurns));
    one_by_one = std::min(one_by_one, trial.seconds(pool, PanelOrder::kOneByOne));
  }
  return turns <= one_by_one ? PanelOrder::kTurns : PanelOrder::kOneByOne;
}

}  // namespace aerie::kernels
