// A model as on a device: logits come when they are asked for, the best tokens are found already,
// and passes may fail.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "model/model.h"

namespace aerie::test {

// Computes what another does.
class FetchingModel final : public Model, private LogitSource {
 public:
  struct Behaviour {
    bool finds_best = true;
    // Whether a pass fails, given its number; it computes nothing then.
    std::function<bool(const ForwardBatch& batch, int pass)> fails = nullptr;
    // Whether a fetch does, which gives zeros: then what the pass wrote is wrong, too.
    std::function<bool(int fetch)> loses = nullptr;
  };
  struct Counts {
    int passes = 0;
    int fetches = 0;
    int failures = 0;
  };
  static constexpr const char* kFailure = "the device is lost";

  // All must outlive it.
  FetchingModel(Model& model, Behaviour behaviour, Counts& counts)
      : model_(model), behaviour_(std::move(behaviour)), counts_(counts) {}
  FetchingModel(std::unique_ptr<Model> model, Behaviour behaviour, Counts& counts)
      : owned_(std::move(model)),
        model_(*owned_),
        behaviour_(std::move(behaviour)),
        counts_(counts) {}

  const ModelConfig& config() const override { return model_.config(); }
  int64_t weight_bytes() const override { return model_.weight_bytes(); }
  ModelConfig cache_config() const override { return model_.cache_config(); }
  KvCache::Planes cache_planes() const override { return model_.cache_planes(); }
  int layers_here() const override { return model_.layers_here(); }
  Status attach(KvCache& cache, std::span<const int32_t> skipped) override {
    return model_.attach(cache, skipped);
  }
  void detach(KvCache& cache) override { model_.detach(cache); }
  ForwardOutputs forward(const ForwardBatch& batch, KvCache& cache) override;
  bool begin(const ForwardBatch& batch, KvCache& cache, const FoundTokens& found,
             std::span<const int32_t> rows) override {
    return model_.begin(batch, cache, found, rows);
  }
  bool can_begin() const override { return model_.can_begin(); }

 private:
  void spoil_entries();
  std::span<const float> fetch(int i) override;
  Status status() const override { return lost_; }

  std::unique_ptr<Model> owned_;
  Model& model_;
  Behaviour behaviour_;
  Counts& counts_;
  std::vector<std::vector<float>> rows_;  // those of earlier passes are gone
  std::vector<BestToken> best_;
  std::vector<float> zeros_;
  KvCache* cache_ = nullptr;    // of the last pass
  std::vector<int32_t> slots_;  // the same
  Status lost_;
};

}  // namespace aerie::test
