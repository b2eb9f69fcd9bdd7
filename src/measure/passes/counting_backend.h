// A backend that counts what it is asked for.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>

#include "kernels/backend_wrapper.h"

namespace aerie::measure {

class CountingBackend : public kernels::BackendWrapper {
 public:
  using BackendWrapper::BackendWrapper;

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

  void matmul(ThreadPool& pool, const kernels::Activations& x,
              std::span<const kernels::MatmulTarget> targets) const override {
    for (const kernels::MatmulTarget& target : targets) weight_bytes_ += target.w->bytes();
    BackendWrapper::matmul(pool, x, targets);
  }
  void top_k(ThreadPool& pool, const float* x, int64_t stride, int64_t rows, int64_t n, int k,
             int32_t* indices, float* values, float* log_sums) const override {
    const auto start = std::chrono::steady_clock::now();
    BackendWrapper::top_k(pool, x, stride, rows, n, k, indices, values, log_sums);
    ranking_ += std::chrono::steady_clock::now() - start;
  }

 protected:
  void note() const override { ++operations_; }

 private:
  mutable int operations_ = 0;
  mutable int64_t weight_bytes_ = 0;
  mutable std::chrono::duration<double, std::micro> ranking_ = {};
};

}  // namespace aerie::measure
