#include "kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cmath>
#include <mutex>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/panel_order.h"
#include "kernels/cpu/recurrence.h"

namespace aerie::kernels {
namespace {

// Threads that interleave in small pieces lose bandwidth; below so much work a second thread costs
// more than it brings.
constexpr int64_t kRowGrain = 4;              // of rows
constexpr int64_t kRowFloats = 8192;          // of floats of rows
constexpr int64_t kPieceBytes = 512 * 1024;   // of weights
constexpr int64_t kFloatGrain = 4096;         // of independent floats
constexpr int64_t kWorthMeasuring = 1 << 20;  // bytes of matrices

// Rows of k floats that a thread should have at least.
int64_t row_grain(int64_t k) {
  return std::max(kRowGrain, kRowFloats / std::max<int64_t>(1, k));
}

struct Tile {
  int64_t begin;
  int64_t rows;
};

// The tile of row r.
Tile tile_of(int64_t rows, int64_t most, int64_t r) {
  int64_t tile = r * tile_count(rows, most) / rows;
  if (tile_begin(rows, most, tile + 1) <= r) ++tile;
  const int64_t begin = tile_begin(rows, most, tile);
  return {begin, tile_begin(rows, most, tile + 1) - begin};
}

// The group of row r.
RowGroup group_of(const Activations& a, int64_t r) {
  if (a.groups.empty()) return {0, a.rows};
  const auto behind = std::ranges::upper_bound(a.groups, r, {}, &RowGroup::begin);
  return *std::prev(behind);
}

ActivationRow activation_row(Activations& a, int64_t r) {
  const RowGroup group = group_of(a, r);
  ActivationRow row;
  row.k = a.k;
  row.floats = a.row(r);
  if (a.has_ordered) {
    const Tile tile = tile_of(group.rows, kMaxFloatTile, r - group.begin);
    const int64_t begin = group.begin + tile.begin;
    row.ordered_rows = tile.rows;
    row.ordered = a.ordered.as<float>().data() + begin * a.k + (r - begin);
  }
  if (a.has_int8) {
    const Tile tile = tile_of(group.rows, a.most_tile_rows, r - group.begin);
    const int64_t begin = group.begin + tile.begin, groups = a.k / kGroup;
    row.tile_rows = tile.rows;
    row.codes = a.codes.as<int8_t>().data() + begin * a.k + (r - begin) * kGroup;
    row.scales = a.scales.as<float>().data() + begin * groups + (r - begin);
    const int64_t sums = begin * groups * kGroupSums + (r - begin);
    row.sums = a.sums.as<int32_t>().data() + sums;
    row.scaled_sums = a.scaled_sums.as<float>().data() + sums;
  }
  return row;
}

int64_t panels_of(int64_t outputs) {
  return (outputs + kPanelRows - 1) / kPanelRows;
}

MatmulShare share_of(const Activations& x, const MatmulTarget& target) {
  const PackedMatrix& w = *target.w;
  const PanelFormat format = panel_format(w.dtype);
  MatmulShare share;
  share.panels = w.data.data();
  share.dtype = w.dtype;
  share.panel_bytes = panel_bytes(w.dtype, w.k);
  share.scales_offset = format.scales_at(w.k);
  share.heads_offset = format.heads_at(w.k);
  share.k = w.k;
  share.n = w.n;
  assert(x.groups.empty() ? target.group == 0 : target.group < x.groups.size());
  const RowGroup rows = x.groups.empty() ? RowGroup{0, x.rows} : x.groups[target.group];
  const int64_t scales = rows.begin * (x.k / kGroup);
  share.ordered = x.ordered.as<float>().data() + rows.begin * x.k;
  share.codes = x.codes.as<int8_t>().data() + rows.begin * x.k;
  share.scales = x.scales.as<float>().data() + scales;
  share.sums = x.sums.as<int32_t>().data() + scales * kGroupSums;
  share.scaled_sums = x.scaled_sums.as<float>().data() + scales * kGroupSums;
  share.rows = rows.rows;
  share.y = target.y;
  share.stride = target.stride;
  share.accumulate = target.accumulate;
  share.factor = w.factor;
  share.bias = target.bias;
  return share;
}

// Of `count` matrices with outputs(i) outputs.
template <typename Outputs>
int64_t panels_of(size_t count, const Outputs& outputs) {
  int64_t total = 0;
  for (size_t i = 0; i < count; ++i) total += panels_of(outputs(i));
  return total;
}

// Divides the panels of matrices, as if these were one, over the threads: panels(i, begin, end) for
// those of matrix i. Shares are taken in pieces of so many panels; 0: whole, each by its own
// thread.
template <typename Outputs, typename Panels>
void for_panels(ThreadPool& pool, size_t count, const Outputs& outputs, int64_t piece,
                const Panels& panels) {
  pool.parallel_pieces(panels_of(count, outputs), 1, piece, [&](int64_t begin, int64_t end, int) {
    int64_t first = 0;  // of the matrix, among all
    for (size_t i = 0; i < count; ++i) {
      const int64_t own = panels_of(outputs(i));
      const int64_t from = std::clamp<int64_t>(begin - first, 0, own);
      const int64_t to = std::clamp<int64_t>(end - first, 0, own);
      if (from < to) panels(i, from, to);
      first += own;
    }
  });
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(Isa isa, const CpuOps* ops, std::optional<PanelOrder> order)
      : isa_(isa),
        ops_(ops),
        measures_(!order.has_value()),
        orders_(order ? PanelOrders(*order) : PanelOrders()) {}

  Isa isa() const override { return isa_; }

  void pack(ThreadPool& pool, std::span<const TensorView> weights,
            std::span<PackedMatrix> matrices) const override {
    settle_orders(pool, matrices);
    const auto outputs = [&](size_t i) { return matrices[i].n; };
    for_panels(pool, matrices.size(), outputs, 0, [&](size_t i, int64_t begin, int64_t end) {
      pack_panels(weights[i], begin, end, matrices[i].data.data());
    });
  }

  void fill(ThreadPool& pool, std::span<PackedMatrix> matrices,
            const FillPart& part) const override {
    settle_orders(pool, matrices);
    const auto outputs = [&](size_t i) { return matrices[i].n; };
    for_panels(pool, matrices.size(), outputs, 0, [&](size_t i, int64_t begin, int64_t end) {
      const int64_t bytes = panel_bytes(matrices[i].dtype, matrices[i].k);
      part(i, begin * bytes,
           {matrices[i].data.data() + begin * bytes, static_cast<size_t>((end - begin) * bytes)});
    });
  }

  int64_t packed_bytes(const TensorView& weights) const override {
    // Each matrix of a stack is packed by itself.
    return weights.shape[2] * weights.shape[3] * panels_of(weights.shape[1]) *
           panel_bytes(weights.dtype, weights.row_length());
  }

  bool wants_int8(DType dtype) const override {
    return panel_format(dtype).scale != PanelScale::kFloat;
  }

  void matmul(ThreadPool& pool, const Activations& x,
              std::span<const MatmulTarget> targets) const override {
    if (x.rows == 0) return;
    for ([[maybe_unused]] const MatmulTarget& target : targets) {
      assert(target.w->k == x.k);
      assert(wants_int8(target.w->dtype) ? x.has_int8 : x.has_ordered);
      assert(!x.has_int8 || x.most_tile_rows == ops_->most_tile_rows);
    }
    int64_t bytes = 0;
    for (const MatmulTarget& target : targets) bytes += static_cast<int64_t>(target.w->data.size());
    const auto outputs = [&](size_t i) { return targets[i].w->n; };
    const int64_t total = panels_of(targets.size(), outputs);
    const int64_t panels = kPieceBytes * total / std::max<int64_t>(1, bytes);
    const int64_t piece = std::max<int64_t>(1, panels / kPanelsTogether) * kPanelsTogether;
    for_panels(pool, targets.size(), outputs, piece, [&](size_t i, int64_t begin, int64_t end) {
      MatmulShare share = share_of(x, targets[i]);
      share.panel_begin = begin;
      share.panel_end = end;
      share.order = orders_.load(std::memory_order_relaxed).of(x.rows);
      ops_->matmul(share);
    });
  }

  void gather(ThreadPool& pool, const float* x, std::span<const int32_t> from,
              Activations& out) const override {
    for_rows(pool, out, [&](int64_t r, const ActivationRow& row) {
      std::copy_n(x + from[static_cast<size_t>(r)] * out.k, out.k, row.floats);
      ops_->quantize(row);
    });
  }

  void add_weighted(ThreadPool& pool, const float* x, std::span<const int32_t> from,
                    const float* weights, int64_t rows, int64_t count, int64_t n,
                    float* y) const override {
    pool.parallel_for(rows, row_grain(n * count), [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin * count; i < end * count; ++i) {
        ops_->add_scaled(x + from[static_cast<size_t>(i)] * n, weights[i], n, y + i / count * n);
      }
    });
  }

