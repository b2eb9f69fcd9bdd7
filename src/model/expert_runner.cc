#include "model/expert_runner.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace aerie {

using kernels::Activations;
using kernels::MatmulTarget;

ExpertRunner::ExpertRunner(const Blueprint& blueprint, const ModelOptions& options)
    : config_(blueprint.config),
      router_(blueprint.router),
      activation_(blueprint.activation),
      scale_(static_cast<float>(blueprint.residual_scale)),
      backend_(options.backend),
      pool_(options.pool),
      routing_(options.max_rows, config_.experts, config_.used_experts) {}

Expected<std::unique_ptr<ExpertRunner>> ExpertRunner::create(const Blueprint& blueprint,
                                                             const ModelOptions& options) {
  if (blueprint.config.experts == 0) return std::unique_ptr<ExpertRunner>();
  std::unique_ptr<ExpertRunner> runner(new ExpertRunner(blueprint, options));
  AERIE_RETURN_IF_ERROR(runner->allocate(options.max_rows));
  return runner;
}

Status ExpertRunner::allocate(int max_rows) {
  const auto rows = static_cast<size_t>(max_rows);
  const size_t pairs = rows * static_cast<size_t>(config_.used_experts);
  const auto hidden = static_cast<size_t>(config_.hidden),
             ffn = static_cast<size_t>(config_.expert_ffn);
  logits_.resize(rows * static_cast<size_t>(config_.experts));
  const auto shared_width = static_cast<size_t>(config_.shared_ffn);
  gate_.resize(std::max(pairs * ffn, rows * shared_width));
  up_.resize(gate_.size());
  down_.resize(std::max(pairs, rows) * hidden);
  products_.reserve(2 * static_cast<size_t>(config_.experts));
  AERIE_ASSIGN_OR_RETURN(
      gathered_, Activations::allocate(static_cast<int64_t>(pairs), static_cast<int64_t>(hidden)));
  AERIE_ASSIGN_OR_RETURN(
      gated_, Activations::allocate(static_cast<int64_t>(pairs), static_cast<int64_t>(ffn)));
  if (config_.shared_ffn == 0) return {};
  shared_weights_.resize(rows);
  every_row_.resize(rows);
  std::iota(every_row_.begin(), every_row_.end(), 0);
  AERIE_ASSIGN_OR_RETURN(shared_, Activations::allocate(max_rows, config_.shared_ffn));
  return {};
}

void ExpertRunner::run(const ExpertWeights& layer, const Activations& chooser, const Activations& x,
                       float* stream) {
  const int64_t rows = x.rows, pairs = rows * config_.used_experts;
  const MatmulTarget router[] = {layer.router.to(logits_.data())};
  backend_->matmul(*pool_, chooser, router);
  const std::vector<float>& corrections = layer.corrections;
  routing_.route(logits_.data(), rows, router_, corrections.empty() ? nullptr : corrections.data(),
                 scale_);

  const auto experts = routing_.experts();
  const auto groups = routing_.groups();
  reads_ += std::ssize(experts);
  const auto add = [&](const Linear& linear, size_t group, std::vector<float>& y) {
    MatmulTarget product = linear.to(y.data() + groups[group].begin * linear.weight.n);
    product.group = group;
    products_.push_back(product);
  };
  prepare_activations(*backend_, pairs, config_.hidden, {&layer.gate.front(), &layer.up.front()},
                      gathered_);
  gathered_.groups = groups;
  backend_->gather(*pool_, x.row(0), routing_.rows(), gathered_);
  products_.clear();
  for (size_t i = 0; i < experts.size(); ++i) {
    const auto expert = static_cast<size_t>(experts[i]);
    add(layer.gate[expert], i, gate_);
    add(layer.up[expert], i, up_);
  }
  backend_->matmul(*pool_, gathered_, products_);
  prepare_activations(*backend_, pairs, config_.expert_ffn, {&layer.down.front()}, gated_);
  gated_.groups = groups;
  backend_->gated(*pool_, activation_, gate_.data(), up_.data(), gated_);
  products_.clear();
  for (size_t i = 0; i < experts.size(); ++i) {
    add(layer.down[static_cast<size_t>(experts[i])], i, down_);
  }
  backend_->matmul(*pool_, gated_, products_);
  backend_->add_weighted(*pool_, down_.data(), routing_.places(), routing_.weights(), rows,
                         routing_.used(), config_.hidden, stream);
  if (config_.shared_ffn > 0) run_shared(layer, x, stream);
}

void ExpertRunner::run_shared(const ExpertWeights& layer, const Activations& x, float* stream) {
  const int64_t rows = x.rows;
  const bool gated = layer.shared_router.weight.n > 0;
  const MatmulTarget products[] = {layer.shared_gate.to(gate_.data()),
                                   layer.shared_up.to(up_.data()),
                                   layer.shared_router.to(shared_weights_.data())};
  backend_->matmul(*pool_, x, std::span(products).first(gated ? 3 : 2));
  for (int64_t r = 0; r < rows; ++r) {
    float& weight = shared_weights_[static_cast<size_t>(r)];
    weight = gated ? scale_ / (1.0f + std::exp(-weight)) : scale_;
  }
  prepare_activations(*backend_, rows, config_.shared_ffn, {&layer.shared_down}, shared_);
  backend_->gated(*pool_, activation_, gate_.data(), up_.data(), shared_);
  const MatmulTarget down[] = {layer.shared_down.to(down_.data())};
  backend_->matmul(*pool_, shared_, down);
  backend_->add_weighted(*pool_, down_.data(), every_row_, shared_weights_.data(), rows, 1,
                         config_.hidden, stream);
}

}  // namespace aerie
