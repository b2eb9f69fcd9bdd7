#include "kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <cassert>

#include "kernels/cpu/attention.h"

namespace aerie::kernels {
namespace {

// Threads that interleave in small pieces lose bandwidth; below so much work a second thread costs
// more than it brings.
constexpr int64_t kRowGrain = 4;
constexpr int64_t kFloatGrain = 4096;  // of independent floats

ActivationRow activation_row(Activations& a, int64_t r) {
  ActivationRow row;
  row.k = a.k;
  row.floats = a.row(r);
  int64_t tile = r * tile_count(a.rows) / a.rows;
  if (tile_begin(a.rows, tile + 1) <= r) ++tile;
  const int64_t begin = tile_begin(a.rows, tile), groups = a.k / kGroup;
  row.tile_rows = tile_begin(a.rows, tile + 1) - begin;
  if (a.has_ordered) row.ordered = a.ordered.as<float>().data() + begin * a.k + (r - begin);
  if (a.has_int8) {
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
  share.ordered = x.ordered.as<float>().data();
  share.codes = x.codes.as<int8_t>().data();
  share.scales = x.scales.as<float>().data();
  share.sums = x.sums.as<int32_t>().data();
  share.scaled_sums = x.scaled_sums.as<float>().data();
  share.rows = x.rows;
  share.y = target.y;
  share.stride = target.stride;
  share.accumulate = target.accumulate;
  share.bias = target.bias;
  return share;
}

}  // namespace

Expected<PackedMatrix> CpuBackend::pack(ThreadPool& pool, const TensorView& weights) const {
  PackedMatrix packed;
  packed.dtype = weights.dtype;
  packed.n = weights.rows();
  packed.k = weights.row_length();
  AERIE_ASSIGN_OR_RETURN(packed.data, Buffer::allocate(static_cast<size_t>(packed_bytes(weights))));
  pool.parallel_for(panels_of(packed.n), 1, [&](int64_t begin, int64_t end, int) {
    pack_panels(weights, begin, end, packed.data.data());
  });
  return packed;
}

int64_t CpuBackend::packed_bytes(const TensorView& weights) const {
  return panels_of(weights.rows()) * panel_bytes(weights.dtype, weights.row_length());
}

bool CpuBackend::wants_int8(DType dtype) const {
  return panel_format(dtype).scale != PanelScale::kFloat;
}

void CpuBackend::matmul(ThreadPool& pool, const Activations& x,
                        std::span<const MatmulTarget> targets) const {
  if (x.rows == 0) return;
  int64_t total = 0;
  for (const MatmulTarget& target : targets) {
    assert(target.w->k == x.k);
    assert(wants_int8(target.w->dtype) ? x.has_int8 : x.has_ordered);
    total += panels_of(target.w->n);
  }
  pool.parallel_for(total, 1, [&](int64_t begin, int64_t end, int) {
    int64_t first = 0;  // panel of the concatenation where a target begins
    for (const MatmulTarget& target : targets) {
      const int64_t count = panels_of(target.w->n);
      MatmulShare share = share_of(x, target);
      share.panel_begin = std::clamp<int64_t>(begin - first, 0, count);
      share.panel_end = std::clamp<int64_t>(end - first, 0, count);
      if (share.panel_begin < share.panel_end) ops_->matmul(share);
      first += count;
    }
  });
}

void CpuBackend::rms_norm(ThreadPool& pool, const float* x, int64_t x_stride, const float* weight,
                          double eps, Activations& out) const {
  pool.parallel_for(out.rows, kRowGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      ops_->rms_norm(x + r * x_stride, weight, eps, activation_row(out, r));
    }
  });
}

void CpuBackend::layer_norm(ThreadPool& pool, const float* x, int64_t x_stride, const float* weight,
                            const float* bias, double eps, Activations& out) const {
  pool.parallel_for(out.rows, kRowGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      ops_->layer_norm(x + r * x_stride, weight, bias, eps, activation_row(out, r));
    }
  });
}

void CpuBackend::rms_norm_heads(ThreadPool& pool, float* x, int64_t rows, int heads, int head_dim,
                                const float* weight, double eps) const {
  const int64_t width = int64_t{heads} * head_dim;
  pool.parallel_for(rows, kRowGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      ops_->rms_norm_heads(x + r * width, heads, head_dim, weight, eps);
    }
  });
}

void CpuBackend::add_rms_norm(ThreadPool& pool, const float* y, int64_t rows, int64_t n,
                              const float* weight, double eps, float* residual) const {
  pool.parallel_for(rows, kRowGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      ops_->add_rms_norm(y + r * n, n, weight, eps, residual + r * n);
    }
  });
}

void CpuBackend::quantize(ThreadPool& pool, Activations& out) const {
  pool.parallel_for(out.rows, kRowGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) ops_->quantize(activation_row(out, r));
  });
}

void CpuBackend::gated(ThreadPool& pool, Activation activation, const float* gate, const float* up,
                       Activations& out) const {
  pool.parallel_for(out.rows, kRowGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      ops_->activate(activation, gate + r * out.k, up + r * out.k, activation_row(out, r));
    }
  });
}

void CpuBackend::activate(ThreadPool& pool, Activation activation, const float* x,
                          Activations& out) const {
  pool.parallel_for(out.rows, kRowGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      ops_->activate(activation, x + r * out.k, nullptr, activation_row(out, r));
    }
  });
}

void CpuBackend::soft_cap(ThreadPool& pool, float* x, int64_t count, float cap) const {
  pool.parallel_for(count, kFloatGrain, [&](int64_t begin, int64_t end, int) {
    ops_->soft_cap(x + begin, end - begin, cap);
  });
}

void CpuBackend::rope(ThreadPool& pool, float* x, int64_t rows, int heads, int head_dim,
                      int dimensions, RopeStyle style, const float* cos, const float* sin) const {
  pool.parallel_for(rows, kRowGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t turn = r * (dimensions / 2);
      ops_->rope(x + r * heads * head_dim, heads, head_dim, dimensions, style, cos + turn,
                 sin + turn);
    }
  });
}

void CpuBackend::store_kv(ThreadPool& pool, const KvLayout& layout, const float* k, const float* v,
                          std::span<const int32_t> slots, std::byte* kv) const {
  const int64_t width = int64_t{layout.kv_heads} * layout.head_dim;
  pool.parallel_for(
      static_cast<int64_t>(slots.size()), kRowGrain, [&](int64_t begin, int64_t end, int) {
        for (int64_t r = begin; r < end; ++r) {
          ops_->store_kv(layout, k + r * width, v + r * width, slots[static_cast<size_t>(r)], kv);
        }
      });
}

void CpuBackend::attention(ThreadPool& pool, const AttentionArgs& args) const {
  run_attention(pool, *ops_, args);
}

}  // namespace aerie::kernels
