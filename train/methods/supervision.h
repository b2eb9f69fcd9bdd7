// Which rows a drafter learns from, and what methods have in common whose head learns from these.
#pragma once

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "train/batches/batch.h"
#include "train/methods/training_method.h"

namespace aerie::train {

// Row t is asked in step j for the token at t + 2 + j, with the token at t + 1 + j known; both are
// to be tokens that the target generated, as they are where it drafts. 1 or 0: float [rows].
inline at::Tensor supervised_rows(const Batch& batch, int64_t step) {
  return batch.shifted(batch.mask, step + 1) * batch.shifted(batch.mask, step + 2);
}

// Of a model that says each next token itself: row t is asked for the token at t + 1.
inline at::Tensor supervised_next(const Batch& batch) {
  return batch.shifted(batch.mask, 1);
}

// Their places: int64 [some], ascending.
inline at::Tensor places_of(const at::Tensor& asked) {
  return asked.nonzero().squeeze(1);
}

// The figures of a step: sums of its rows.
inline void add_step(Figures& figures, int64_t step, double loss, double hits, double rows) {
  figures.add(fmt::format("loss_{}", step), loss);
  figures.add(fmt::format("hits_{}", step), hits);
  figures.add(fmt::format("rows_{}", step), rows);
}

// Trains a head, which reads these taps and the stream behind the last layer, on supervised_rows().
template <typename Head>
class HeadMethod : public Method {
 public:
  const MethodNeeds& needs() const final { return needs_; }
  Parameters& parameters() final { return head_.parameters(); }
  double weight(const Batch& batch) const final {
    return supervised_rows(batch, 0).sum().item<double>();
  }

 protected:
  explicit HeadMethod(Head head, std::vector<int32_t> tap_layers = {})
      : head_(std::move(head)), needs_{std::move(tap_layers), true} {}

  Head head_;

 private:
  MethodNeeds needs_;
};

}  // namespace aerie::train
