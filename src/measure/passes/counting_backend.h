// A backend that counts what it is asked for.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>

#include "kernels/backend.h"

namespace aerie::measure {

// Hands everything on to another backend, which must outlive it.
class CountingBackend : public kernels::Backend {
 public:
  explicit CountingBackend(const kernels::Backend& inner) : inner_(inner) {}

  // Since the last reset(): calls that compute, and bytes of the matrices that were multiplied
  // with.
  int operations() const { return operations_; }
  int64_t weight_bytes() const { return weight_bytes_; }
  double ranking_us() const { return ranking_.count(); }  // in top_k()
  void reset() const {
    operations_ = 0;
    weight_bytes_ = 0;
    ranking_ = {};
  }

  kernels::Isa isa() const override { return inner_.isa(); }
  int64_t packed_bytes(const TensorView& weights) const override {
    return inner_.packed_bytes(weights);
  }
  void pack(ThreadPool& pool, std::span<const TensorView> weights,
            std::span<kernels::PackedMatrix> matrices) const override {
    inner_.pack(pool, weights, matrices);
  }
  void fill(ThreadPool& pool, std::span<kernels::PackedMatrix> matrices,
            const kernels::FillPart& part) const override {
    inner_.fill(pool, matrices, part);
  }
  bool wants_int8(DType dtype) const override { return inner_.wants_int8(dtype); }

  void matmul(ThreadPool& pool, const kernels::Activations& x,
              std::span<const kernels::MatmulTarget> targets) const override {
    for (const kernels::MatmulTarget& target : targets) {
      weight_bytes_ += static_cast<int64_t>(target.w->data.size());
    }
    ++operations_;
    inner_.matmul(pool, x, targets);
  }
  void gather(ThreadPool& pool, const float* x, std::span<const int32_t> from,
              kernels::Activations& out) const override {
    ++operations_;
    inner_.gather(pool, x, from, out);
  }
  void add_weighted(ThreadPool& pool, const float* x, std::span<const int32_t> from,
                    const float* weights, int64_t rows, int64_t count, int64_t n,
                    float* y) const override {
    ++operations_;
    inner_.add_weighted(pool, x, from, weights, rows, count, n, y);
  }
  void rms_norm(ThreadPool& pool, const float* x, int64_t x_stride, const float* weight, double eps,
                kernels::Activations& out) const override {
    ++operations_;
    inner_.rms_norm(pool, x, x_stride, weight, eps, out);
  }
  void layer_norm(ThreadPool& pool, const float* x, int64_t x_stride, const float* weight,
                  const float* bias, double eps, kernels::Activations& out) const override {
    ++operations_;
    inner_.layer_norm(pool, x, x_stride, weight, bias, eps, out);
  }
  void rms_norm_heads(ThreadPool& pool, float* x, int64_t rows, int heads, int head_dim,
                      const float* weight, double eps) const override {
    ++operations_;
    inner_.rms_norm_heads(pool, x, rows, heads, head_dim, weight, eps);
  }
  void add_rms_norm(ThreadPool& pool, const float* y, int64_t rows, int64_t n, const float* weight,
                    double eps, float* residual) const override {
    ++operations_;
    inner_.add_rms_norm(pool, y, rows, n, weight, eps, residual);
  }
  void quantize(ThreadPool& pool, kernels::Activations& out) const override {
    ++operations_;
    inner_.quantize(pool, out);
  }
  void gated(ThreadPool& pool, kernels::Activation activation, const float* gate, const float* up,
             kernels::Activations& out) const override {
    ++operations_;
    inner_.gated(pool, activation, gate, up, out);
  }
  void activate(ThreadPool& pool, kernels::Activation activation, const float* x,
                kernels::Activations& out) const override {
    ++operations_;
    inner_.activate(pool, activation, x, out);
  }
  void soft_cap(ThreadPool& pool, float* x, int64_t count, float cap) const override {
    ++operations_;
    inner_.soft_cap(pool, x, count, cap);
  }
  void top_k(ThreadPool& pool, const float* x, int64_t stride, int64_t rows, int64_t n, int k,
             int32_t* indices, float* values, float* log_sums) const override {
    ++operations_;
    const auto start = std::chrono::steady_clock::now();
    inner_.top_k(pool, x, stride, rows, n, k, indices, values, log_sums);
    ranking_ += std::chrono::steady_clock::now() - start;
  }
  void rope(ThreadPool& pool, float* x, int64_t rows, int heads, int head_dim, int dimensions,
            kernels::RopeStyle style, const float* cos, const float* sin) const override {
    ++operations_;
    inner_.rope(pool, x, rows, heads, head_dim, dimensions, style, cos, sin);
  }
  void store_kv(ThreadPool& pool, const kernels::KvLayout& layout, const float* k, const float* v,
                std::span<const int32_t> slots, std::byte* kv) const override {
    ++operations_;
    inner_.store_kv(pool, layout, k, v, slots, kv);
  }
  void attention(ThreadPool& pool, const kernels::AttentionArgs& args) const override {
    ++operations_;
    inner_.attention(pool, args);
  }
  void short_conv(ThreadPool& pool, const kernels::ShortConvArgs& args) const override {
    ++operations_;
    inner_.short_conv(pool, args);
  }
  void delta_rule(ThreadPool& pool, const kernels::DeltaRuleArgs& args) const override {
    ++operations_;
    inner_.delta_rule(pool, args);
  }

 private:
  const kernels::Backend& inner_;
  mutable int operations_ = 0;
  mutable int64_t weight_bytes_ = 0;
  mutable std::chrono::duration<double, std::micro> ranking_ = {};
};

}  // namespace aerie::measure
