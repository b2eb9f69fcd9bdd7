// The obvious way, one element after the other, in float on dequantised weights and with
// activations that are never quantised: the yardstick for the other backends, and what runs where
// they cannot.
#pragma once

#include "kernels/backend.h"

namespace aerie::kernels {

class ReferenceBackend final : public Backend {
 public:
  Isa isa() const override { return Isa::kReference; }
  int64_t packed_bytes(const TensorView& weights) const override;
  void pack(ThreadPool& pool, std::span<const TensorView> weights,
            std::span<PackedMatrix> matrices) const override;
  void fill(ThreadPool& pool, std::span<PackedMatrix> matrices,
            const FillPart& part) const override;
  bool wants_int8(DType) const override { return false; }
  void matmul(ThreadPool& pool, const Activations& x,
              std::span<const MatmulTarget> targets) const override;
  void rms_norm(ThreadPool& pool, const float* x, int64_t x_stride, const float* weight, double eps,
                Activations& out) const override;
  void layer_norm(ThreadPool& pool, const float* x, int64_t x_stride, const float* weight,
                  const float* bias, double eps, Activations& out) const override;
  void rms_norm_heads(ThreadPool& pool, float* x, int64_t rows, int heads, int head_dim,
                      const float* weight, double eps) const override;
  void add_rms_norm(ThreadPool& pool, const float* y, int64_t rows, int64_t n, const float* weight,
                    double eps, float* residual) const override;
  void quantize(ThreadPool& pool, Activations& out) const override;
  void gated(ThreadPool& pool, Activation activation, const float* gate, const float* up,
             Activations& out) const override;
  void activate(ThreadPool& pool, Activation activation, const float* x,
                Activations& out) const override;
  void soft_cap(ThreadPool& pool, float* x, int64_t count, float cap) const override;
  void top_k(ThreadPool& pool, const float* x, int64_t stride, int64_t rows, int64_t n, int k,
             int32_t* indices, float* values, float* log_sums) const override;
  void rope(ThreadPool& pool, float* x, int64_t rows, int heads, int head_dim, int dimensions,
            RopeStyle style, const float* cos, const float* sin) const override;
  void store_kv(ThreadPool& pool, const KvLayout& layout, const float* k, const float* v,
                std::span<const int32_t> slots, std::byte* kv) const override;
  void attention(ThreadPool& pool, const AttentionArgs& args) const override;
};

}  // namespace aerie::kernels
