// A model whose first layers the processor computes, and a device the others: one that is too large
// for the device's memory. Keys and values are where their layers are.
//
// A row's bits depend on its inputs and on what it sees alone, as those of either part do; they are
// others for each division.
#pragma once

#include <memory>
#include <vector>

#include "model/model.h"

namespace aerie {

class DividedModel final : public Model {
 public:
  // Options of the front, of a model that has these.
  static ModelOptions of_front(const ModelOptions& options, int first_layer);

  // `front` has the layers before `first_layer` and no output, `back` the others; 0 < first_layer
  // < layers. `options`: of the whole.
  DividedModel(std::unique_ptr<Model> front, std::unique_ptr<Model> back, int first_layer,
               const ModelOptions& options);

  const ModelConfig& config() const override { return back_->config(); }
  ForwardOutputs forward(const ForwardBatch& batch, KvCache& cache) override;
  ModelParts parts() const override { return back_->parts(); }
  DeviceParts device_parts() const override { return back_->device_parts(); }
  KvCache::Planes cache_planes() const override { return back_->cache_planes(); }
  int layers_here() const override { return first_layer_; }
  Status attach(KvCache& cache, std::span<const int32_t> skipped) override;
  void detach(KvCache& cache) override { back_->detach(cache); }
  int64_t weight_bytes() const override { return front_->weight_bytes() + back_->weight_bytes(); }

 private:
  ForwardOutputs run_front(const ForwardBatch& batch, int end, KvCache& cache);
  void divide_taps(const ForwardBatch& batch, int end);
  void join_taps(const ForwardBatch& batch, const ForwardOutputs& front, ForwardOutputs& out);

  std::unique_ptr<Model> front_, back_;
  int first_layer_;
  // Reused from pass to pass: what either part is asked for, and what goes from one to the other.
  ForwardBatch front_batch_, back_batch_;
  std::vector<float> hidden_, taps_;
};

}  // namespace aerie
