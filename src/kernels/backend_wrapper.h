// A backend that hands everything on to another: what others that change or watch some of it are
// made from.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/backend.h"

namespace aerie::kernels {

class BackendWrapper : public Backend {
 public:
  // `inner` must outlive it.
  explicit BackendWrapper(const Backend& inner) : inner_(inner) {}

  Isa isa() const override { return inner_.isa(); }
  int64_t packed_bytes(const TensorView& weights) const override {
    return inner_.packed_bytes(weights);
  }
  bool uses_arena() const override { return inner_.uses_arena(); }
  Expected<PackedMatrix> allocate(const TensorView& weights, Arena& arena) const override {
    return inner_.allocate(weights, arena);
  }
  void pack(ThreadPool& pool, std::span<const TensorView> weights,
            std::span<PackedMatrix> matrices) const override {
    inner_.pack(pool, weights, matrices);
  }
  void fill(ThreadPool& pool, std::span<PackedMatrix> matrices,
            const FillPart& part) const override {
    inner_.fill(pool, matrices, part);
  }
  bool wants_int8(DType dtype) const override { return inner_.wants_int8(dtype); }

  void matmul(ThreadPool& pool, const Activations& x,
              std::span<const MatmulTarget> targets) const override {
    note();
    inner_.matmul(pool, x, targets);
  }
  void gather(ThreadPool& pool, const float* x, std::span<const int32_t> from,
              Activations& out) const override {
    note();
    inner_.gather(pool, x, from, out);
  }
  void add_weighted(ThreadPool& pool, const float* x, std::span<const int32_t> from,
                    const float* weights, int64_t rows, int64_t count, int64_t n,
                    float* y) const override {
    note();
    inner_.add_weighted(pool, x, from, weights, rows, count, n, y);
  }
  void rms_norm(ThreadPool& pool, const float* x, int64_t x_stride, const float* weight, double eps,
                Activations& out) const override {
    note();
    inner_.rms_norm(pool, x, x_stride, weight, eps, out);
  }
  void layer_norm(ThreadPool& pool, const float* x, int64_t x_stride, const float* weight,
                  const float* bias, double eps, Activations& out) const override {
    note();
    inner_.layer_norm(pool, x, x_stride, weight, bias, eps, out);
  }
  void rms_norm_heads(ThreadPool& pool, float* x, int64_t rows, int heads, int head_dim,
                      const float* weight, double eps) const override {
    note();
    inner_.rms_norm_heads(pool, x, rows, heads, head_dim, weight, eps);
  }
  void add_rms_norm(ThreadPool& pool, const float* y, int64_t rows, int64_t n, const float* weight,
                    double eps, float* residual) const override {
    note();
    inner_.add_rms_norm(pool, y, rows, n, weight, eps, residual);
  }
  void quantize(ThreadPool& pool, Activations& out) const override {
    note();
    inner_.quantize(pool, out);
  }
  void gated(ThreadPool& pool, Activation activation, const float* gate, const float* up,
             Activations& out) const override {
    note();
    inner_.gated(pool, activation, gate, up, out);
  }
  void activate(ThreadPool& pool, Activation activation, const float* x,
                Activations& out) const override {
    note();
    inner_.activate(pool, activation, x, out);
  }
  void soft_cap(ThreadPool& pool, float* x, int64_t count, float cap) const override {
    note();
    inner_.soft_cap(pool, x, count, cap);
  }
  void top_k(ThreadPool& pool, const float* x, int64_t stride, int64_t rows, int64_t n, int k,
             int32_t* indices, float* values, float* log_sums) const override {
    note();
    inner_.top_k(pool, x, stride, rows, n, k, indices, values, log_sums);
  }
  void rope(ThreadPool& pool, float* x, int64_t rows, int heads, int head_dim, int dimensions,
            RopeStyle style, const float* cos, const float* sin) const override {
    note();
    inner_.rope(pool, x, rows, heads, head_dim, dimensions, style, cos, sin);
  }
  void store_kv(ThreadPool& pool, const KvLayout& layout, const float* k, const float* v,
                std::span<const int32_t> slots, std::byte* kv) const override {
    note();
    inner_.store_kv(pool, layout, k, v, slots, kv);
  }
  void attention(ThreadPool& pool, const AttentionArgs& args) const override {
    note();
    inner_.attention(pool, args);
  }
  void short_conv(ThreadPool& pool, const ShortConvArgs& args) const override {
    note();
    inner_.short_conv(pool, args);
  }
  void delta_rule(ThreadPool& pool, const DeltaRuleArgs& args) const override {
    note();
    inner_.delta_rule(pool, args);
  }

 protected:
  const Backend& inner() const { return inner_; }
  // At the beginning of each call that computes and is handed on.
  virtual void note() const {}

 private:
  const Backend& inner_;
};

}  // namespace aerie::kernels