  void rms_norm(ThreadPool& pool, const float* x, int64_t x_stride, const float* weight, double eps,
                Activations& out) const override {
    for_rows(pool, out, [&](int64_t r, const ActivationRow& row) {
      ops_->rms_norm(x + r * x_stride, weight, eps, row);
    });
  }

  void layer_norm(ThreadPool& pool, const float* x, int64_t x_stride, const float* weight,
                  const float* bias, double eps, Activations& out) const override {
    for_rows(pool, out, [&](int64_t r, const ActivationRow& row) {
      ops_->layer_norm(x + r * x_stride, weight, bias, eps, row);
    });
  }

  void rms_norm_heads(ThreadPool& pool, float* x, int64_t rows, int heads, int head_dim,
                      const float* weight, double eps) const override {
    const int64_t width = int64_t{heads} * head_dim;
    pool.parallel_for(rows, row_grain(width), [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) {
        ops_->rms_norm_heads(x + r * width, heads, head_dim, weight, eps);
      }
    });
  }

  void add_rms_norm(ThreadPool& pool, const float* y, int64_t rows, int64_t n, const float* weight,
                    double eps, float* residual) const override {
    pool.parallel_for(rows, row_grain(n), [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) {
        ops_->add_rms_norm(y + r * n, n, weight, eps, residual + r * n);
      }
    });
  }

  void quantize(ThreadPool& pool, Activations& out) const override {
    for_rows(pool, out, [&](int64_t, const ActivationRow& row) { ops_->quantize(row); });
  }

  void gated(ThreadPool& pool, Activation activation, const float* gate, const float* up,
             Activations& out) const override {
    for_rows(pool, out, [&](int64_t r, const ActivationRow& row) {
      ops_->activate(activation, gate + r * out.k, up + r * out.k, row);
    });
  }

  void activate(ThreadPool& pool, Activation activation, const float* x,
                Activations& out) const override {
    for_rows(pool, out, [&](int64_t r, const ActivationRow& row) {
      ops_->activate(activation, x + r * out.k, nullptr, row);
    });
  }

  void soft_cap(ThreadPool& pool, float* x, int64_t count, float cap) const override {
    pool.parallel_for(count, kFloatGrain, [&](int64_t begin, int64_t end, int) {
      ops_->soft_cap(x + begin, end - begin, cap);
    });
  }

  void top_k(ThreadPool& pool, const float* x, int64_t stride, int64_t rows, int64_t n, int k,
             int32_t* indices, float* values, float* log_sums) const override {
    assert(k >= 1 && k <= n && k <= kMostTop);
    pool.parallel_for(rows, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) {
        const float sum = ops_->top_k(x + r * stride, n, k, indices + r * k, values + r * k);
        log_sums[r] = values[r * k] + std::log(sum);
      }
    });
  }

  void rope(ThreadPool& pool, float* x, int64_t rows, int heads, int head_dim, int dimensions,
            RopeStyle style, const float* cos, const float* sin) const override {
    pool.parallel_for(rows, row_grain(int64_t{heads} * head_dim),
                      [&](int64_t begin, int64_t end, int) {
                        for (int64_t r = begin; r < end; ++r) {
                          const int64_t turn = r * (dimensions / 2);
                          ops_->rope(x + r * heads * head_dim, heads, head_dim, dimensions, style,
                                     cos + turn, sin + turn);
                        }
                      });
  }

  void store_kv(ThreadPool& pool, const KvLayout& layout, const float* k, const float* v,
                std::span<const int32_t> slots, std::byte* kv) const override {
    const int64_t width = int64_t{layout.kv_heads} * layout.head_dim;
    pool.parallel_for(
        static_cast<int64_t>(slots.size()), row_grain(width), [&](int64_t begin, int64_t end, int) {
          for (int64_t r = begin; r < end; ++r) {
            ops_->store_kv(layout, k + r * width, v + r * width, slots[static_cast<size_t>(r)], kv);
          }
        });
  }

  void attention(ThreadPool& pool, const AttentionArgs& args) const override {
    run_attention(pool, *ops_, args);
  }

  void short_conv(ThreadPool& pool, const ShortConvArgs& args) const override {
    run_short_conv(pool, *ops_, args);
  }

  void delta_rule(ThreadPool& pool, const DeltaRuleArgs& args) const override {
    run_delta_rule(pool, *ops_, args);
  }

 private:
  // Which orders are the faster is found out once, when the first matrices come that are not of a
  // toy.
  void settle_orders(ThreadPool& pool, std::span<const PackedMatrix> matrices) const {
    int64_t bytes = 0;
    for (const PackedMatrix& matrix : matrices) bytes += static_cast<int64_t>(matrix.data.size());
    if (!measures_ || bytes < kWorthMeasuring) return;
    std::call_once(settled_, [&] {
      const ThreadPool::Round round(pool);
      orders_ = faster_orders(ops_->most_tile_rows, [&](PanelOrder order, const Activations& x,
                                                        const MatmulTarget& target) {
        orders_ = PanelOrders(order);
        matmul(pool, x, {&target, 1});
      });
    });
  }

  // write(r, row) for the rows of `out`.
  template <typename Write>
  void for_rows(ThreadPool& pool, Activations& out, const Write& write) const {
    out.most_tile_rows = ops_->most_tile_rows;
    pool.parallel_for(out.rows, row_grain(out.k), [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) write(r, activation_row(out, r));
    });
  }

  Isa isa_;
  const CpuOps* ops_;
  bool measures_;
  mutable std::atomic<PanelOrders> orders_;
  mutable std::once_flag settled_;
};

}  // namespace

std::unique_ptr<const Backend> make_cpu_backend(Isa isa, const CpuOps* ops,
                                                std::optional<PanelOrder> order) {
  return std::make_unique<CpuBackend>(isa, ops, order);
}

}  // namespace aerie::kernels
